package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holdfast/server/core"
	"holdfast/server/store"
)

// init keeps the tests' logs small; it runs before any store is opened.
func init() { store.SetSegmentBytes(256 << 10) }

var quietLog = slog.New(slog.DiscardHandler)

// testNode is a node with a client's habits.
type testNode struct {
	*Node
	t   *testing.T
	cfg NodeConfig
}

func startTestNode(t *testing.T, change func(*NodeConfig)) *testNode {
	t.Helper()
	n := &testNode{t: t, cfg: NodeConfig{Dir: filepath.Join(t.TempDir(), "data"), Logger: quietLog, Tick: 20 * time.Millisecond}}
	n.cfg.OnHang = func(reason string) { t.Error(reason) }
	if change != nil {
		change(&n.cfg)
	}
	n.start()
	t.Cleanup(func() { n.Node.Stop(context.Background()) })
	return n
}

func (n *testNode) start() {
	n.t.Helper()
	node, err := StartNode(context.Background(), n.cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Node = node
	if ok, why := node.Ready(); !ok {
		n.t.Fatalf("not ready: %s", why)
	}
}

func (n *testNode) restart() {
	n.t.Helper()
	if err := n.Stop(context.Background()); err != nil {
		n.t.Fatal(err)
	}
	n.start()
}

func (n *testNode) do(cmd core.Command) core.Result {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := n.Do(ctx, cmd)
	if err != nil {
		n.t.Fatalf("%T: %v", cmd, err)
	}
	return r
}

func (n *testNode) open(name string, ttl time.Duration) core.SessionID {
	n.t.Helper()
	r := n.do(core.Open{ID: n.NewSessionID(), SecretHash: sha256.Sum256([]byte(name)), TTL: ttl, Label: name})
	if r.Status != core.Done || r.Session == 0 {
		n.t.Fatalf("open %s: %+v", name, r)
	}
	return r.Session
}

// acquire submits and returns the channel of answers.
func (n *testNode) acquire(s core.SessionID, lane uint32, number uint64, lock string) <-chan Answer {
	got := make(chan Answer, 4)
	n.Submit(core.Acquire{Session: s, Request: core.Request{Lane: lane, N: number}, Lock: lock}, func(a Answer) { got <- a })
	return got
}

func (n *testNode) next(got <-chan Answer) Answer {
	n.t.Helper()
	select {
	case a := <-got:
		return a
	case <-time.After(10 * time.Second):
		n.t.Fatal("no answer")
		return Answer{}
	}
}

func (n *testNode) granted(got <-chan Answer) *core.Grant {
	n.t.Helper()
	a := n.next(got)
	if a.Err != nil || a.Result.Status != core.Granted {
		n.t.Fatalf("answer is %+v, %+v", a, a.Result.Refusal)
	}
	return a.Result.Grant
}

func (n *testNode) waiting(got <-chan Answer) {
	n.t.Helper()
	if a := n.next(got); a.Err != nil || a.Result.Status != core.Waiting {
		n.t.Fatalf("answer is %+v, %+v", a, a.Result.Refusal)
	}
}

func (n *testNode) keepalive(s core.SessionID) Pulse {
	n.t.Helper()
	got := make(chan Pulse, 1)
	n.Keepalive(s, func(p Pulse) { got <- p })
	select {
	case p := <-got:
		return p
	case <-time.After(10 * time.Second):
		n.t.Fatal("no answer to a keepalive")
		return Pulse{}
	}
}

// settled is the status after everything that was answered so far: it is
// published at the end of a turn of the loop, and answers go out within.
func (n *testNode) settled() Status {
	n.t.Helper()
	for range 2 {
		if err := n.View(context.Background(), true, func(Reading) {}); err != nil {
			n.t.Fatal(err)
		}
	}
	return n.Status()
}

func (n *testNode) hash() (h [32]byte, index uint64) {
	n.t.Helper()
	err := n.View(context.Background(), false, func(r Reading) { h, index = r.State.Hash(), r.Info.Index })
	if err != nil {
		n.t.Fatal(err)
	}
	return h, index
}

func TestNodeLife(t *testing.T) {
	n := startTestNode(t, nil)
	a, b := n.open("a", 5*time.Second), n.open("b", 5*time.Second)
	first := n.granted(n.acquire(a, 0, 1, "invoices"))
	if first.Number != 1 || first.Lock != "invoices" || first.Session != a {
		t.Errorf("grant is %+v", first)
	}
	wait := n.acquire(b, 0, 1, "invoices")
	n.waiting(wait)
	p := n.keepalive(a)
	if p.Err != nil || p.TTL != 5*time.Second || len(p.Contended) != 1 || p.Contended[0] != 1 {
		t.Errorf("pulse is %+v", p)
	}
	n.do(core.Release{Session: a, Grant: first.Number})
	if second := n.granted(wait); second.Number != 2 || second.Session != b {
		t.Errorf("second grant is %+v", second)
	}
	if p := n.keepalive(12345); !errors.Is(p.Err, ErrSessionLost) {
		t.Errorf("pulse of nobody's session is %+v", p)
	}
	st := n.settled()
	if st.Role != "leader" || st.Sessions != 2 || st.LastNumber != 2 || !st.Ready {
		t.Errorf("status is %+v", st)
	}
	// An ended session's wait is answered, though the lock stays held.
	again := n.acquire(a, 0, 2, "invoices")
	n.waiting(again)
	n.do(core.End{ID: a})
	if ans := n.next(again); ans.Result.Status != core.Refused || ans.Result.Refusal.Reason != core.SessionLost {
		t.Errorf("answer to the wait of an ended session is %+v", ans)
	}
}

func TestNodeExpiry(t *testing.T) {
	n := startTestNode(t, nil)
	a, b := n.open("a", time.Second), n.open("b", time.Minute)
	n.granted(n.acquire(a, 0, 1, "l"))
	wait := n.acquire(b, 0, 1, "l")
	n.waiting(wait)
	start := time.Now()
	n.granted(wait) // a is silent
	if took := time.Since(start); took < 900*time.Millisecond || took > 2500*time.Millisecond {
		t.Errorf("a silent session with a TTL of 1s held on for %v", took)
	}
	if p := n.keepalive(a); !errors.Is(p.Err, ErrSessionLost) {
		t.Errorf("pulse of an expired session is %+v", p)
	}
}

func TestNodeRestart(t *testing.T) {
	n := startTestNode(t, nil)
	a, b := n.open("a", 10*time.Second), n.open("b", 10*time.Second)
	g := n.granted(n.acquire(a, 0, 1, "l"))
	n.waiting(n.acquire(b, 0, 1, "l"))
	before := n.settled()
	hash, _ := n.hash()
	n.restart()
	after := n.settled()
	if after.NodeID != before.NodeID || after.Domain != before.Domain || after.Incarnation != before.Incarnation || after.LastNumber != before.LastNumber || after.Sessions != 2 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if h, _ := n.hash(); h == hash {
		t.Error("the hash does not cover the index") // one entry more: the new term's
	}
	if r := n.do(core.Open{ID: 7, SecretHash: sha256.Sum256([]byte("a")), TTL: 10 * time.Second}); r.Session != a {
		t.Errorf("the session's secret opens %d: want %d", r.Session, a)
	}
	// The same request again is the same grant and the same place.
	if again := n.granted(n.acquire(a, 0, 1, "l")); again.Number != g.Number {
		t.Errorf("grant is %d: want %d", again.Number, g.Number)
	}
	wait := n.acquire(b, 0, 1, "l")
	n.waiting(wait)
	n.do(core.Release{Session: a, Grant: g.Number})
	if next := n.granted(wait); next.Number != g.Number+1 {
		t.Errorf("grant after the restart is %d", next.Number)
	}
}

func TestPulseTellsOfRevokes(t *testing.T) {
	n := startTestNode(t, nil)
	a, b := n.open("a", 10*time.Second), n.open("b", 10*time.Second)
	first, second := n.granted(n.acquire(a, 0, 1, "l")), n.granted(n.acquire(a, 1, 1, "m"))
	n.do(core.Revoke{Lock: "l", Grant: first.Number, Cause: core.ByOperator, By: "kim"})
	n.do(core.Revoke{Lock: "m", Grant: second.Number, Now: true, Cause: core.ByOperator, By: "lee"})
	want := []Revocation{
		{Grant: first.Number, Lock: "l", Cause: core.ByOperator, By: "kim"},
		{Grant: second.Number, Lock: "m", Cause: core.ByOperator, By: "lee", Gone: true},
	}
	for range 2 { // until they are acknowledged
		if p := n.keepalive(a); p.Err != nil || !slices.Equal(p.Revoked, want) {
			t.Errorf("pulse is %+v: want %+v", p, want)
		}
	}
	if p := n.keepalive(b); p.Err != nil || len(p.Revoked) != 0 {
		t.Errorf("another session's pulse is %+v", p)
	}
	for _, g := range []*core.Grant{first, second} {
		n.do(core.Release{Session: a, Grant: g.Number})
	}
	if p := n.keepalive(a); p.Err != nil || len(p.Revoked) != 0 {
		t.Errorf("pulse after the acknowledgement is %+v", p)
	}
}
