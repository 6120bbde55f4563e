package core

import (
	"bytes"
	"time"

	"holdfast/internal/planted"
)

// acquire grants, queues or refuses a request.
func (t *step) acquire(c Acquire) Result {
	wanted := askedBy(c)
	if r, ok := t.admit(c.Session, c.Request, wanted); !ok {
		return r
	}
	if k := checkAcquire(c); k != 0 {
		r := &refusal{rule: k}
		if k != ruleName {
			r.lock = c.Lock
		}
		return t.settleRefused(c.Session, c.Request, wanted, r)
	}
	a := ask{
		session: c.Session, request: c.Request, asked: wanted, lock: c.Lock, shared: c.Shared, value: bytes.Clone(c.Value),
		terms: terms{lockDelay: c.LockDelay, oncePer: c.OncePer, maxHold: c.MaxHold, retryFailed: c.RetryFailed},
	}
	l, ok := t.locks.Get(&lock{name: c.Lock})
	if !ok {
		l = &lock{name: c.Lock, created: t.rev()}
	}
	next := *l
	if !l.inUse() {
		next.limit = max(c.Limit, 1)
	}
	if k := t.cannotAsk(&next, c); k != 0 {
		return t.settleRefused(c.Session, c.Request, wanted, t.acquireRefusal(k, &next, c))
	}
	if at, ok := t.room(&next, c.Shared); ok && (next.waiters == 0 || c.Shared && planted.On("I5-reader-overtakes")) {
		r := t.grantTo(next, &a, at)
		t.began(&a)
		return r
	}
	return t.join(next, a)
}

// checkAcquire returns the rule that the request breaks by itself, or 0.
func checkAcquire(c Acquire) rule {
	switch {
	case !nameFits(c.Lock):
		return ruleName
	case len(c.Value) > MaxValue:
		return ruleValue
	case c.Limit > MaxPermits:
		return ruleLimitRange
	case c.Shared && c.Limit > 1:
		return ruleLimitShared
	case !periodFits(c.LockDelay):
		return ruleLockDelay
	case !periodFits(c.OncePer):
		return ruleOncePer
	case !periodFits(c.MaxHold):
		return ruleMaxHold
	case c.RetryFailed && c.OncePer == 0:
		return ruleRetryFailed
	}
	return 0
}

func periodFits(d time.Duration) bool { return d >= 0 && d <= MaxPeriod }

// cannotAsk returns the rule by which a well-formed request can neither be
// granted now nor wait, or 0. What the lock says comes before what the
// session may still ask for: the first helps more.
func (t *step) cannotAsk(l *lock, c Acquire) rule {
	_, room := t.room(l, c.Shared)
	room = room && l.waiters == 0
	switch {
	case t.counterFull():
		return ruleCounterFull
	case l.limit != max(c.Limit, 1):
		return ruleLimit
	case l.closed() && (l.cause == CauseOncePer || c.Try):
		return ruleClosed
	case c.Try && !room:
		if t.holderIn(l, c.Session) != nil {
			return ruleHeldByYou
		}
		return ruleBusy
	case t.mustSession(c.Session).load() >= MaxPerSession:
		return rulePerSession
	case !room && l.waiters >= MaxWaiters:
		return ruleWaiters
	}
	return 0
}

// acquireRefusal says why, and who holds the lock.
func (t *step) acquireRefusal(k rule, l *lock, c Acquire) *refusal {
	r := t.about(k, l)
	r.limit = l.limit
	if k == ruleHeldByYou {
		r.holder = t.holder(t.holderIn(l, c.Session))
	}
	return r
}

// holderIn returns the first grant of the lock that the session holds, or
// nil. It looks through the shorter of the two lists.
func (s *State) holderIn(l *lock, id SessionID) (found *grant) {
	x, ok := s.session(id)
	if !ok {
		return nil
	}
	if x.held < l.holders {
		s.eachGrantOf(id, func(g *grant) bool {
			if g.Lock == l.name && (found == nil || grantLockLess(g, found)) {
				found = g
			}
			return true
		})
		return found
	}
	s.eachHolder(l.name, func(g *grant) bool {
		if g.Session == id {
			found = g
		}
		return found == nil
	})
	return found
}

// join puts a request at the end of the queue.
func (t *step) join(l lock, a ask) Result {
	w := &wait{ask: a, ticket: t.rev(), since: t.clock}
	t.waits.ReplaceOrInsert(w)
	t.waitsBySess.ReplaceOrInsert(w)
	l.waiters++
	t.putLock(&l)
	x := t.mustSession(a.session)
	x.waiting++
	t.sessions.ReplaceOrInsert(x)
	t.record(a.session, a.request, a.asked, outcome{status: Waiting})
	t.emitOf(a.session, Event{Kind: EventQueued, Lock: a.lock, Shared: a.shared})
	return Result{Status: Waiting, Place: int(l.waiters)}
}
