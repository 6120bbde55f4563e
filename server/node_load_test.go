package server

import (
	"fmt"
	"testing"
	"time"

	"holdfast/server/core"
)

// hold lets a session take many locks, each on a lane of its own or not.
func (n *testNode) hold(s core.SessionID, locks int, change func(*core.Acquire)) {
	n.t.Helper()
	done := make(chan Answer, locks)
	for i := range locks {
		cmd := core.Acquire{Session: s, Request: core.Request{N: uint64(i) + 1}, Lock: fmt.Sprintf("many/%06d", i)}
		if change != nil {
			change(&cmd)
		}
		n.Submit(cmd, func(a Answer) { done <- a })
	}
	for range locks {
		n.granted(done)
	}
}

// TestManyKeepalivesOfALargeSession: one message can name a session as often
// as it likes, and a session can hold 10,000 grants. The loop must not look at
// all of them once for each: it would stand still until its watchdog ends the
// process.
func TestManyKeepalivesOfALargeSession(t *testing.T) {
	n := startTestNode(t, nil)
	a := n.open("a", time.Minute)
	n.hold(a, core.MaxPerSession, nil)
	const keepalives = 20_000
	got := make(chan Pulse, keepalives)
	begun := time.Now()
	for range keepalives {
		n.Keepalive(a, func(p Pulse) { got <- p })
	}
	late := time.NewTimer(10 * time.Second)
	for i := range keepalives {
		select {
		case p := <-got:
			if p.Err != nil {
				t.Fatal(p.Err)
			}
		case <-late.C:
			t.Fatalf("%d of %d keepalives are answered after %v", i, keepalives, time.Since(begun))
		}
	}
}
