package core

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Random command sequences, core beside the model. rapid shrinks a failure,
// prints it, and keeps it under testdata/rapid, from where it is played first
// the next time; -rapid.checks=N asks for more.

// world draws commands that are likely to meet each other.
type world struct {
	s     *State
	m     *model
	clock Clock
	sent  []Command // acquires, puts and deletes: copies of them come again
}

var (
	drawSession = rapid.SampledFrom([]SessionID{1, 2, 3, 4})
	drawLock    = rapid.SampledFrom([]string{"a", "a/b", "b"})
	drawSpan    = rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second, 100 * time.Second})
)

// request draws mostly the next request of a lane, sometimes the last one or
// an older one again, sometimes nonsense.
func (w *world) request(t *rapid.T, id SessionID) Request {
	r := Request{Lane: rapid.Uint32Range(0, 2).Draw(t, "lane")}
	last, _, _ := w.s.Lane(id, r.Lane)
	step := rapid.SampledFrom([]int{1, 1, 1, 1, 1, 0, 0, -1, 2}).Draw(t, "step")
	r.N = uint64(max(0, int(last.N)+step))
	return r
}

// grantOf draws the number of a held grant, or any near the counter.
func (w *world) grantOf(t *rapid.T) (uint64, string, SessionID) {
	var all []Grant
	for _, v := range w.s.Sessions(0, math.MaxInt) {
		all = append(all, v.Grants...)
	}
	if len(all) > 0 && rapid.IntRange(0, 9).Draw(t, "held") > 0 {
		g := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
		return g.Number, g.Lock, g.Session
	}
	last := w.s.LastNumber()
	return last + 2 - min(last+2, rapid.Uint64Range(0, 9).Draw(t, "back")), drawLock.Draw(t, "lock"), drawSession.Draw(t, "session")
}

// currentToken draws 0, a current token of the lock, or an old one.
func (w *world) currentToken(t *rapid.T, lock string) uint64 {
	if rapid.IntRange(0, 2).Draw(t, "with token") > 0 {
		return 0
	}
	v, _ := w.s.Lock(lock, 0)
	if len(v.Holders) > 0 && rapid.IntRange(0, 3).Draw(t, "current") > 0 {
		return v.Holders[rapid.IntRange(0, len(v.Holders)-1).Draw(t, "whose")].Generation
	}
	return rapid.Uint64Range(1, w.s.LastNumber()+1).Draw(t, "token")
}

func (w *world) revision(t *rapid.T, lock string) Revision {
	v, _ := w.s.Lock(lock, 0)
	return Revision(max(0, int(v.Modified)+rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "off")))
}

func (w *world) acquire(t *rapid.T) Command {
	id := drawSession.Draw(t, "session")
	c := Acquire{
		Session: id, Request: w.request(t, id), Lock: drawLock.Draw(t, "lock"),
		Shared: rapid.IntRange(0, 2).Draw(t, "shared") == 0, Try: rapid.IntRange(0, 4).Draw(t, "try") == 0,
		LockDelay: drawSpan.Draw(t, "delay"), OncePer: drawSpan.Draw(t, "once"), MaxHold: drawSpan.Draw(t, "max"),
	}
	if c.Lock == "b" && rapid.IntRange(0, 9).Draw(t, "permits") > 0 {
		c.Shared, c.Limit = false, 4
	}
	c.RetryFailed = rapid.Bool().Draw(t, "retry")
	if c.OncePer == 0 && rapid.IntRange(0, 9).Draw(t, "sane") > 0 {
		c.RetryFailed = false
	}
	if rapid.IntRange(0, 3).Draw(t, "valued") == 0 {
		c.Value = []byte{byte(c.Request.N)}
	}
	return c
}

func (w *world) put(t *rapid.T) Command {
	c := Put{Lock: drawLock.Draw(t, "lock"), Value: rapid.SampledFrom([][]byte{nil, {}, {1}, {2, 3}}).Draw(t, "value")}
	c.Session, c.Request = w.caller(t)
	c.Conditional = rapid.Bool().Draw(t, "conditional")
	c.IfRevision = w.revision(t, c.Lock)
	c.Bind = rapid.IntRange(0, 2).Draw(t, "bind") == 0
	c.Token = w.currentToken(t, c.Lock)
	return c
}

func (w *world) delete(t *rapid.T) Command {
	c := Delete{Lock: drawLock.Draw(t, "lock")}
	c.Session, c.Request = w.caller(t)
	c.Conditional = rapid.Bool().Draw(t, "conditional")
	c.IfRevision = w.revision(t, c.Lock)
	c.Token = w.currentToken(t, c.Lock)
	return c
}

func (w *world) caller(t *rapid.T) (SessionID, Request) {
	if rapid.Bool().Draw(t, "nobody") {
		return 0, Request{}
	}
	id := drawSession.Draw(t, "session")
	return id, w.request(t, id)
}

func (w *world) silence(t *rapid.T) Command {
	id := drawSession.Draw(t, "session")
	since := w.clock
	if x, ok := w.s.SessionTiming(id); ok && x.Suspected && rapid.IntRange(0, 3).Draw(t, "same") > 0 {
		since = x.Since
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return Clear{Sessions: []SessionID{id, id + 1}}
	case 1:
		return Expire{ID: id, Since: since}
	}
	return Suspect{Since: since, Sessions: []SessionID{id + 1, id}}
}

func (w *world) reopen(t *rapid.T) Command {
	name := drawLock.Draw(t, "lock")
	c, _ := w.s.ClosingTiming(name)
	return Reopen{Lock: name, Closing: c.Closing + Revision(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "off"))}
}

func (w *world) revoke(t *rapid.T) Command {
	number, lock, _ := w.grantOf(t)
	c := Revoke{Lock: lock, Grant: number, Cause: rapid.SampledFrom([]RevokeCause{ByOperator, ByMaxHold}).Draw(t, "cause"), By: "ann"}
	switch rapid.IntRange(0, 3).Draw(t, "how") {
	case 0:
		c.Now = true
	case 1:
		c.Free = true
	}
	return c
}

// command draws one command, or sends an earlier one again.
func (w *world) command(t *rapid.T) Command {
	if n := len(w.sent); n > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
		return w.sent[n-1-rapid.IntRange(0, min(n-1, 9)).Draw(t, "which")]
	}
	c := w.fresh(t)
	switch c.(type) {
	case Acquire, Put, Delete:
		w.sent = append(w.sent, c)
	}
	return c
}

// fresh draws a command. Acquires, releases and their kin are likely.
func (w *world) fresh(t *rapid.T) Command {
	switch n := rapid.IntRange(0, 99).Draw(t, "kind"); {
	case n < 12:
		id := drawSession.Draw(t, "session")
		return Open{ID: id, SecretHash: [32]byte{1, byte(id), byte(rapid.IntRange(0, 1).Draw(t, "secret"))}, TTL: 10 * time.Second, Label: fmt.Sprint("s", id)}
	case n < 45:
		return w.acquire(t)
	case n < 62:
		number, _, id := w.grantOf(t)
		return Release{Session: id, Grant: number, Failed: rapid.Bool().Draw(t, "failed")}
	case n < 70:
		id := drawSession.Draw(t, "session")
		return Cancel{Session: id, Request: w.request(t, id)}
	case n < 77:
		return w.revoke(t)
	case n < 82:
		return w.reopen(t)
	case n < 87:
		return w.put(t)
	case n < 90:
		return w.delete(t)
	case n < 96:
		return w.silence(t)
	case n < 97:
		return End{ID: drawSession.Draw(t, "session"), Operator: rapid.Bool().Draw(t, "operator"), By: "ann"}
	case n < 99:
		return RaiseEpoch{Epoch: w.s.Epoch() + uint16(rapid.IntRange(0, 1).Draw(t, "up")), Incarnation: rapid.Uint64Range(0, 9).Draw(t, "incarnation")}
	}
	return Tick{}
}

// TestModel compares core with the model, command by command: results,
// notices, events and everything that can be seen; and checks the invariants,
// and that grant numbers rise over the whole lineage (invariant 1), also when
// the state is replaced by what its encoding gives.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{s: testState(), m: newModel(7)}
		highest := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			w.clock += Clock(rapid.SampledFrom([]time.Duration{0, time.Second, 50 * time.Second}).Draw(t, "pause"))
			w.m.clock = w.clock
			a := w.step(t, w.command(t))
			for _, e := range a.Events {
				n := max(e.Burnt, e.Grant)
				switch e.Kind {
				case EventGranted, EventRevoked:
					if n <= highest {
						t.Fatalf("invariant 1: number %d after %d", n, highest)
					}
					highest = n
				case EventReleased:
					highest = max(highest, e.Burnt)
				}
			}
			if rapid.IntRange(0, 19).Draw(t, "reload") == 0 {
				w.s = reload(t, w.s)
			}
		}
	})
}

// step applies a command to both.
func (w *world) step(t *rapid.T, c Command) Applied {
	before := w.s.Revision()
	a, err := w.s.Apply(Entry{Index: w.s.Index() + 1, Term: 1, Header: Header{Clock: w.clock}, Commands: []Command{c}})
	if err != nil {
		t.Fatalf("%#v: %v", c, err)
	}
	if err := w.s.Check(); err != nil {
		t.Fatalf("after %#v: %v", c, err)
	}
	r, notices, events := w.m.apply(c)
	same(t, c, "result", stripped(a.Results[0]), r)
	same(t, c, "events", a.Events, events)
	for i := range a.Notices {
		a.Notices[i].Result = stripped(a.Notices[i].Result)
	}
	same(t, c, "notices", a.Notices, notices)
	_, jumps := c.(RaiseEpoch)
	if rose := w.s.Revision() - before; (rose > 0) != (len(events) > 0) || rose > 1 && !jumps {
		t.Fatalf("%#v: revision rose by %d with %d events", c, rose, len(events))
	}
	w.compare(t, c)
	return a
}

func same(t *rapid.T, c Command, what string, got, want any) {
	t.Helper()
	if reflect.ValueOf(got).Kind() == reflect.Slice && reflect.ValueOf(got).Len()+reflect.ValueOf(want).Len() == 0 {
		return
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%T %+v\n%s: got  %s\nwant %s", c, c, what, show(got), show(want))
	}
}

func show(v any) string {
	switch v := v.(type) {
	case Result:
		return formatResult(v)
	case []Event:
		s := ""
		for _, e := range v {
			s += "\n" + formatEvent(e)
		}
		return s
	}
	return fmt.Sprintf("%+v", v)
}

// stripped is r as the model says it.
func stripped(r Result) Result {
	if r.Refusal != nil {
		f := *r.Refusal
		f.Msg = ""
		r.Refusal = &f
	}
	return r
}

// compare looks at all that can be seen.
func (w *world) compare(t *rapid.T, c Command) {
	names := w.m.names()
	if w.s.LockCount() != len(names) || w.s.SessionCount() != len(w.m.sessions) || w.s.LastNumber() != w.m.last() {
		t.Fatalf("%#v: %d locks, %d sessions, last number %d; want %v, %d, %d", c, w.s.LockCount(), w.s.SessionCount(), w.s.LastNumber(), names, len(w.m.sessions), w.m.last())
	}
	for _, name := range names {
		v, _ := w.s.Lock(name, math.MaxInt)
		same(t, c, "lock "+name, v, w.m.lockView(name))
	}
	for id := range w.m.sessions {
		v, _ := w.s.Session(id)
		same(t, c, fmt.Sprint("session ", id), v, w.m.sessionView(id))
	}
}
