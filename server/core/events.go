package core

// rev is the revision that the present command gets. Whoever stores it emits
// an event in the same command.
func (t *step) rev() Revision { return t.revision + 1 }

// emit adds an event to the present command's.
func (t *step) emit(e Event) {
	e.Revision, e.Clock = t.rev(), t.clock
	t.events = append(t.events, e)
}

// emitOf is emit for an event about a session; 0 is none.
func (t *step) emitOf(id SessionID, e Event) {
	if x, ok := t.session(id); ok {
		e.Session, e.Label, e.Host = id, x.who.label, x.who.host
	}
	t.emit(e)
}

// finish ends a command: the revision rises if it emitted events, which go to
// the ring and to the caller.
func (t *step) finish() {
	if len(t.events) == 0 {
		return
	}
	t.revision++
	for i := range t.events {
		e := t.events[i]
		t.State.events.ReplaceOrInsert(record{Event: &e, place: int32(i), of: int32(len(t.events))})
	}
	t.out.Events = append(t.out.Events, t.events...)
	t.events = t.events[:0]
	t.prune()
}

// prune drops the oldest revisions of the ring, each as a whole, while at
// least EventsKept events stay.
func (s *State) prune() {
	for {
		first, ok := s.events.Min()
		if !ok || s.events.Len()-int(first.of) < EventsKept {
			return
		}
		for range first.of {
			s.events.DeleteMin()
		}
	}
}

// EventsAfter returns events with a revision above rev, oldest first, about
// limit of them: a revision is never split, and at least one is returned if
// there is any. Not ok means that the caller cannot go on from rev: events
// after it are gone, or rev is of another run of the service (above the
// present revision). It must read anew, and go on from the revision it read.
func (s *State) EventsAfter(rev Revision, limit int) (events []Event, ok bool) {
	if rev > s.revision {
		return nil, false
	}
	if first, any := s.events.Min(); any && rev+1 < first.Revision || !any && rev < s.revision {
		return nil, false
	}
	pivot := record{Event: &Event{Revision: rev + 1}}
	ascendFrom(s.events, pivot, func(r record) bool {
		if r.place == 0 && len(events) > 0 && len(events)+int(r.of) > limit {
			return false
		}
		events = append(events, *r.Event)
		return true
	})
	return events, true
}

// touchSession tells the lease machine to look at a session again.
func (t *step) touchSession(id SessionID) { t.out.Sessions = append(t.out.Sessions, id) }

// touchGrant tells it to look at a grant, if that has an end or a mark.
func (t *step) touchGrant(g *grant) {
	if g.isTimed() {
		t.out.Grants = append(t.out.Grants, g.Number)
	}
}

// touchLock tells it to look at a lock's closing.
func (t *step) touchLock(name string) { t.out.Locks = append(t.out.Locks, name) }
