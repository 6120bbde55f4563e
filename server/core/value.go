package core

// put sets a lock's value, whether or not anyone holds the lock.
func (t *step) put(c Put) Result {
	var wanted asked
	if c.Session != 0 {
		wanted = askedBy(c)
		if r, ok := t.admit(c.Session, c.Request, wanted); !ok {
			return r
		}
	}
	k := checkPut(c)
	if k != 0 {
		return t.answerValue(c.Session, c.Request, wanted, &refusal{rule: k}, 0)
	}
	l, ok := t.locks.Get(&lock{name: c.Lock})
	if !ok {
		l = &lock{name: c.Lock, created: t.rev()}
	}
	switch {
	case c.Token != 0 && !t.isCurrent(c.Lock, c.Token):
		k = ruleStale
	case c.Conditional && l.modified != c.IfRevision:
		k = ruleConflict
	case c.Bind && l.valueSession != c.Session && t.mustSession(c.Session).load() >= MaxPerSession:
		k = rulePerSession
	}
	if k != 0 {
		return t.answerValue(c.Session, c.Request, wanted, t.valueRefusal(k, l), 0)
	}
	next := *l
	value := append([]byte{}, c.Value...)
	switch {
	case c.Bind:
		t.setValue(&next, value, 0, c.Session)
	case c.Token != 0 && l.valueGrant != 0:
		// The holder updates what it published: it still ends with the grant.
		t.setValue(&next, value, l.valueGrant, 0)
	default:
		t.setValue(&next, value, 0, 0)
	}
	t.putLock(&next)
	t.emitOf(c.Session, Event{Kind: EventPut, Lock: c.Lock, Token: c.Token, Value: value})
	return t.answerValue(c.Session, c.Request, wanted, nil, t.rev())
}

func checkPut(c Put) rule {
	switch {
	case !nameFits(c.Lock):
		return ruleName
	case len(c.Value) > MaxValue:
		return ruleValue
	case c.Bind && c.Session == 0:
		return ruleBind
	}
	return 0
}

// delete removes a lock's value, and with it the lock unless it is closed.
func (t *step) delete(c Delete) Result {
	var wanted asked
	if c.Session != 0 {
		wanted = askedBy(c)
		if r, ok := t.admit(c.Session, c.Request, wanted); !ok {
			return r
		}
	}
	if !nameFits(c.Lock) {
		return t.answerValue(c.Session, c.Request, wanted, &refusal{rule: ruleName}, 0)
	}
	l, ok := t.locks.Get(&lock{name: c.Lock})
	if !ok {
		l = &lock{name: c.Lock}
	}
	var k rule
	switch {
	case c.Token != 0 && !t.isCurrent(c.Lock, c.Token):
		k = ruleStale
	case !ok:
		k = ruleNoLock
	case l.inUse():
		k = ruleInUse
	case c.Conditional && l.modified != c.IfRevision:
		k = ruleConflict
	case !l.hasValue():
		k = ruleNoValue
	}
	if k != 0 {
		return t.answerValue(c.Session, c.Request, wanted, t.valueRefusal(k, l), 0)
	}
	next := *l
	t.clearValue(&next, c.Session, CauseDeleted)
	t.putLock(&next)
	t.settle(c.Lock)
	return t.answerValue(c.Session, c.Request, wanted, nil, t.rev())
}

// answerValue records, if the call is a session's, and answers a put or a
// delete.
func (t *step) answerValue(id SessionID, req Request, a asked, r *refusal, rev Revision) Result {
	o := outcome{status: Done, revision: rev}
	if r != nil {
		o = outcome{status: Refused, refusal: r}
	}
	if id != 0 {
		t.record(id, req, a, o)
	}
	return o.result()
}

// valueRefusal adds the revision that a compare-and-set found.
func (t *step) valueRefusal(k rule, l *lock) *refusal {
	r := t.about(k, l)
	r.revision = l.modified
	return r
}

// isCurrent reports whether a holder of the lock has the token (A6).
func (s *State) isCurrent(name string, token uint64) (current bool) {
	s.eachHolder(name, func(g *grant) bool {
		current = g.Generation == token
		return !current && !g.Shared // a shared run has one token
	})
	return current
}

// setValue gives the lock a value that ends with a grant, with a session, or
// with neither. The caller puts the lock.
func (t *step) setValue(l *lock, value []byte, number uint64, id SessionID) {
	t.bind(l, id)
	l.modified, l.value, l.valueGrant = t.rev(), value, number
}

// clearValue removes the lock's value. The caller puts the lock, and settles
// it.
func (t *step) clearValue(l *lock, by SessionID, cause Cause) {
	t.bind(l, 0)
	l.modified, l.value, l.valueGrant = 0, nil, 0
	t.emitOf(by, Event{Kind: EventDeleted, Cause: cause, Lock: l.name})
}

// bind moves the lock's value from the session that it ends with to another;
// 0 is none.
func (t *step) bind(l *lock, id SessionID) {
	if l.valueSession == id {
		return
	}
	for _, change := range []struct {
		id SessionID
		by int32
	}{{l.valueSession, -1}, {id, 1}} {
		if change.id == 0 {
			continue
		}
		x := t.mustSession(change.id)
		x.bound += change.by
		t.sessions.ReplaceOrInsert(x)
	}
	if l.valueSession != 0 {
		t.bound.Delete(bond{session: l.valueSession, lock: l.name})
	}
	if id != 0 {
		t.bound.ReplaceOrInsert(bond{session: id, lock: l.name})
	}
	l.valueSession = id
}

// mustLock returns a lock that something belongs to.
func (s *State) mustLock(name string) *lock {
	l, ok := s.locks.Get(&lock{name: name})
	if !ok {
		broken("lock %q is used and not there", name)
	}
	return l
}

// putLock inserts or replaces a lock.
func (s *State) putLock(l *lock) {
	old, had := s.locks.ReplaceOrInsert(l)
	switch {
	case l.closed():
		s.closings.ReplaceOrInsert(l)
	case had && old.closed():
		s.closings.Delete(l)
	}
}
