package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// applied is how far a member's log was applied.
func (m *rigNode) applied() uint64 { return m.node.Status().Applied }

// full waits until a member says that its disk is, and does not lead.
func (m *rigNode) full() {
	m.rig.t.Helper()
	eventually(m.rig.t, rigName(m.i)+" says that its disk is full", func() bool {
		ok, why := m.node.Ready()
		return !ok && strings.Contains(why, "MiB are free")
	})
}

// TestCasebookC10_LeadersDiskIsFull: the leader's disk falls below the
// watermark, then further; then all three do. Leadership moves while there is
// still room; where nobody else could lead, what grows is refused by name and
// releases, keepalives, ends and operators' calls go on. With room again each
// node is back by itself. What was acknowledged is kept, and no session ends.
func TestCasebookC10_LeadersDiskIsFull(t *testing.T) {
	r := newCluster(t, 3, func(c *NodeConfig) { c.SnapshotEntries, c.hooks.trailing = 150, 20 })
	k := r.keep()
	a, b := r.open("a", 5*time.Second), r.open("b", time.Hour)
	defer r.keepAlive(a)()
	g := r.acquire(a, 1, "held")
	l := r.startLoad(2)

	old := r.leader()
	rest := r.but(old)
	old.disk.low.Store(true)
	r.leaderAmong(rest...)
	old.says("too little disk space")
	old.full()
	k.check() // it still follows
	r.renewed(a, rest...)

	// A follower that has even less lets its log not grow, and takes no
	// snapshot. The others go on, and do not make it their leader.
	old.disk.starved.Store(true)
	stood := old.applied()
	eventually(t, "it stands still", func() bool {
		was := stood
		stood = old.applied()
		return stood == was && r.leaderAmong(rest...).applied() > stood+200
	})
	r.renewed(a, rest...)
	if got := old.applied(); got != stood {
		t.Errorf("a follower without room went on from entry %d to %d", stood, got)
	}
	lead := r.leaderAmong(rest...)
	op := &service{node: lead.node}
	_, err := op.transfer(t.Context(), &holdfastv1.TransferLeadershipRequest{Name: rigName(old.i)}, probing())
	if e := classify(err); e.Kind != driver.Conflict || e.Outcome != driver.No {
		t.Errorf("leadership to the node whose disk is full: %v", err)
	}

	old.disk.starved.Store(false)
	old.disk.low.Store(false)
	eventually(t, "it is back by itself", func() bool { ok, _ := old.node.Ready(); return ok })
	k.check()

	l.end()
	r.allFull(a, b, g)
	for _, m := range r.nodes {
		m.disk.low.Store(false)
	}
	r.leader()
	r.acquire(a, 2, "held")
	k.check()
	r.equal()
}

// keepAlive renews a session at whoever answers, until what it returns is
// called; the session must live as long.
func (r *rig) keepAlive(s core.SessionID) (stop func()) {
	var nodes []*Node
	for _, m := range r.nodes {
		nodes = append(nodes, m.node)
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, n := range nodes {
				n.Keepalive(s, func(p Pulse) {
					if errors.Is(p.Err, ErrSessionLost) {
						r.t.Errorf("session %d is lost", s)
					}
				})
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// leading is the member that leads, ready or not.
func (r *rig) leading() (lead *rigNode) {
	r.t.Helper()
	eventually(r.t, "a leader", func() bool {
		for _, m := range r.nodes {
			if m.node != nil && m.node.Status().Role == "leader" {
				lead = m
				return true
			}
		}
		return false
	})
	return lead
}

// allFull fills the disks of all members: nobody can take over. a holds g, and
// gives it back; b ends.
func (r *rig) allFull(a, b core.SessionID, g *core.Grant) {
	r.t.Helper()
	for _, m := range r.nodes {
		m.disk.low.Store(true)
	}
	for _, m := range r.nodes {
		m.full()
	}
	for _, cmd := range []core.Command{
		core.Open{ID: 4711, SecretHash: [32]byte{9}, TTL: time.Second},
		core.Acquire{Session: b, Request: core.Request{Lane: 1, N: 1}, Lock: "more"},
		core.Put{Lock: "v", Value: []byte("x")},
	} {
		eventually(r.t, "a refusal of what grows", func() bool {
			_, err := r.leading().node.Do(r.t.Context(), cmd)
			if err == nil {
				r.t.Fatalf("%T is done", cmd)
			}
			return errors.Is(err, ErrOverloaded) && strings.Contains(err.Error(), "free space") && classify(err).Outcome == driver.No
		})
	}
	eventually(r.t, "a keepalive that is answered", func() bool { p, ok := r.leading().renew(a, time.Second); return ok && p.Err == nil })
	for _, cmd := range []core.Command{core.Release{Session: a, Grant: g.Number}, core.End{ID: b}} {
		eventually(r.t, "an answer", func() bool {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			defer cancel()
			res, err := r.leading().node.Do(ctx, cmd)
			if errors.Is(err, ErrOverloaded) {
				r.t.Fatalf("%T gets %v", cmd, err)
			}
			return err == nil && res.Status == core.Done
		})
	}
	eventually(r.t, "the record of an operator's call", func() bool {
		err := (&service{node: r.leading().node}).record(r.t.Context(), &operation{call: "transfer"}, core.AuditBegun, driver.Internal)
		if errors.Is(err, ErrOverloaded) {
			r.t.Fatalf("the record of an operator's call: %v", err)
		}
		return err == nil
	})
}
