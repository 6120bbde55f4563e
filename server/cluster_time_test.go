package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast/server/core"
)

// handOver moves leadership to another member and waits until it has moved.
func (r *rig) handOver() {
	r.t.Helper()
	old := r.leader()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	err := old.node.ask(ctx, true, func(l *loop, done func(error)) {
		l.handOver("a test")
		done(nil)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "another leader", func() bool { return old.node.Status().Role != "leader" })
	r.leader()
}

// living keeps a session alive as a client does: a keepalive every third of
// its TTL, and one at once when another member leads.
type living struct {
	r    *rig
	id   core.SessionID
	ttl  time.Duration
	lost chan error
}

func (c *living) run(stop <-chan struct{}) {
	tick := time.NewTicker(c.ttl / 50)
	defer tick.Stop()
	var term uint64
	var last time.Time
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for _, m := range c.r.nodes {
			st := m.node.Status()
			if st.Role != "leader" || st.Term == term && time.Since(last) < c.ttl/3 {
				continue
			}
			p, ok := m.renew(c.id, c.ttl/3)
			if ok && errors.Is(p.Err, ErrSessionLost) {
				c.lost <- fmt.Errorf("session %d is lost", c.id)
				return
			}
			if ok && p.Err == nil {
				term, last = st.Term, time.Now()
			}
		}
	}
}

// TestCasebookC14_LeaderFlaps: the holder is dead, and leaders change every half
// of its TTL, with a restart of all in between. The waiter behind it is granted
// within 2 × TTL and the time without a leader.
func TestCasebookC14_LeaderFlaps(t *testing.T) {
	t.Parallel()
	const ttl = core.MinTTL
	r := newCluster(t, 3)
	b := &living{r: r, id: r.open("waiter", time.Minute), ttl: time.Minute, lost: make(chan error, 1)}
	a := r.open("dead", ttl)
	g := r.acquire(a, 1, "l")
	dead := time.Now()
	if res := r.do(core.Acquire{Session: b.id, Request: core.Request{N: 1}, Lock: "l"}); res.Status != core.Waiting {
		t.Fatalf("%+v", res)
	}
	granted := func() bool {
		var next uint64
		r.leader().view(func(x Reading) {
			if l, ok := x.State.Lock("l", 1); ok && len(l.Holders) == 1 && l.Holders[0].Session == b.id {
				next = l.Holders[0].Number
			}
		})
		if next != 0 && next <= g.Number {
			t.Fatalf("number %d after %d", next, g.Number)
		}
		return next != 0
	}
	var leaderless time.Duration
	changes := 0
	for ; changes < 10 && !granted(); changes++ {
		half := time.After(ttl / 2)
		for over := false; !over && !granted(); {
			select {
			case <-half:
				over = true
			case <-time.After(clusterTick):
			}
		}
		from := time.Now()
		if changes == 1 {
			for _, m := range r.nodes {
				m.stop()
			}
			r.start(r.nodes...)
			r.leader()
		} else {
			r.handOver()
		}
		leaderless += time.Since(from)
	}
	eventually(t, "the waiter is granted", granted)
	// A leader in office for less than max(T/8, 4 ticks) counts as none, and
	// so does what this machine took to let the test look.
	took, limit := time.Since(dead), 2*ttl+leaderless+ttl
	t.Logf("granted %v after the holder's last sign, after %d changes with %v without a leader", took, changes, leaderless)
	if took > limit {
		t.Errorf("granted after %v: want at most %v", took, limit)
	}
	if changes < 2 {
		t.Errorf("only %d changes: the test shows nothing", changes)
	}
	r.equal()
}

// TestCasebookC15_ElectionsUnderLiveSessions: there is no leader for most of a
// TTL, and then for longer than one. No session ends whose client renews when
// there is a leader again.
func TestCasebookC15_ElectionsUnderLiveSessions(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	r := newCluster(t, 3)
	stop := make(chan struct{})
	var running sync.WaitGroup
	lost := make(chan error, 10)
	var ids []core.SessionID
	for i := range 10 {
		c := &living{r: r, id: r.open(fmt.Sprint("client", i), ttl), ttl: ttl, lost: lost}
		r.acquire(c.id, 1, fmt.Sprint("l", i))
		ids = append(ids, c.id)
		running.Go(func() { c.run(stop) })
	}
	for _, gap := range []time.Duration{ttl * 4 / 5, ttl * 8 / 5} {
		for i := range r.nodes {
			r.isolate(i)
		}
		eventually(t, "nobody leads", func() bool {
			for _, m := range r.nodes {
				if m.node.Status().Role == "leader" {
					return false
				}
			}
			return true
		})
		<-time.After(gap)
		r.heal()
		r.leader()
		<-time.After(ttl * 5 / 4) // whoever was not heard would be gone by then
	}
	close(stop)
	running.Wait()
	close(lost)
	for err := range lost {
		t.Error(err)
	}
	for i, id := range ids {
		r.leader().view(func(x Reading) {
			if l, ok := x.State.Lock(fmt.Sprint("l", i), 0); !x.State.HasSession(id) || !ok || l.Holders[0].Session != id {
				t.Errorf("session %d or its lock is gone", id)
			}
		})
	}
	r.equal()
}
