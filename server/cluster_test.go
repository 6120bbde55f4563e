package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/server/core"
)

func TestThreeNodes(t *testing.T) {
	r := newCluster(t, 3)
	lead := r.leader()
	s := r.open("holder", time.Hour)
	g := r.acquire(s, 1, "l")
	r.equal()
	for _, m := range r.nodes {
		m.view(func(x Reading) {
			members, _ := x.State.Members()
			if len(members) != 3 || members[0].Name == "" || members[0].ClientAddr == "" {
				t.Errorf("%s has members %+v", rigName(m.i), members)
			}
			if h, ok := x.State.GrantByNumber(g.Number); !ok || h.Lock != "l" {
				t.Errorf("%s does not have the grant", rigName(m.i))
			}
			if m != lead && x.Info.Age > time.Second {
				t.Errorf("%s last heard a leader %v ago", rigName(m.i), x.Info.Age)
			}
		})
	}
	// A follower answers nothing that needs the leader, and says who leads.
	follower := r.other(lead)
	_, err := follower.node.Do(t.Context(), core.Tick{})
	var away *NotLeaderError
	if !errors.As(err, &away) || away.Addr != lead.cfg.Peers.ClientAddr || away.Leader != lead.node.Status().NodeID || away.Term != lead.node.Status().Term {
		t.Errorf("a command at a follower: %v", err)
	}
	if err := follower.node.View(t.Context(), false, func(Reading) { t.Error("read") }); !errors.As(err, &away) {
		t.Errorf("a read at a follower: %v", err)
	}
	got := make(chan Pulse, 1)
	follower.node.Keepalive(s, func(p Pulse) { got <- p })
	if p := <-got; !errors.As(p.Err, &away) || away.Addr == "" {
		t.Errorf("a keepalive at a follower: %v", p.Err)
	}
	if st := follower.node.Status(); st.Role != "follower" || !st.Ready || st.LeaderAddr != lead.cfg.Peers.ClientAddr {
		t.Errorf("a follower's status is %+v", st)
	}
}

// A leader that is stopped hands over first: the others do not wait for an
// election timeout, and nothing is lost.
func TestGracefulStopHandsOver(t *testing.T) {
	r := newCluster(t, 3)
	s := r.open("holder", time.Hour)
	g := r.acquire(s, 1, "l")
	term := r.leader().node.Status().Term
	for n := uint64(2); n < 4; n++ {
		old := r.leader()
		old.stop()
		if !strings.Contains(old.log.String(), "leadership is handed over") {
			t.Error("it was not handed over")
		}
		lead := r.leader()
		if got := lead.node.Status().Term; got != term+1 {
			t.Errorf("term %d after %d: somebody had to be elected the long way", got, term)
		}
		if next := r.acquire(s, n, "l2"+string(rune('0'+n))); next.Number <= g.Number {
			t.Errorf("number %d after %d", next.Number, g.Number)
		}
		r.start(old)
		term = r.leader().node.Status().Term
		r.equal()
	}
}

// All stop, and all come back.
func TestAllRestarted(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	s := r.open("holder", time.Hour)
	g := r.acquire(s, 1, "l")
	for _, m := range r.nodes {
		m.stop()
	}
	r.start(r.nodes...)
	r.leader()
	if again := r.acquire(s, 1, "l"); again.Number != g.Number {
		t.Errorf("the grant is %d, was %d", again.Number, g.Number)
	}
	r.equal()
}

// A follower that was away for longer than the log is kept gets a snapshot.
func TestFollowerNeedsASnapshot(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3, func(c *NodeConfig) { c.SnapshotEntries, c.hooks.trailing = 50, 10 })
	s := r.open("holder", time.Hour)
	away := r.other(r.leader())
	away.stop()
	big := []byte(strings.Repeat("x", 4000))
	for i := range 150 {
		r.do(core.Put{Lock: fmt.Sprint("v", i%20), Value: big})
	}
	r.acquire(s, 1, "l")
	r.start(away)
	away.says("the state was taken from another member")
	r.equal()
	// It goes on from there, also by itself.
	away.stop()
	r.start(away)
	r.acquire(s, 2, "m")
	r.equal()
}

// TestCasebookC08_DeposedLeaderAnswersNoRead: a leader that is cut off from the
// others answers no read, while they give the lock to somebody else.
func TestCasebookC08_DeposedLeaderAnswersNoRead(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	a, b := r.open("a", time.Hour), r.open("b", time.Hour)
	g := r.acquire(a, 1, "l")
	old := r.leader()
	r.isolate(old.i)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	read := make(chan error, 1)
	go func() { read <- old.node.View(ctx, false, func(Reading) {}) }()
	var rest []*rigNode
	for _, m := range r.nodes {
		if m != old {
			rest = append(rest, m)
		}
	}
	lead := r.leaderAmong(rest...)
	if _, err := lead.node.Do(ctx, core.Release{Session: a, Grant: g.Number}); err != nil {
		t.Fatal(err)
	}
	res, err := lead.node.Do(ctx, core.Acquire{Session: b, Request: core.Request{N: 1}, Lock: "l"})
	if err != nil || res.Status != core.Granted {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := <-read; err == nil {
		t.Error("the deposed leader answered a read that came when it was cut off")
	}
	if err := old.node.View(ctx, false, func(Reading) {}); err == nil {
		t.Error("the deposed leader answers a read")
	}
	old.view(func(x Reading) {
		if !x.Info.Stale || x.Info.Age == 0 {
			t.Errorf("a stale reading is labelled %+v", x.Info)
		}
	})
	r.heal()
	r.leader()
	r.equal()
}

// TestCasebookC12_OneWayBrokenSwitch: the line between the leader and one
// follower is broken, all others stand. No election comes of it.
func TestCasebookC12_OneWayBrokenSwitch(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	lead := r.leader()
	lost, kept := r.other(lead), (*rigNode)(nil)
	kept = r.other(lead, lost)
	term := lead.node.Status().Term
	r.cut(lead.i, lost.i)
	r.cut(lost.i, lead.i)
	s := r.open("holder", time.Hour)
	// The follower that is cut off stands for election again and again.
	eventually(t, "it knows no leader", func() bool { return lost.node.Status().LeaderID == 0 })
	end := time.After(40 * clusterTick)
	for n, over := uint64(1), false; !over; n++ {
		r.acquire(s, n, fmt.Sprint("l", n))
		select {
		case <-end:
			over = true
		default:
		}
	}
	for _, m := range []*rigNode{lead, kept} {
		if st := m.node.Status(); st.Term != term || st.LeaderID != lead.node.Status().NodeID {
			t.Errorf("%s is in term %d, led by %x: want no change", rigName(m.i), st.Term, st.LeaderID)
		}
	}
	if got := lost.node.Status().Term; got != term {
		t.Errorf("the term of who is cut off climbed to %d", got)
	}
	r.heal()
	r.leader()
	r.equal()
}
