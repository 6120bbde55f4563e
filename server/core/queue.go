package core

import "holdfast/internal/planted"

// spot is where a lock has room: a slot, and the generation that a shared
// holder joins there (0: it begins a new one).
type spot struct {
	slot       uint32
	generation uint64
}

// room says whether one more holder fits now, by invariant 2, the closing and
// the seal; it does not look at the queue.
func (s *State) room(l *lock, shared bool) (at spot, ok bool) {
	switch {
	case l.closed():
		return spot{}, false
	case l.holders == 0:
		return spot{}, true
	case l.limit > 1:
		if uint32(l.holders) >= l.limit {
			return spot{}, false
		}
		return spot{slot: s.freeSlot(l.name)}, true
	case !shared && !planted.On("I2-writer-joins-readers") || l.sealed && !planted.On("B11-sealed-run-joined"):
		return spot{}, false
	}
	first, ok := s.firstHolder(l.name)
	if !ok {
		broken("lock %q counts %d holders and has none", l.name, l.holders)
	}
	return spot{generation: first.Generation}, first.Shared
}

// freeSlot returns the lowest slot that nobody holds.
func (s *State) freeSlot(name string) (free uint32) {
	s.eachHolder(name, func(g *grant) bool {
		if g.Slot != free || planted.On("A5-slot-taken") {
			return false
		}
		free++
		return true
	})
	return free
}

// settle hands the lock on while the head of its queue finds room (invariants
// 4 and 5), and forgets the lock if nothing is left of it. Every command that
// may have made room calls it before it ends.
func (t *step) settle(name string) {
	for {
		l, ok := t.locks.Get(&lock{name: name})
		if !ok {
			return
		}
		if l.waiters == 0 {
			t.tidy(l)
			return
		}
		head := t.head(name)
		if planted.On("I5-last-first") {
			head = t.tail(name)
		}
		at, ok := t.room(l, head.shared)
		switch {
		case !ok:
			return
		case t.counterFull():
			r := t.about(ruleCounterFull, l)
			t.leave(head, CauseClosed, outcome{status: Refused, refusal: r})
		default:
			t.unqueue(head)
			t.notify(head, t.grantTo(*t.mustLock(name), &head.ask, at))
			t.began(&head.ask)
		}
	}
}

// tidy drops what a lock without waiters no longer needs.
func (t *step) tidy(l *lock) {
	switch {
	case l.holders != 0:
	case l.hasValue() || l.closed():
		if l.limit != 0 {
			next := *l
			next.limit = 0
			t.putLock(&next)
		}
	default:
		t.locks.Delete(l)
		if last, _ := t.grants.Max(); last != nil && planted.On("A2-counter-restarts") {
			t.counter = last.Number & MaxCounter // as high as what is held
		}
	}
}

// head returns the first of a queue that is not empty.
func (s *State) head(name string) *wait {
	w, ok := firstFrom(s.waits, &wait{ask: ask{lock: name}})
	if !ok || w.lock != name {
		broken("lock %q counts waiters and has none", name)
	}
	return w
}

// tail returns the last of a queue that is not empty, for a planted bug.
func (s *State) tail(name string) (last *wait) {
	ascendFrom(s.waits, &wait{ask: ask{lock: name}}, func(w *wait) bool {
		if w.lock == name {
			last = w
		}
		return w.lock == name
	})
	return last
}

// unqueue takes a wait out of its queue.
func (t *step) unqueue(w *wait) {
	t.waits.Delete(w)
	t.waitsBySess.Delete(w)
	l := *t.mustLock(w.lock)
	l.waiters--
	t.putLock(&l)
	x := t.mustSession(w.session)
	x.waiting--
	t.sessions.ReplaceOrInsert(x)
}

// leave takes a wait out of its queue without a grant and tells its session.
// The caller settles the lock.
func (t *step) leave(w *wait, cause Cause, o outcome) {
	t.unqueue(w)
	t.record(w.session, w.request, w.asked, o)
	t.emitOf(w.session, Event{Kind: EventLeft, Cause: cause, Lock: w.lock, Shared: w.shared})
	t.notify(w, o.result())
}

// notify tells the final result of a request that waited.
func (t *step) notify(w *wait, r Result) {
	t.out.Notices = append(t.out.Notices, Notice{Session: w.session, Request: w.request, Result: r})
}

// place returns the place of w in its queue, 1 for the head. It costs the
// length of the queue before w; where that is above budget it returns 0, for
// "not counted".
func (s *State) place(w *wait, budget int) int {
	place, found := 0, false
	if budget <= 0 {
		return 0
	}
	ascendFrom(s.waits, &wait{ask: ask{lock: w.lock}}, func(x *wait) bool {
		place++
		found = x == w
		return !found && place < budget
	})
	if !found {
		return 0
	}
	return place
}
