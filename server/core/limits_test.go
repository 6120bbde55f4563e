package core

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestValidateLockName(t *testing.T) {
	for _, name := range []string{"a", "a/b", "/", "..", "a b", "é", "日本", strings.Repeat("x", 512), "%", "'\"", "\u00a0"} {
		if err := ValidateLockName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"": "1–512", strings.Repeat("x", 513): "1–512", "\xff": "UTF-8", "a\x00": "control", "a\n": "control",
		"\u0085": "control", "\u007f": "control", "e\u0301": "normal form C",
		"a\u200bb": "U+200B", "\u2028": "U+2028", "a\u2029": "U+2029", "safe\u202etxt": "U+202E", "\ufeffa": "U+FEFF", "a\u00adb": "U+00AD",
		"\u2066a\u2069": "U+2066", "a\u200d": "U+200D", "a\u2060": "U+2060", "\U000e0041": "U+E0041", "a\ufe0f": "U+FE0F", "\u3164": "U+3164", "\u034f": "U+034F",
	} {
		if err := ValidateLockName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want an error with %q", name, err, want)
		}
	}
}

// TestBadFields: each refusal names what is allowed, and nothing changes but
// the lane, which remembers it.
func TestBadFields(t *testing.T) {
	s := testState()
	do(t, s, "open 1")
	long := strings.Repeat("x", 513)
	for i, c := range []Command{
		Acquire{Lock: ""}, Acquire{Lock: long}, Acquire{Lock: "a\x01"}, Acquire{Lock: "\xff"},
		Acquire{Lock: "a", Value: make([]byte, MaxValue+1)}, Acquire{Lock: "a", Limit: MaxPermits + 1},
		Acquire{Lock: "a", Limit: 2, Shared: true}, Acquire{Lock: "a", LockDelay: -1}, Acquire{Lock: "a", MaxHold: MaxPeriod + 1},
		Acquire{Lock: "a", OncePer: math.MinInt64}, Acquire{Lock: "a", RetryFailed: true},
		Put{Lock: ""}, Put{Lock: "a", Value: make([]byte, MaxValue+1)}, Delete{Lock: long},
		Put{Lock: "a", Bind: true}, Put{Lock: long, Value: []byte("x")}, Delete{Lock: ""},
		Open{ID: 2, TTL: MinTTL}, Open{ID: 2, SecretHash: testSecret("x"), TTL: MinTTL, Host: "\x7f"},
		Open{ID: 2, SecretHash: testSecret("x"), TTL: MinTTL, Label: strings.Repeat("l", 257)},
		End{ID: 1, Operator: true, By: "\xff"}, Revoke{Lock: "", Grant: 1, Cause: ByOperator}, Revoke{Lock: "a", Grant: 1},
		Revoke{Lock: "a", Grant: 1, Cause: 3}, Revoke{Lock: "a", Grant: 1, Cause: ByOperator, By: long},
		Members{Members: []Member{{ID: 1, Name: long}}},
	} {
		switch c2 := c.(type) {
		case Acquire:
			c2.Session, c2.Request = 1, Request{Lane: 0, N: uint64(i + 1)}
			c = c2
		case Put:
			if !c2.Bind && len(c2.Lock) != 513 {
				c2.Session, c2.Request = 1, Request{Lane: 0, N: uint64(i + 1)}
				c = c2
			}
		}
		for range 2 {
			a := mustApply(t, s, 0, c)
			if r := a.Results[0]; r.Status != Refused || r.Refusal.Reason != Malformed || !strings.ContainsAny(r.Refusal.Msg, ":") {
				t.Errorf("%.100s: %s", fmt.Sprintf("%#v", c), formatResult(r))
			}
			if len(a.Events)+len(a.Notices) != 0 || s.LockCount() != 0 || s.SessionCount() != 1 {
				t.Errorf("%.100s: changed something", fmt.Sprintf("%#v", c))
			}
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	reload(t, s)
}

// TestCounterFull is A2: grants are refused by name, also those that wait; a
// revoke still works, without a number; a raised epoch begins anew.
func TestCounterFull(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "open 2", "open 3", "open 4")
	s.counter = MaxCounter - 1
	if r := do(t, s, "acquire 1 0/1 a"); r.Status != Granted || r.Grant.Number != MaxCounter {
		t.Fatal(formatResult(r))
	}
	for _, line := range []string{"acquire 2 0/1 a", "acquire 2 1/1 b", "acquire 2 2/1 a try"} {
		if r := do(t, s, line); r.Status != Refused || r.Refusal.Reason != CounterFull {
			t.Errorf("%s: %s", line, formatResult(r))
		}
	}
	// Waiters that were there before it was full.
	s.counter--
	mustApply(t, s, 0, Acquire{Session: 2, Request: Request{0, 2}, Lock: "a"}, Acquire{Session: 3, Request: Request{0, 1}, Lock: "a"})
	s.counter++
	if r := do(t, s, fmt.Sprintf("revoke a #%d by=ann", uint64(MaxCounter))); r.Status != Done || r.Number != 0 {
		t.Fatal(formatResult(r))
	}
	a := doAll(t, s, fmt.Sprintf("revoke a #%d free", uint64(MaxCounter)))
	if len(a.Notices) != 2 || a.Notices[0].Result.Refusal.Reason != CounterFull || a.Notices[1].Result.Refusal.Reason != CounterFull {
		t.Fatal(formatApplied([]string{"revoke"}, a))
	}
	if s.LockCount() != 0 {
		t.Error("something is left of the lock")
	}
	s = reload(t, s)
	do(t, s, "raise-epoch 1 incarnation=9", "open 1")
	if r := do(t, s, "acquire 1 0/1 a"); r.Status != Granted || r.Grant.Number != 1<<48+1 {
		t.Fatal(formatResult(r))
	}
	s.epoch, s.counter = MaxEpoch, MaxCounter-1
	if r := do(t, s, "acquire 1 0/2 b"); r.Status != Granted || r.Grant.Number != 1<<63-1 {
		t.Fatal(formatResult(r))
	}
}

// TestSessionIsFull: what a session holds, waits for and binds is limited
// together, and so are its lanes; its end removes all of it in one command.
func TestSessionIsFull(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "open 2", "acquire 2 0/1 busy")
	third := MaxPerSession / 3
	for i := range MaxPerSession {
		lock := fmt.Sprint("l", i)
		var c Command
		switch {
		case i < third:
			c = Acquire{Session: 1, Request: Request{uint32(i), 1}, Lock: lock}
		case i < 2*third:
			c = Put{Session: 1, Request: Request{uint32(i), 1}, Lock: lock, Bind: true}
		default:
			c = Acquire{Session: 1, Request: Request{uint32(i), 1}, Lock: "busy"}
		}
		if r := mustApply(t, s, 0, c).Results[0]; r.Status == Refused {
			t.Fatal(formatResult(r))
		}
	}
	for line, want := range map[string]Reason{
		"acquire 1 0/2 free":            TooMany,
		"acquire 1 1/2 busy":            TooMany,
		"acquire 1 2/2 busy try":        Busy,
		"put by=1/3/2 new value=x bind": TooMany,
		"acquire 1 77777/1 free":        TooMany, // another lane
		"put by=1/77777/1 plain":        TooMany,
	} {
		if r := quick(t, s, line); r.Status != Refused || r.Refusal.Reason != want {
			t.Errorf("%s: %s", line, formatResult(r))
		}
	}
	for line, want := range map[string]Status{
		"put by=1/4/2 l3333 value=x bind": Done, // bound by it already
		"put by=1/5/2 plain":              Done,
		"cancel 1 77777/1":                Cancelled,
		"release 1 #2":                    Done,
		"acquire 1 6/2 again":             Granted,
	} {
		if r := quick(t, s, line); r.Status != want && line != "acquire 1 6/2 again" {
			t.Errorf("%s: %s", line, formatResult(r))
		}
	}
	s = reload(t, s)
	a := doAll(t, s, "end 1")
	if len(a.Notices) != MaxPerSession-2*third || s.LockCount() != 2 || s.SessionCount() != 1 {
		t.Errorf("%d notices, %d locks left", len(a.Notices), s.LockCount())
	}
}

// TestQueueIsFull: the waiters of one lock are limited.
func TestQueueIsFull(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "open 2", "acquire 1 0/1 l", "acquire 2 0/1 l", "acquire 2 1/1 l")
	l := *s.mustLock("l")
	l.waiters = MaxWaiters - 1
	s.putLock(&l)
	if r := quick(t, s, "acquire 2 2/1 l"); r.Status != Waiting || r.Place != MaxWaiters {
		t.Error(formatResult(r))
	}
	if r := quick(t, s, "acquire 2 3/1 l"); r.Status != Refused || r.Refusal.Reason != TooMany || r.Refusal.Waiters != MaxWaiters {
		t.Error(formatResult(r))
	}
	l = *s.mustLock("l")
	l.waiters = 3
	s.putLock(&l)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestAViewIsBounded: however many hold a lock or wait for it, a look at it, and
// a waiter's question for its place, cost the same.
func TestAViewIsBounded(t *testing.T) {
	const holders = 2*MaxHoldersShown + 7
	s := testState()
	cmds := []Command{
		Open{ID: 1, SecretHash: [32]byte{1}, TTL: MinTTL},
		Open{ID: 2, SecretHash: [32]byte{2}, TTL: MinTTL},
	}
	for n := range uint32(holders) {
		cmds = append(cmds, Acquire{Session: 1, Request: Request{n, 1}, Lock: "l", Shared: true})
	}
	for n := range uint32(maxPlaceAnswer + 1) {
		cmds = append(cmds, Acquire{Session: 2, Request: Request{n, 1}, Lock: "l"})
	}
	mustApply(t, s, 0, cmds...)
	if v, _ := s.Lock("l", 3); v.HolderCount != holders || len(v.Holders) != MaxHoldersShown || len(v.Queue) != 3 {
		t.Errorf("%d of %d holders, %d places", len(v.Holders), v.HolderCount, len(v.Queue))
	}
	if v := s.Locks("", "", 9); len(v) != 1 || v[0].HolderCount != holders || len(v[0].Holders) != MaxHoldersListed {
		t.Errorf("%d of %d holders in a list", len(v[0].Holders), v[0].HolderCount)
	}
	last := mustApply(t, s, 0, cmds[len(cmds)-2], cmds[len(cmds)-1]).Results
	if last[0].Place != maxPlaceAnswer || last[1].Status != Waiting || last[1].Place != 0 {
		t.Errorf("places asked for again: %+v", last)
	}
}

// TestLongQueueIsClosed: a closing refuses all that wait in one command, whose
// events are not split, though they are more than the ring keeps; and places
// are counted as far as the budget goes.
func TestLongQueueIsClosed(t *testing.T) {
	const waiters = EventsKept + 500
	s := testState()
	quick(t, s, "open 1000", "acquire 1000 0/1 job once=1m retry-failed")
	for i := range 3 {
		id := SessionID(i + 1)
		cmds := []Command{Open{ID: id, SecretHash: [32]byte{1, byte(id)}, TTL: MinTTL}}
		for n := range uint32(waiters / 3) {
			cmds = append(cmds, Acquire{Session: id, Request: Request{n, 1}, Lock: "job"})
		}
		for n, r := range mustApply(t, s, 0, cmds...).Results[1:] {
			if r.Status != Waiting || r.Place != i*waiters/3+n+1 {
				t.Fatalf("waiter %d: %s", n+1, formatResult(r))
			}
		}
	}
	if r := quick(t, s, "acquire 1 0/1 job"); r.Status != Waiting || r.Place != 1 {
		t.Error(formatResult(r))
	}
	if r := quick(t, s, fmt.Sprintf("acquire 3 %d/1 job", waiters/3-1)); r.Status != Waiting || r.Place != 0 {
		t.Error("a place beyond the budget is counted:", formatResult(r))
	}
	before := s.Revision()
	a := doAll(t, s, "release 1000 #1")
	if len(a.Notices) != waiters {
		t.Fatalf("%d notices", len(a.Notices))
	}
	events, ok := s.EventsAfter(before, 10)
	if !ok || len(events) != waiters+2 {
		t.Errorf("%d events, %v", len(events), ok)
	}
	if _, ok := s.EventsAfter(before-1, 10); ok {
		t.Error("a revision before the huge one should be gone")
	}
}

func TestTombstonesAreLimited(t *testing.T) {
	s := testState()
	do(t, s, "open 1")
	for i := range MaxTombstones + 5 {
		r := mustApply(t, s, 0, Acquire{Session: 1, Request: Request{0, uint64(i + 1)}, Lock: "a"}).Results[0]
		mustApply(t, s, 0, Revoke{Lock: "a", Grant: r.Grant.Number, Now: true, Cause: ByOperator})
	}
	v, _ := s.Session(1)
	if len(v.Tombstones) != MaxTombstones || v.Tombstones[0].Grant != 11 {
		t.Errorf("%d tombstones, the first of grant %d", len(v.Tombstones), v.Tombstones[0].Grant)
	}
	reload(t, s)
}

// TestEventsAfter: a watcher resumes without a gap, or is told to reload.
func TestEventsAfter(t *testing.T) {
	s := testState()
	if events, ok := s.EventsAfter(0, 5); !ok || len(events) != 0 {
		t.Errorf("nothing happened: %v %v", events, ok)
	}
	if _, ok := s.EventsAfter(1, 5); ok {
		t.Error("a revision of another run")
	}
	do(t, s, "open 1")
	seen, all := Revision(0), 0
	for i := range 8000 {
		lock := fmt.Sprint(i % 10)
		r := mustApply(t, s, 0, Acquire{Session: 1, Request: Request{0, uint64(i + 1)}, Lock: lock, Value: []byte("v")}).Results[0]
		mustApply(t, s, 0, Release{Session: 1, Grant: r.Grant.Number}) // two events
		if i%100 != 0 {
			continue
		}
		for {
			events, ok := s.EventsAfter(seen, 7)
			if !ok {
				t.Fatal("gone too early")
			}
			if len(events) == 0 {
				break
			}
			if len(events) > 7 {
				t.Fatalf("%d events", len(events))
			}
			for _, e := range events {
				if e.Revision != seen && e.Revision != seen+1 {
					t.Fatalf("revision %d after %d", e.Revision, seen)
				}
				seen, all = e.Revision, all+1
			}
		}
	}
	if all != 1+3*7900+3 {
		t.Errorf("%d events seen", all)
	}
	for i := range 40 {
		do(t, s, fmt.Sprintf("put p value=%d", i), "acquire 1 1/"+fmt.Sprint(i+1)+" q") // checks that no revision is split
		if i%3 == 0 {
			do(t, s, fmt.Sprintf("cancel 1 1/%d", i+1))
		}
	}
	s = reload(t, s)
	oldest := s.Revision()
	for all := 0; all < EventsKept; oldest-- {
		events, _ := s.EventsAfter(oldest-1, 1)
		all += len(events)
	}
	oldest++
	if events, ok := s.EventsAfter(oldest-1, 1); !ok || events[0].Revision != oldest || len(events) > 2 {
		t.Errorf("oldest: %v %v", events, ok)
	}
	if _, ok := s.EventsAfter(oldest-4, 1); ok {
		t.Error("older ones should be gone")
	}
	if events, ok := s.EventsAfter(s.Revision(), 1); !ok || len(events) != 0 {
		t.Errorf("from now on: %v %v", events, ok)
	}
}

// TestClockCannotOverflow: an end beyond the last clock is the last clock.
func TestClockCannotOverflow(t *testing.T) {
	s := testState()
	a := mustApply(t, s, math.MaxInt64-5, Open{ID: 1, SecretHash: testSecret("1"), TTL: MinTTL},
		Acquire{Session: 1, Request: Request{0, 1}, Lock: "a", MaxHold: time.Hour, OncePer: time.Hour, LockDelay: time.Hour},
		End{ID: 1, Operator: true})
	if g := a.Results[1].Grant; g.EndsAt != math.MaxInt64 {
		t.Errorf("ends at %d", g.EndsAt)
	}
	reload(t, s)
}

func TestVersionRises(t *testing.T) {
	s := testState()
	s.supports = 3
	if do(t, s, "version 3"); s.Version() != 3 {
		t.Fatalf("version %d", s.Version())
	}
	if r := do(t, s, "version 2"); r.Status != Refused || r.Refusal.Reason != Conflict {
		t.Error(formatResult(r))
	}
	var halt *HaltError
	_, err := s.Apply(Entry{Index: 99, Commands: []Command{SetVersion{Version: 4}}})
	if !errors.As(err, &halt) || !errors.Is(err, ErrNewerFormat) || halt.Index != 99 {
		t.Error(err)
	}
}

// TestPanicHalts: a broken state is an error of Apply, never a panic.
func TestPanicHalts(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "acquire 1 0/1 a")
	s.sessions.Clear(false) // a defect
	if _, err := s.Apply(Entry{Index: 9, Commands: []Command{Release{Session: 1, Grant: 1}}}); !errors.Is(err, ErrInvariant) {
		t.Errorf("broken invariant: %v", err)
	}
	if err := s.Check(); !errors.Is(err, ErrInvariant) {
		t.Errorf("Check: %v", err)
	}
	s.grants = nil
	_, err := s.Apply(Entry{Index: 10, Commands: []Command{Release{Session: 1, Grant: 1}}})
	if halt, ok := errors.AsType[*HaltError](err); !ok || halt.Stack == nil {
		t.Errorf("panic: %v", err)
	}
}

func TestViewsPage(t *testing.T) {
	s := testState()
	for i := range 5 {
		do(t, s, fmt.Sprintf("open %d", i*2+1), fmt.Sprintf("put x/%d value=v", i), fmt.Sprintf("put y%d value=v", i))
	}
	var ids []SessionID
	for after := SessionID(0); ; {
		page := s.Sessions(after, 2)
		if len(page) == 0 {
			break
		}
		for _, v := range page {
			ids, after = append(ids, v.ID), v.ID
		}
	}
	if fmt.Sprint(ids) != "[1 3 5 7 9]" {
		t.Error(ids)
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          string
	}{
		{"", "", 3, "[x/0 x/1 x/2]"}, {"", "x/2", 3, "[x/3 x/4 y0]"}, {"x/", "", 99, "[x/0 x/1 x/2 x/3 x/4]"},
		{"x/", "x/3", 99, "[x/4]"}, {"x/", "a", 1, "[x/0]"}, {"x/", "z", 9, "[]"}, {"z", "", 9, "[]"}, {"", "", 0, "[]"}, {"y0", "", 9, "[y0]"},
	} {
		names := []string{}
		for _, v := range s.Locks(c.prefix, c.after, c.limit) {
			names = append(names, v.Name)
		}
		if fmt.Sprint(names) != c.want {
			t.Errorf("%+v: %v", c, names)
		}
	}
	hash, ok := s.SessionSecretHash(5)
	if v, found := s.SessionBySecret(testSecret("5")); !ok || !found || v.ID != 5 || hash != v.SecretHash || !s.HasSession(5) || s.HasSession(6) {
		t.Error("session 5 is not found")
	}
}
