package core

import (
	"slices"

	"holdfast/internal/planted"
)

func (s *State) session(id SessionID) (session, bool) { return s.sessions.Get(session{id: id}) }

// mustSession returns a session that invariant 3 says is there.
func (s *State) mustSession(id SessionID) session {
	x, ok := s.session(id)
	if !ok {
		broken("invariant 3: session %d is not there", id)
	}
	return x
}

// open starts a session, or names the one that the same secret opened (B12).
func (t *step) open(c Open) Result {
	switch {
	case c.ID == 0:
		return refuse(ruleSessionZero)
	case c.SecretHash == [32]byte{}:
		return refuse(ruleSecret)
	case c.TTL < MinTTL || c.TTL > MaxTTL:
		return refuse(ruleTTL)
	case !textFits(c.Label):
		return refuse(ruleLabel)
	case !textFits(c.Host):
		return refuse(ruleHost)
	}
	if old, ok := t.secrets.Get(secret{hash: c.SecretHash}); ok && !planted.On("B12-opens-anew") {
		return Result{Status: Done, Session: old.id}
	}
	if _, taken := t.session(c.ID); taken {
		return refuse(ruleSessionTaken)
	}
	t.sessions.ReplaceOrInsert(session{id: c.ID, who: &identity{
		secret: c.SecretHash, instance: c.Instance, ttl: c.TTL,
		label: c.Label, host: c.Host, opened: t.clock,
	}})
	t.secrets.ReplaceOrInsert(secret{hash: c.SecretHash, id: c.ID})
	t.emitOf(c.ID, Event{Kind: EventOpened})
	t.touchSession(c.ID)
	return Result{Status: Done, Session: c.ID}
}

// end ends a session at the wish of its owner or of an operator. An owner's
// repeated end is already done; an operator is told that nothing was there.
func (t *step) end(c End) Result {
	if !textFits(c.By) {
		return refuse(ruleBy)
	}
	if _, ok := t.session(c.ID); !ok {
		if c.Operator {
			return refuse(ruleNoSession)
		}
		return Result{Status: Done}
	}
	cause := CauseEnded
	if c.Operator {
		cause = CauseOperator
	}
	t.settleAll(t.endSession(c.ID, cause, c.By))
	return Result{Status: Done}
}

// suspect notes since when sessions are silent (B4).
func (t *step) suspect(c Suspect) Result {
	if c.Since < 0 {
		return refuse(ruleSince)
	}
	for _, id := range c.Sessions {
		x, ok := t.session(id)
		if !ok || x.suspected {
			continue
		}
		x.suspected, x.since = true, c.Since
		t.sessions.ReplaceOrInsert(x)
		t.touchSession(id)
	}
	return Result{Status: Done}
}

// clear voids suspicions; an expiry that names one of them finds another
// state and does nothing (B4).
func (t *step) clear(c Clear) Result {
	r := Result{Status: Done}
	for _, id := range c.Sessions {
		x, ok := t.session(id)
		switch {
		case !ok:
			r.Lost = append(r.Lost, id)
		case x.suspected:
			x.suspected, x.since = false, 0
			t.sessions.ReplaceOrInsert(x)
			t.touchSession(id)
		}
	}
	return r
}

// expire ends a session that is still suspected since exactly then (B4).
func (t *step) expire(c Expire) Result {
	x, ok := t.session(c.ID)
	switch {
	case !ok:
		return Result{Status: Done}
	case (!x.suspected || x.since != c.Since) && !planted.On("B4-any-since"):
		return refuse(ruleNotSuspected)
	}
	t.settleAll(t.endSession(c.ID, CauseExpired, ""))
	return Result{Status: Done}
}

// endSession removes a session and everything that belongs to it (invariant
// 3). It returns the names of the locks that the caller must settle, in the
// same command, once nothing of any ending session is left in a queue.
func (t *step) endSession(id SessionID, cause Cause, by string) (touched []string) {
	t.emitOf(id, Event{Kind: EventEnded, Cause: cause, By: by})
	for _, w := range t.waitsOf(id) {
		if planted.On("I3-waiter-outlives-its-session") {
			break
		}
		t.leave(w, cause, outcome{status: Refused, refusal: &refusal{rule: ruleSessionLost, lock: w.lock}})
		touched = append(touched, w.lock)
	}
	for _, g := range t.grantsOf(id) {
		t.endGrant(g, end{cause: cause, by: by})
		touched = append(touched, g.Lock)
	}
	for _, b := range t.boundOf(id) {
		l := *t.mustLock(b.lock)
		t.clearValue(&l, id, cause)
		t.putLock(&l)
		touched = append(touched, b.lock)
	}
	for _, d := range t.tombsOf(id) {
		t.dropTomb(d)
	}
	for _, n := range t.lanesOf(id) {
		t.lanes.Delete(n)
	}
	x := t.mustSession(id)
	t.secrets.Delete(secret{hash: x.who.secret})
	t.sessions.Delete(x)
	t.touchSession(id)
	return touched
}

// settleAll settles each of the locks once, by name.
func (t *step) settleAll(names []string) {
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		t.settle(name)
	}
}

func (s *State) waitsOf(id SessionID) (out []*wait) {
	pivot := &wait{ask: ask{session: id}}
	ascendFrom(s.waitsBySess, pivot, func(w *wait) bool {
		if w.session != id {
			return false
		}
		out = append(out, w)
		return true
	})
	return out
}

func (s *State) grantsOf(id SessionID) (out []*grant) {
	s.eachGrantOf(id, func(g *grant) bool {
		out = append(out, g)
		return true
	})
	return out
}

func (s *State) eachGrantOf(id SessionID, fn func(*grant) bool) {
	pivot := &grant{Grant: &Grant{Session: id}}
	ascendFrom(s.grantsBySess, pivot, func(g *grant) bool { return g.Session == id && fn(g) })
}

func (s *State) boundOf(id SessionID) (out []bond) {
	ascendFrom(s.bound, bond{session: id}, func(b bond) bool {
		if b.session != id {
			return false
		}
		out = append(out, b)
		return true
	})
	return out
}

func (s *State) tombsOf(id SessionID) (out []tomb) {
	ascendFrom(s.tombsBySess, tomb{session: id}, func(d tomb) bool {
		if d.session != id {
			return false
		}
		out = append(out, d)
		return true
	})
	return out
}

func (s *State) lanesOf(id SessionID) (out []lane) {
	ascendFrom(s.lanes, lane{session: id}, func(n lane) bool {
		if n.session != id {
			return false
		}
		out = append(out, n)
		return true
	})
	return out
}
