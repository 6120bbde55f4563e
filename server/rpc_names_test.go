package server

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// TestFalseRetries: what is sent under a used name and is another request is
// refused by a text that says what the name stands for; it is never answered
// with the other request's grant or change (RFC 8881 §2.10.6.1.3.1).
func TestFalseRetries(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		base := "retry/" + strings.ReplaceAll(t.Name(), "/", "-")
		q, other := base+"/q", base+"/other"
		a := w.open("a", time.Minute)
		name := func(lane uint32, n uint64) *holdfastv1.RequestID { return &holdfastv1.RequestID{Lane: lane, N: n} }
		first := ok(t, call, "Acquire", &holdfastv1.AcquireRequest{Session: a.ref, Request: name(0, 5), Lock: q}, &holdfastv1.AcquireResponse{})
		ok(t, call, "Put", &holdfastv1.PutRequest{Session: a.ref, Request: name(1, 1), Lock: other, Value: []byte("1")}, &holdfastv1.PutResponse{})
		ok(t, call, "Delete", &holdfastv1.DeleteRequest{Session: a.ref, Request: name(2, 1), Lock: other}, &holdfastv1.DeleteResponse{})
		for _, c := range []struct {
			method string
			req    proto.Message
			says   []string
		}{
			{"Acquire", &holdfastv1.AcquireRequest{Session: a.ref, Request: name(0, 5), Lock: other}, []string{"request 5 on lane 0", `an acquire of "` + q, "use n 6"}},
			{"Acquire", &holdfastv1.AcquireRequest{Session: a.ref, Request: name(0, 5), Lock: q, Shared: true}, []string{"with other options"}},
			{"Put", &holdfastv1.PutRequest{Session: a.ref, Request: name(0, 5), Lock: q}, []string{"an acquire of"}},
			{"Put", &holdfastv1.PutRequest{Session: a.ref, Request: name(1, 1), Lock: other, Value: []byte("2")}, []string{`a put of "` + other, "other options"}},
			{"Delete", &holdfastv1.DeleteRequest{Session: a.ref, Request: name(1, 1), Lock: other}, []string{"a put of"}},
			{"Acquire", &holdfastv1.AcquireRequest{Session: a.ref, Request: name(2, 1), Lock: other}, []string{"request 1 on lane 2", "a delete of"}},
		} {
			e := refusedAs(t, call, c.method, c.req, driver.Invalid)
			for _, part := range c.says {
				if e.Outcome != driver.No || !strings.Contains(e.Error(), part) {
					t.Errorf("%s %v: %v, outcome %v; want %q", c.method, c.req, e, e.Outcome, part)
				}
			}
		}
		for method, req := range map[string]proto.Message{
			"Acquire": &holdfastv1.AcquireRequest{Session: a.ref, Request: name(0, 4), Lock: q},
			"Delete":  &holdfastv1.DeleteRequest{Session: a.ref, Request: name(0, 4), Lock: q},
		} {
			e := call(t.Context(), method, req, &holdfastv1.GetStatusResponse{})
			if e == nil || e.Kind != driver.Invalid || !strings.Contains(e.Error(), "n 4 is lower than 5, the last on lane 0") || !strings.Contains(e.Error(), "use n 6") {
				t.Errorf("an older number: %s gets %v", method, e)
			}
		}
		if w.lock(other) != nil {
			t.Error("a refused request changed the lock")
		}
		again := ok(t, call, "Acquire", &holdfastv1.AcquireRequest{Session: a.ref, Request: name(0, 5), Lock: q, WaitMs: 9000}, &holdfastv1.AcquireResponse{})
		if again.GetGrant().GetNumber() != first.GetGrant().GetNumber() || again.GetEnded() {
			t.Errorf("a true copy gets %v, want %v", again, first)
		}
	})
}

// TestAFalseRetryLeavesTheWaiterAlone: the request that waits under the name is
// not disturbed by another one.
func TestAFalseRetryLeavesTheWaiterAlone(t *testing.T) {
	n := startTestNode(t, nil)
	a, b := n.open("a", time.Minute), n.open("b", time.Minute)
	g := n.granted(n.acquire(a, 0, 1, "l"))
	waits := n.acquire(b, 0, 1, "l")
	n.waiting(waits)
	if x := n.next(n.acquire(b, 0, 1, "other")); x.Err != nil || x.Result.Status != core.Refused {
		t.Fatalf("another request under the same name: %+v", x)
	}
	n.do(core.Release{Session: a, Grant: g.Number})
	if got := n.granted(waits); got.Lock != "l" {
		t.Errorf("the waiter got %+v", got)
	}
}

// TestAnEndedGrantSaysSo: the same name is the same grant for ever (C1); once it
// has ended, the answer says that nothing is held by it.
func TestAnEndedGrantSaysSo(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		lock := "ended/" + strings.ReplaceAll(t.Name(), "/", "-")
		a := w.open("a", time.Minute)
		ask := &holdfastv1.AcquireRequest{Session: a.ref, Request: &holdfastv1.RequestID{N: 1}, Lock: lock}
		g := ok(t, call, "Acquire", ask, &holdfastv1.AcquireResponse{})
		if again := ok(t, call, "Acquire", ask, &holdfastv1.AcquireResponse{}); g.GetEnded() || again.GetEnded() {
			t.Error("held, and said to have ended")
		}
		a.release(g.GetGrant())
		if again := ok(t, call, "Acquire", ask, &holdfastv1.AcquireResponse{}); !again.GetEnded() || again.GetGrant().GetNumber() != g.GetGrant().GetNumber() {
			t.Errorf("released, and asked again: %v", again)
		}
	})
}

// TestRevokeOfASharedGrantSaysWhatItFences: the run's holders have one token, so
// the revocation token fences all of them; and nobody joins them any more.
func TestRevokeOfASharedGrantSaysWhatItFences(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		lock := "run/" + strings.ReplaceAll(t.Name(), "/", "-")
		a, b, c := w.open("a", time.Minute), w.open("b", time.Minute), w.open("c", time.Minute)
		read := func(c *client) *holdfastv1.Grant {
			g, e := c.ask(&holdfastv1.AcquireRequest{Lock: lock, Shared: true})
			if e != nil {
				t.Fatal(e)
			}
			return g
		}
		first, second := read(a), read(b)
		r := ok(t, call, "RevokeGrant", &holdfastv1.RevokeGrantRequest{Lock: lock, Grant: first.GetNumber()}, &holdfastv1.RevokeGrantResponse{})
		if !strings.Contains(r.GetNote(), "all 2 holders") || !strings.Contains(r.GetNote(), "whole") {
			t.Errorf("note %q", r.GetNote())
		}
		if l := w.lock(lock); !l.GetSealed() {
			t.Errorf("the run is open: %v", l)
		}
		if _, e := c.ask(&holdfastv1.AcquireRequest{Lock: lock, Shared: true}); e == nil || e.Kind != driver.Busy {
			t.Errorf("somebody joins the revoked run: %v", e)
		}
		a.release(first)
		b.release(second)
		burnt, _ := fence.ParseToken(r.GetRevocationToken())
		if g := read(b); g.GetTokenNumber() <= burnt.Number || w.lock(lock).GetSealed() {
			t.Errorf("the next run has token number %d, burnt was %d", g.GetTokenNumber(), burnt.Number)
		}
		x := a.acquire(lock + "/x")
		if r := ok(t, call, "RevokeGrant", &holdfastv1.RevokeGrantRequest{Lock: lock + "/x", Grant: x.GetNumber()}, &holdfastv1.RevokeGrantResponse{}); r.GetNote() != "" {
			t.Errorf("of an exclusive grant: note %q", r.GetNote())
		}
	})
}
