package core

// What a command may cost, for those who fill an entry: the work of one entry
// is bounded (D8), and some commands settle many requests at once.

// EndCost is how many records the end of a session touches: its load, the lanes
// that it used, and its tombstones; 0 for one that is not there.
func (s *State) EndCost(id SessionID) int {
	x, ok := s.session(id)
	if !ok {
		return 0
	}
	return x.load() + int(x.lanes) + int(x.tombs)
}

// GrantEndCost is how many waits leave the queue when a grant ends: those that
// the lock is handed to, or that a closing by once-per refuses. success says
// that its holder releases it and that its work succeeded.
func (s *State) GrantEndCost(number uint64, success bool) int {
	g, held := s.grant(number)
	if !held {
		return 0
	}
	l := s.mustLock(g.Lock)
	switch {
	case l.waiters == 0:
		return 0
	case success && g.retryFailed:
		return int(l.waiters)
	case l.closed() || l.limit == 1 && l.holders > 1:
		return 0
	}
	return s.handOnCost(l, 1)
}

// RevokeCost is [State.GrantEndCost] for a revoke, which may only mark.
func (s *State) RevokeCost(c Revoke) int {
	if !c.Now && !c.Free {
		return 0
	}
	return s.GrantEndCost(c.Grant, false)
}

// ReopenCost is how many waits leave the queue when a closed lock is opened.
func (s *State) ReopenCost(name string) int {
	l, ok := s.locks.Get(&lock{name: name})
	if !ok || l.waiters == 0 {
		return 0
	}
	return s.handOnCost(l, max(1, int(l.limit)-int(l.holders)))
}

// handOnCost looks at a queue from its head as far as it would be granted if so
// many slots are free.
func (s *State) handOnCost(l *lock, free int) (n int) {
	ascendFrom(s.waits, &wait{ask: ask{lock: l.name}}, func(w *wait) bool {
		if w.lock != l.name || n >= free && !w.shared {
			return false
		}
		if n++; w.oncePer != 0 && !w.retryFailed {
			n = int(l.waiters) // its grant closes the lock
			return false
		}
		return (w.shared || n < free) && n <= MaxPerSession
	})
	return n
}
