package core

import "holdfast/internal/planted"

func (s *State) grant(number uint64) (*grant, bool) {
	return s.grants.Get(&grant{Grant: &Grant{Number: number}})
}

// eachHolder calls fn for the grants of a lock, by slot and number.
func (s *State) eachHolder(name string, fn func(*grant) bool) {
	pivot := &grant{Grant: &Grant{Lock: name}}
	ascendFrom(s.grantsByLock, pivot, func(g *grant) bool { return g.Lock == name && fn(g) })
}

func (s *State) firstHolder(name string) (*grant, bool) {
	g, ok := firstFrom(s.grantsByLock, &grant{Grant: &Grant{Lock: name}})
	return g, ok && g.Lock == name
}

// putGrant inserts or replaces a grant in every tree that has it.
func (s *State) putGrant(g *grant) {
	s.grants.ReplaceOrInsert(g)
	s.grantsByLock.ReplaceOrInsert(g)
	s.grantsBySess.ReplaceOrInsert(g)
	if g.isTimed() {
		s.timed.ReplaceOrInsert(g)
	}
}

// grantTo makes a grant at a spot that room found; l is the lock as it is to
// be, without this holder. The number is the next of the counter (invariant
// 1), and the session is looked up here, in the command that grants
// (invariant 3).
func (t *step) grantTo(l lock, a *ask, at spot) Result {
	x, live := t.session(a.session)
	number, ok := t.nextNumber()
	if !live || !ok {
		broken("invariant 3: grant of %q to session %d, live %v, number left %v", a.lock, a.session, live, ok)
	}
	told := &Grant{
		Number: number, Generation: number, Incarnation: t.incarnation, Session: a.session,
		Lock: a.lock, Slot: at.slot, Shared: a.shared, Since: t.clock,
	}
	if at.generation != 0 && !planted.On("A1-token-of-its-own") {
		told.Generation = at.generation // A1: the token of a shared run is its first grant's
	}
	if a.maxHold != 0 {
		told.EndsAt = later(t.clock, a.maxHold)
	}
	g := &grant{Grant: told, terms: a.terms}
	t.putGrant(g)
	x.held++
	t.sessions.ReplaceOrInsert(x)
	l.holders++
	if a.value != nil {
		t.setValue(&l, a.value, number, 0)
	}
	t.putLock(&l)
	t.record(a.session, a.request, a.asked, outcome{status: Granted, grant: told})
	e := grantEvent(EventGranted, g)
	e.Value = a.value
	t.emitOf(a.session, e)
	t.touchGrant(g)
	return Result{Status: Granted, Grant: told}
}

// began applies the rule that comes with the beginning of a grant (B13), after
// its holder was told.
func (t *step) began(a *ask) {
	if a.oncePer != 0 && !a.retryFailed && !planted.On("B13-open-after-the-grant") {
		t.close(a.lock, CauseOncePer, later(t.clock, share(a.oncePer)))
	}
}

// end says how a grant ended.
type end struct {
	cause     Cause
	by        string
	confirmed bool   // the holder itself said so: no lock-delay (B8)
	failed    bool   // released, but the guarded work did not succeed (B13)
	burnt     uint64 // by the command that ends it
}

// isConfirmed reports whether the holder itself wanted the end.
func (e end) isConfirmed() bool {
	if planted.On("B8-no-delay-after-expiry") && e.cause == CauseExpired || planted.On("B8-no-delay-after-revoke") && e.cause != CauseExpired {
		return true
	}
	return e.confirmed || e.cause == CauseEnded
}

// endGrant ends a grant and what belongs to it: its value (A6), and the rules
// that its end calls for. The caller settles the lock.
func (t *step) endGrant(g *grant, e end) {
	t.grants.Delete(g)
	t.grantsByLock.Delete(g)
	t.grantsBySess.Delete(g)
	t.timed.Delete(g)
	x := t.mustSession(g.Session)
	x.held--
	t.sessions.ReplaceOrInsert(x)
	ev := grantEvent(EventReleased, g)
	ev.Cause, ev.By, ev.Burnt = e.cause, e.by, e.burnt
	t.emitOf(g.Session, ev)
	t.touchGrant(g)
	l := *t.mustLock(g.Lock)
	l.holders--
	if planted.On("D5-changed-in-place") {
		t.mustLock(g.Lock).holders = l.holders
	}
	l.sealed = l.sealed && l.holders != 0
	if l.valueGrant == g.Number {
		t.clearValue(&l, g.Session, e.cause)
	}
	t.putLock(&l)
	switch {
	case !e.isConfirmed() && g.lockDelay != 0:
		t.close(g.Lock, CauseLockDelay, later(t.clock, g.lockDelay))
	case e.cause == CauseReleased && g.retryFailed && planted.On("B13-from-the-end"):
		t.close(g.Lock, CauseOncePer, later(t.clock, share(g.oncePer)))
	case e.cause == CauseReleased && (!e.failed || planted.On("B13-failure-closes")) && g.retryFailed:
		t.close(g.Lock, CauseOncePer, later(g.Since, share(g.oncePer)))
	}
}

// grantEvent is an event about g.
func grantEvent(kind EventKind, g *grant) Event {
	return Event{
		Kind: kind, Lock: g.Lock, Grant: g.Number, Token: g.Generation, Slot: g.Slot, Shared: g.Shared,
	}
}
