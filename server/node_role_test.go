package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdfast/server/core"
	"holdfast/server/replica"
	"holdfast/server/store"
)

// TestNodeWithoutQuorum: one of three members, alone. It runs, says why it
// cannot serve, refuses with the outcome no, and answers stale reads as such.
func TestNodeWithoutQuorum(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(store.Options{Dir: dir, Logger: quietLog})
	if err != nil {
		t.Fatal(err)
	}
	me := s.Meta().NodeID
	first, err := replica.Bootstrap(core.New(core.Config{Domain: [16]byte{1}, Incarnation: 7}), []uint64{me, me + 1, me + 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bootstrap(7, first); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	node, err := StartNode(ctx, NodeConfig{Dir: dir, Logger: quietLog, Tick: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{Node: node, t: t}
	defer n.Stop(context.Background())
	if ok, why := n.Ready(); ok || why != "no leader is elected" {
		t.Errorf("ready %v, %q", ok, why)
	}
	notLeader := func(what string, err error) {
		t.Helper()
		if _, ok := errors.AsType[*NotLeaderError](err); !ok {
			t.Errorf("%s gets %v", what, err)
		}
	}
	_, err = n.Do(context.Background(), core.Open{ID: 1, SecretHash: [32]byte{1}, TTL: time.Second})
	notLeader("an open", err)
	notLeader("a keepalive", n.keepalive(1).Err)
	notLeader("a view", n.View(context.Background(), false, func(Reading) { t.Error("viewed") }))
	if err := n.View(context.Background(), true, func(r Reading) {
		if !r.Info.Stale || r.Info.Age < 10*time.Millisecond || r.Info.Index != 1 {
			t.Errorf("reading is %+v", r.Info)
		}
	}); err != nil {
		t.Errorf("a stale view gets %v", err)
	}
}

// TestDeposed: when leadership is lost, a waiting acquire is unknown, what was
// not appended is no, and the node serves again once it leads.
func TestDeposed(t *testing.T) {
	var l *loop
	n := startTestNode(t, func(c *NodeConfig) { c.hooks.loop = func(x *loop) { l = x } })
	a, b := n.open("a", 10*time.Second), n.open("b", 10*time.Second)
	n.granted(n.acquire(a, 0, 1, "l"))
	wait := n.acquire(b, 0, 1, "l")
	n.waiting(wait)
	queued := make(chan Answer, 2)
	err := n.View(context.Background(), true, func(Reading) { // on the loop
		role := l.m.Role()
		l.ordinary = append(l.ordinary, proposal{cmd: core.Put{Lock: "v"}, sink: func(x Answer) { queued <- x }})
		l.Role(replica.Role{Term: role.Term + 1, Leader: 0})
		if l.leading {
			t.Error("it still leads")
		}
		l.Role(role)
	})
	if err != nil {
		t.Fatal(err)
	}
	if x := n.next(wait); !errors.Is(x.Err, ErrUnknownOutcome) {
		t.Errorf("the waiting acquire gets %+v", x)
	}
	if x := n.next(queued); !errors.As(x.Err, new(*NotLeaderError)) {
		t.Errorf("the queued command gets %+v", x)
	}
	again := n.acquire(b, 0, 1, "l") // under the same name: the same place
	n.waiting(again)
	n.do(core.End{ID: a})
	n.granted(again)
	if p := n.keepalive(b); p.Err != nil {
		t.Errorf("pulse is %+v", p)
	}
}
