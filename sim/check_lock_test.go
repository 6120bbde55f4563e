package sim

import (
	"strings"
	"testing"
	"time"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// A script is a log that was written by hand, as a first member would apply it.
type script struct {
	w      *world
	index  uint64
	clock  core.Clock
	events core.Revision
}

// newScript has the locks "plain", "shared" (readers), "two" (two permits),
// "delay" (a second of lock-delay), "once" (a second, once-per), "retry" (the
// same, with retry-failed) and "most" (a maximum hold of a second).
func newScript() *script {
	w := newWorld(Setup{Seed: 1, TTL: time.Second, Margin: 100 * time.Millisecond, Tick: 100 * time.Millisecond}, nil)
	w.locks = append(w.locks, []*lockPlan{
		{name: "plain"}, {name: "shared", shares: true}, {name: "two", limit: 2}, {name: "delay", delay: time.Second},
		{name: "once", oncePer: time.Second}, {name: "retry", oncePer: time.Second, retryFailed: true}, {name: "most", maxHold: time.Second},
	}...)
	return &script{w: w}
}

// An act is one command, with what it did.
type act struct {
	command core.Command
	result  core.Result
	notices []core.Notice
	events  []core.Event
}

// entry applies acts as one entry, after a while.
func (s *script) entry(after time.Duration, acts ...act) *script {
	s.index++
	s.w.now += after
	s.clock += core.Clock(after)
	a := replica.Applied{Entry: core.Entry{Index: s.index, Term: 1}}
	for _, x := range acts {
		a.Entry.Commands = append(a.Entry.Commands, x.command)
		a.Did.Results = append(a.Did.Results, x.result)
		a.Did.Notices = append(a.Did.Notices, x.notices...)
		if len(x.events) > 0 {
			s.events++
		}
		for _, e := range x.events {
			e.Revision, e.Clock = s.events, s.clock
			a.Did.Events = append(a.Did.Events, e)
		}
	}
	if !s.w.stopped {
		s.w.judge.audit.look(a, s.clock)
	}
	return s
}

// open opens sessions.
func (s *script) open(ids ...core.SessionID) *script {
	for _, id := range ids {
		s.entry(0, act{core.Open{ID: id}, core.Result{Status: core.Done, Session: id}, nil, []core.Event{{Kind: core.EventOpened, Session: id}}})
	}
	return s
}

func req(n uint64) core.Request { return core.Request{N: n} }

// got is an acquire that is granted at once.
func got(id core.SessionID, n uint64, lock string, number uint64, change ...func(*core.Event)) act {
	e := core.Event{Kind: core.EventGranted, Session: id, Lock: lock, Grant: number, Token: number}
	for _, c := range change {
		c(&e)
	}
	g := &core.Grant{Number: number, Session: id, Lock: lock}
	return act{core.Acquire{Session: id, Request: req(n), Lock: lock, Shared: e.Shared}, core.Result{Status: core.Granted, Grant: g}, nil, []core.Event{e}}
}

func reader(token uint64) func(*core.Event) {
	return func(e *core.Event) { e.Shared, e.Token = true, token }
}

func inSlot(n uint32) func(*core.Event) { return func(e *core.Event) { e.Slot = n } }

// waits is an acquire that joins the queue.
func waits(id core.SessionID, n uint64, lock string, shared bool) act {
	return act{core.Acquire{Session: id, Request: req(n), Lock: lock, Shared: shared}, core.Result{Status: core.Waiting}, nil,
		[]core.Event{{Kind: core.EventQueued, Session: id, Lock: lock, Shared: shared}}}
}

// gives is a release; next is what it led to.
func gives(id core.SessionID, lock string, number uint64, next ...func(*act)) act {
	a := act{core.Release{Session: id, Grant: number}, core.Result{Status: core.Done}, nil,
		[]core.Event{{Kind: core.EventReleased, Cause: core.CauseReleased, Session: id, Lock: lock, Grant: number}}}
	for _, n := range next {
		n(&a)
	}
	return a
}

// then grants to a request that waited.
func then(id core.SessionID, n uint64, lock string, number uint64, change ...func(*core.Event)) func(*act) {
	return func(a *act) {
		e := got(id, n, lock, number, change...).events[0]
		a.events = append(a.events, e)
		a.notices = append(a.notices, core.Notice{Session: id, Request: req(n), Result: core.Result{Status: core.Granted, Grant: &core.Grant{Number: number}}})
	}
}

// plus adds an event.
func plus(e core.Event) func(*act) { return func(a *act) { a.events = append(a.events, e) } }

func closed(lock string, cause core.Cause, until time.Duration) core.Event {
	return core.Event{Kind: core.EventClosed, Lock: lock, Cause: cause, OpensAt: core.Clock(until)}
}

// dies is an expiry, with the grants that it ends.
func dies(id core.SessionID, since time.Duration, lock string, grants ...uint64) act {
	a := act{core.Expire{ID: id, Since: core.Clock(since)}, core.Result{Status: core.Done}, nil,
		[]core.Event{{Kind: core.EventEnded, Session: id, Cause: core.CauseExpired}}}
	for _, n := range grants {
		a.events = append(a.events, core.Event{Kind: core.EventReleased, Cause: core.CauseExpired, Session: id, Lock: lock, Grant: n})
	}
	return a
}

func suspect(id core.SessionID, since time.Duration) act {
	return act{core.Suspect{Since: core.Clock(since), Sessions: []core.SessionID{id}}, core.Result{Status: core.Done}, nil, nil}
}

func revoke(lock string, number uint64, c core.Revoke, events ...core.Event) act {
	c.Lock, c.Grant = lock, number
	return act{c, core.Result{Status: core.Done}, nil, events}
}

func marked(id core.SessionID, lock string, number uint64, cause core.Cause) core.Event {
	return core.Event{Kind: core.EventRevoked, Session: id, Lock: lock, Grant: number, Cause: cause, Burnt: number + 100}
}

func freed(id core.SessionID, lock string, number uint64, cause core.Cause) core.Event {
	return core.Event{Kind: core.EventReleased, Session: id, Lock: lock, Grant: number, Cause: cause}
}

func with(a act, events ...core.Event) act {
	a.events = append(a.events, events...)
	return a
}

const second = time.Second

// What is right is accepted.
func TestAuditAccepts(t *testing.T) {
	for name, s := range map[string]*script{
		"a queue": newScript().open(1, 2, 3).entry(0, got(1, 1, "plain", 1)).entry(0, waits(2, 1, "plain", false), waits(3, 1, "plain", false)).
			entry(0, gives(1, "plain", 1, then(2, 1, "plain", 2))).entry(0, gives(2, "plain", 2, then(3, 1, "plain", 3))),
		"a shared run": newScript().open(1, 2, 3).entry(0, got(1, 1, "shared", 1)).entry(0, waits(2, 1, "shared", true), waits(3, 1, "shared", true)).
			entry(0, gives(1, "shared", 1, then(2, 1, "shared", 2, reader(2)), then(3, 1, "shared", 3, reader(2)))),
		"two permits":       newScript().open(1, 2).entry(0, got(1, 1, "two", 1), got(2, 1, "two", 2, inSlot(1))),
		"an expiry":         newScript().open(1).entry(0, got(1, 1, "plain", 1)).entry(second, suspect(1, 0)).entry(0, dies(1, 0, "plain", 1)),
		"a delay":           newScript().open(1).entry(0, got(1, 1, "delay", 1)).entry(second, suspect(1, 0)).entry(0, with(dies(1, 0, "delay", 1), closed("delay", core.CauseLockDelay, 2*second))),
		"once":              newScript().open(1).entry(0, with(got(1, 1, "once", 1), closed("once", core.CauseOncePer, 900*time.Millisecond))),
		"a success closes":  newScript().open(1).entry(0, got(1, 1, "retry", 1)).entry(0, gives(1, "retry", 1, plus(closed("retry", core.CauseOncePer, 900*time.Millisecond)))),
		"a polite revoke":   newScript().open(1).entry(0, got(1, 1, "plain", 1)).entry(0, revoke("plain", 1, core.Revoke{}, marked(1, "plain", 1, core.CauseOperator))).entry(second, revoke("plain", 1, core.Revoke{Free: true}, freed(1, "plain", 1, core.CauseOperator))),
		"a copy":            newScript().open(1).entry(0, got(1, 1, "plain", 1)).entry(0, act{got(1, 1, "plain", 1).command, got(1, 1, "plain", 1).result, nil, nil}),
		"a maximum reached": newScript().open(1).entry(0, got(1, 1, "most", 1)).entry(second, revoke("most", 1, core.Revoke{Cause: core.ByMaxHold}, marked(1, "most", 1, core.CauseMaxHold))),
	} {
		for _, v := range s.w.judge.violations {
			t.Errorf("%s: %s: %s", name, v.Property, v.Why)
		}
	}
}

// What is wrong is objected to, by its property.
func TestAuditObjects(t *testing.T) {
	held := func(lock string) *script { return newScript().open(1, 2, 3).entry(0, got(1, 1, lock, 1)) }
	reads := func() *script { return newScript().open(1, 2, 3).entry(0, got(1, 1, "shared", 1, reader(1))) }
	queue := func() *script {
		return held("plain").entry(0, waits(2, 1, "plain", false), waits(3, 1, "plain", false))
	}
	for name, c := range map[string]struct {
		s    *script
		p    Property
		says string
	}{
		"two holders":             {held("plain").entry(0, got(2, 1, "plain", 2)), OneHolder, "beside 1"},
		"a writer among readers":  {reads().entry(0, got(2, 1, "shared", 2)), OneHolder, "beside 1"},
		"a reader beside one":     {held("shared").entry(0, got(2, 1, "shared", 2, reader(1))), OneHolder, "beside 1"},
		"a token of its own":      {reads().entry(0, got(2, 1, "shared", 2, reader(2))), OneHolder, "A1"},
		"a sealed run":            {reads().entry(0, revoke("shared", 1, core.Revoke{}, marked(1, "shared", 1, core.CauseOperator))).entry(0, got(2, 1, "shared", 2, reader(1))), OneHolder, "B11"},
		"one slot twice":          {held("two").entry(0, got(2, 1, "two", 2)), OneHolder, "slot 0"},
		"a third permit":          {held("two").entry(0, got(2, 1, "two", 2, inSlot(1))).entry(0, got(3, 1, "two", 3, inSlot(2))), OneHolder, "beside 2"},
		"past the queue":          {queue().entry(0, with(gives(1, "plain", 1), got(2, 9, "plain", 2).events...)), OneRequest, "no request"},
		"the last first":          {queue().entry(0, gives(1, "plain", 1, then(3, 1, "plain", 2))), QueueOrder, "not the head"},
		"a reader overtakes":      {reads().entry(0, waits(2, 1, "shared", false)).entry(0, got(3, 1, "shared", 2, reader(1))), QueueOrder, "past 1"},
		"nobody is granted":       {queue().entry(0, gives(1, "plain", 1)), HeadWaits, "has room"},
		"granted to the dead":     {queue().entry(second, suspect(2, 0)).entry(0, with(dies(2, 0, "plain"), core.Event{Kind: core.EventGranted})), OneRequest, ""},
		"a wait of the dead":      {queue().entry(second, suspect(2, 0)).entry(0, dies(2, 0, "plain")), OfTheDead, "waits"},
		"a grant of the dead":     {held("plain").entry(second, suspect(1, 0)).entry(0, dies(1, 0, "plain")), OfTheDead, "belongs"},
		"not suspected":           {held("plain").entry(second, dies(1, 0, "plain", 1)), TooEarly, "B4"},
		"another since":           {held("plain").entry(second, suspect(1, second/2)).entry(second, dies(1, 0, "plain", 1)), TooEarly, "B4"},
		"before its time":         {held("plain").entry(second/2, suspect(1, 0)).entry(second/4, dies(1, 0, "plain", 1)), TooEarly, "750ms"},
		"released by another":     {held("plain").entry(0, gives(2, "plain", 1)), NamesGrant, "(6)"},
		"another one released":    {held("plain").entry(0, with(gives(1, "plain", 7), freed(1, "plain", 1, core.CauseReleased))), NamesGrant, ""},
		"not released":            {held("plain").entry(0, act{core.Release{Session: 1, Grant: 1}, core.Result{Status: core.Done}, nil, nil}), NamesGrant, "still"},
		"not cancelled":           {held("plain").entry(0, act{core.Cancel{Session: 1, Request: req(1)}, core.Result{Status: core.Cancelled}, nil, nil}), NamesGrant, "cancelled"},
		"freed at once":           {held("plain").entry(0, revoke("plain", 1, core.Revoke{}, marked(1, "plain", 1, core.CauseOperator))).entry(second/2, revoke("plain", 1, core.Revoke{Free: true}, freed(1, "plain", 1, core.CauseOperator))), TooEarly, "B11"},
		"a maximum too early":     {held("most").entry(second/2, revoke("most", 1, core.Revoke{Cause: core.ByMaxHold}, marked(1, "most", 1, core.CauseMaxHold))), TooEarly, "B8"},
		"no delay":                {held("delay").entry(second, suspect(1, 0)).entry(0, dies(1, 0, "delay", 1)), Closing, "should be"},
		"a delay after a release": {held("delay").entry(0, gives(1, "delay", 1, plus(closed("delay", core.CauseLockDelay, second)))), Closing, "should be until 0s"},
		"once, and open":          {newScript().open(1).entry(0, got(1, 1, "once", 1)), Closing, "should be"},
		"a failure closes": {held("retry").entry(0, func() act {
			a := gives(1, "retry", 1, plus(closed("retry", core.CauseOncePer, 900*time.Millisecond)))
			a.command = core.Release{Session: 1, Grant: 1, Failed: true}
			return a
		}()), Closing, "should be until 0s"},
		"counted from the end": {held("retry").entry(second/2, gives(1, "retry", 1, plus(closed("retry", core.CauseOncePer, 1400*time.Millisecond)))), Closing, "should be until 900ms"},
		"opens too early":      {newScript().open(1).entry(0, with(got(1, 1, "once", 1), closed("once", core.CauseOncePer, 900*time.Millisecond))).entry(second/2, act{core.Reopen{Lock: "once"}, core.Result{}, nil, []core.Event{{Kind: core.EventReopened, Lock: "once"}}}), Closing, "opens at"},
		"granted while closed": {newScript().open(1, 2).entry(0, with(got(1, 1, "once", 1), closed("once", core.CauseOncePer, 900*time.Millisecond))).entry(0, gives(1, "once", 1)).entry(0, got(2, 1, "once", 2)), Closing, "is closed"},
		"executed twice":       {held("plain").entry(0, gives(1, "plain", 1)).entry(0, got(1, 1, "plain", 2)), OneRequest, ""},
		"an old one executed":  {held("plain").entry(0, gives(1, "plain", 1)).entry(0, got(1, 2, "plain", 2)).entry(0, gives(1, "plain", 2)).entry(0, got(1, 1, "plain", 3)), OneRequest, "old one"},
		"a copy with another value": {held("plain").entry(0, func() act {
			a := got(1, 1, "plain", 1)
			a.events, a.command = nil, core.Acquire{Session: 1, Request: req(1), Lock: "plain", Value: []byte("x")}
			return a
		}()), OneRequest, "another request"},
		"executed when cancelled":  {newScript().open(1).entry(0, act{core.Cancel{Session: 1, Request: req(1)}, core.Result{Status: core.Cancelled}, nil, nil}).entry(0, got(1, 1, "plain", 1)), OneRequest, "copy"},
		"for a session that ended": {newScript().entry(0, got(1, 1, "plain", 1)), OneRequest, "has ended"},
	} {
		vs := c.s.w.judge.violations
		if len(vs) == 0 || vs[0].Property != c.p || !strings.Contains(vs[0].Why, c.says) {
			t.Errorf("%s: %v, want %q with %q", name, vs, c.p, c.says)
		}
	}
}
