package server

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
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

// TestAPulseFitsIntoAFrame: however much was taken back from a session, the
// answer to its keepalive can be read, and names every grant (B11). A client
// that cannot read it would lose a healthy session.
func TestAPulseFitsIntoAFrame(t *testing.T) {
	p := Pulse{TTL: time.Minute}
	const grants = core.MaxPerSession + core.MaxTombstones
	for i := range uint64(grants) {
		p.Revoked = append(p.Revoked, Revocation{
			Grant: 1<<62 + i, Lock: strings.Repeat("l", core.MaxLockName), Cause: core.ByMaxHold,
			By: strings.Repeat("b", core.MaxLabel), Gone: true,
		})
		p.Contended = append(p.Contended, 1<<62+i)
	}
	out := pulse(p)
	if size := proto.Size(out); size > maxPageBytes {
		t.Errorf("the answer has %d bytes: a frame has %d", size, wire.MaxFrame)
	}
	if len(out.Revoked) != grants || len(out.Contended) != grants {
		t.Fatalf("the answer names %d and %d grants: want %d of each", len(out.Revoked), len(out.Contended), grants)
	}
	first, last := out.Revoked[0], out.Revoked[grants-1]
	if first.Lock == "" || first.By == "" || last.Grant != 1<<62+grants-1 || last.Cause != "max-hold" || !last.Gone {
		t.Errorf("the first is %v, the last %v", first, last)
	}
}

// TestWorkIsNoHang: the watchdog ends a process whose loop stands still, and
// not one that has much to do.
func TestWorkIsNoHang(t *testing.T) {
	hung := make(chan string, 1)
	n := startTestNode(t, func(c *NodeConfig) {
		c.hooks.hangCheck = 20 * time.Millisecond // ten of them are a hang
		c.OnHang = func(reason string) { hung <- reason }
	})
	blocked, release := make(chan struct{}), make(chan struct{})
	var views sync.WaitGroup
	views.Go(func() {
		n.View(t.Context(), true, func(Reading) { close(blocked); <-release })
	})
	<-blocked
	const busy = 8
	for range busy {
		views.Go(func() {
			n.View(t.Context(), true, func(Reading) { <-time.After(60 * time.Millisecond) })
		})
	}
	eventually(t, "all wait for one turn", func() bool {
		n.in.mu.Lock()
		defer n.in.mu.Unlock()
		return len(n.in.mu.ordinary) == busy
	})
	close(release)
	views.Wait()
	select {
	case reason := <-hung:
		t.Error(reason)
	default:
	}
}

// TestOpenAgainWhenFull: with as many sessions as are allowed, an open that
// finds its session costs no look at all that the session holds.
func TestOpenAgainWhenFull(t *testing.T) {
	n := startTestNode(t, func(c *NodeConfig) { c.MaxSessions = 1 })
	a := n.open("a", time.Minute)
	n.hold(a, core.MaxPerSession, nil)
	const opens = 20_000
	got := make(chan Answer, opens)
	begun := time.Now()
	for range opens {
		n.Submit(core.Open{ID: n.NewSessionID(), SecretHash: sha256.Sum256([]byte("a")), TTL: time.Minute}, func(a Answer) { got <- a })
	}
	late := time.NewTimer(5 * time.Second)
	for i := range opens {
		select {
		case r := <-got:
			if r.Err != nil || r.Result.Session != a {
				t.Fatalf("%+v", r)
			}
		case <-late.C:
			t.Fatalf("%d of %d opens are answered after %v", i, opens, time.Since(begun))
		}
	}
}

// TestFullOfNewWork: when new work fills the inbox, what keeps a session alive
// or ends something still gets in, also as a unary call, whose secret must be
// checked first, and so does a stream that attaches.
func TestFullOfNewWork(t *testing.T) {
	const room = 4
	w := start(t)
	a := w.open("a", time.Minute)
	held := a.acquire("held")
	w.node.in.mu.Lock()
	w.node.in.limit = room
	w.node.in.mu.Unlock()
	s := w.overConnect()
	calls := map[string]func() *driver.Error{
		"keepalive": func() *driver.Error { _, err := a.keepAlive(); return err },
		"release": func() *driver.Error {
			_, err := w.rpc.Release(t.Context(), connect.NewRequest(&holdfastv1.ReleaseRequest{Session: a.ref, Grant: held.GetNumber()}))
			if err != nil {
				return wire.FromError(err)
			}
			return nil
		},
		"attach": func() *driver.Error {
			return wire.FromErrorInfo(s.answer(s.say(frameAttach(a.ref, "p", 1))).GetError())
		},
	}
	for name, call := range calls {
		blocked, release := make(chan struct{}), make(chan struct{})
		go w.node.View(t.Context(), true, func(Reading) { close(blocked); <-release })
		<-blocked // the loop
		for range room {
			w.node.Submit(core.Put{Lock: "x"}, func(Answer) {})
		}
		waiting := func() int {
			w.node.in.mu.Lock()
			defer w.node.in.mu.Unlock()
			return len(w.node.in.mu.urgent) + len(w.node.in.mu.ordinary) + len(w.node.in.mu.refused)
		}
		answered := make(chan *driver.Error, 1)
		go func() { answered <- call() }()
		w.until("the call has arrived", func() bool { return waiting() > room })
		close(release)
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
