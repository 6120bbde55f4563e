package backup

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"holdfast/server/core"
)

// service is a state with what is needed to change it.
type service struct {
	t     testing.TB
	s     *core.State
	clock core.Clock
	next  map[core.SessionID]uint64 // request on each session's lane
}

func newService(t testing.TB) *service {
	return &service{t: t, next: map[core.SessionID]uint64{}, s: core.New(core.Config{
		Domain: [16]byte{0xd0, 15: 1}, Incarnation: 7, Version: core.SupportedVersion, Members: []core.Member{{ID: 1, Name: "one"}, {ID: 2, Name: "two"}, {ID: 3, Name: "three"}},
	})}
}

// apply applies commands as one entry.
func (w *service) apply(cmds ...core.Command) []core.Result {
	w.t.Helper()
	a, err := w.s.Apply(core.Entry{Index: w.s.Index() + 1, Term: 3, Header: core.Header{Clock: w.clock}, Commands: cmds})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Results
}

func (w *service) open(id core.SessionID) {
	w.t.Helper()
	w.apply(core.Open{ID: id, SecretHash: [32]byte{byte(id), byte(id >> 8), byte(id >> 16), 9}, TTL: 15 * time.Second, Label: fmt.Sprintf("session %d", id), Host: "here"})
}

// acquire asks for a lock on the session's next request.
func (w *service) acquire(c core.Acquire) core.Result {
	w.t.Helper()
	w.next[c.Session]++
	c.Request = core.Request{Lane: uint32(w.next[c.Session] % 50), N: w.next[c.Session]/50 + 1}
	return w.apply(c)[0]
}

// everyKind is a state with an object of every kind.
func everyKind(t testing.TB) *service {
	w := newService(t)
	for id := core.SessionID(1); id <= 6; id++ {
		w.open(id)
	}
	w.acquire(core.Acquire{Session: 1, Lock: "exclusive", Value: []byte("with the grant"), LockDelay: 30 * time.Second})
	w.acquire(core.Acquire{Session: 2, Lock: "exclusive", Value: []byte("waits")})
	w.acquire(core.Acquire{Session: 1, Lock: "shared", Shared: true})
	w.acquire(core.Acquire{Session: 2, Lock: "shared", Shared: true})
	for id := core.SessionID(1); id <= 4; id++ {
		w.acquire(core.Acquire{Session: id, Lock: "permits", Limit: 3, MaxHold: time.Hour})
	}
	w.apply(core.Put{Lock: "kept", Value: []byte("stays")}, core.Put{Lock: "empty", Value: []byte{}})
	w.next[3]++
	w.apply(core.Put{Session: 3, Request: core.Request{Lane: 90, N: 1}, Lock: "presence", Value: []byte("goes"), Bind: true})
	w.clock = core.Clock(5 * time.Second)
	once := w.acquire(core.Acquire{Session: 4, Lock: "once", OncePer: time.Hour})
	w.apply(core.Release{Session: 4, Grant: once.Grant.Number})
	lost := w.acquire(core.Acquire{Session: 5, Lock: "delayed", LockDelay: time.Minute})
	w.apply(core.Revoke{Lock: "delayed", Grant: lost.Grant.Number, Now: true, Cause: core.ByOperator, By: "ann"})
	marked := w.acquire(core.Acquire{Session: 6, Lock: "marked"})
	w.apply(core.Revoke{Lock: "marked", Grant: marked.Grant.Number, Cause: core.ByMaxHold})
	w.apply(core.Suspect{Since: core.Clock(time.Second), Sessions: []core.SessionID{6}})
	w.acquire(core.Acquire{Session: 6, Lock: "exclusive", Try: true})
	w.apply(core.Audit{AuditCall: core.AuditCall{Call: "revoke", By: "ann", Outcome: core.AuditDone, Count: 1}})
	w.apply(core.Members{Members: []core.Member{{ID: 1, Name: "one"}, {ID: 4, Name: "four", Learner: true}}, Removed: []uint64{2, 3}})
	return w
}

// churn applies random commands.
func (w *service) churn(r *rand.Rand, n int) {
	w.t.Helper()
	for range n {
		id := core.SessionID(r.IntN(20) + 1)
		lock := fmt.Sprintf("l/%d", r.IntN(30))
		w.clock += core.Clock(r.IntN(int(time.Second)))
		if !w.s.HasSession(id) {
			w.next[id] = 0
			w.open(id)
			continue
		}
		switch r.IntN(8) {
		case 0, 1, 2:
			w.acquire(core.Acquire{Session: id, Lock: lock, Shared: r.IntN(3) == 0, Value: []byte(lock), LockDelay: time.Duration(r.IntN(2)) * time.Minute, MaxHold: time.Duration(r.IntN(2)) * time.Hour})
		case 3:
			w.acquire(core.Acquire{Session: id, Lock: "p/" + lock, Limit: 4, OncePer: time.Duration(r.IntN(2)) * time.Minute})
		case 4:
			w.apply(core.Put{Lock: "v/" + lock, Value: []byte(lock)})
		case 5:
			if v, ok := w.s.Session(id); ok && len(v.Grants) > 0 {
				w.apply(core.Release{Session: id, Grant: v.Grants[0].Number})
			}
		case 6:
			if v, ok := w.s.Session(id); ok && len(v.Grants) > 0 {
				g := v.Grants[r.IntN(len(v.Grants))]
				w.apply(core.Revoke{Lock: g.Lock, Grant: g.Number, Now: r.IntN(2) == 0, Cause: core.ByOperator, By: "ann"})
			}
		case 7:
			if r.IntN(10) == 0 {
				w.apply(core.End{ID: id, Operator: true, By: "ann"})
			}
		}
	}
}
