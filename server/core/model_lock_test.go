package core

import (
	"bytes"
	"slices"
	"time"
)

// The part of the model that is about locks.

func (m *model) acquire(c Acquire) Result {
	if c.Lock == "" || len(c.Lock) > 512 {
		return no(Malformed)
	}
	bad := c.Shared && c.Limit > 1 || c.RetryFailed && c.OncePer == 0 || len(c.Value) > 4096 ||
		c.LockDelay < 0 || c.OncePer < 0 || c.MaxHold < 0
	if bad {
		r := no(Malformed)
		r.Refusal.Lock = c.Lock
		return r
	}
	c.Limit = max(c.Limit, 1)
	l := m.locks[c.Lock]
	if l == nil {
		l = &mLock{created: m.revision + 1}
	}
	used := len(l.holders)+len(l.queue) > 0
	free := len(l.queue) == 0 && m.fits(l, c)
	switch {
	case used && l.limit != c.Limit:
		return m.noLock(LimitMismatch, c.Lock)
	case l.closing != 0 && (l.closedBy == CauseOncePer || c.Try):
		return m.noLock(Closed, c.Lock)
	case c.Try && !free:
		r := m.noLock(Busy, c.Lock)
		for _, name := range []string{c.Lock} {
			if h := m.firstOf(name, c.Session); h != nil {
				r.Refusal.Reason, r.Refusal.Holder = HeldByYou, m.holder(h)
			}
		}
		return r
	}
	l.limit = c.Limit
	m.locks[c.Lock] = l
	if free {
		r := m.give(l, c)
		m.beganGrant(l, c)
		return r
	}
	l.queue = append(l.queue, &mWait{ask: c, since: m.clock})
	m.emit(c.Session, Event{Kind: EventQueued, Lock: c.Lock, Shared: c.Shared})
	return Result{Status: Waiting, Place: len(l.queue)}
}

func (m *model) firstOf(name string, id SessionID) (first *mHolder) {
	for _, h := range m.locks[name].holders {
		if h.Session == id && (first == nil || h.Slot < first.Slot || h.Slot == first.Slot && h.Number < first.Number) {
			first = h
		}
	}
	return first
}

// fits says whether one more holder is lawful: invariant 2, and not closed.
func (m *model) fits(l *mLock, c Acquire) bool {
	if l.closing != 0 {
		return false
	}
	if len(l.holders) == 0 {
		return true
	}
	if l.limit > 1 {
		return len(l.holders) < int(l.limit)
	}
	for _, h := range l.holders {
		if !h.Shared {
			return false
		}
	}
	return c.Shared && !l.sealed
}

// give makes c a holder.
func (m *model) give(l *mLock, c Acquire) Result {
	m.counter++
	g := Grant{
		Number: m.epoch<<48 + m.counter, Incarnation: m.incarnation, Session: c.Session,
		Lock: c.Lock, Shared: c.Shared, Since: m.clock,
	}
	g.Generation = g.Number
	taken := map[uint32]bool{}
	for _, h := range l.holders {
		if c.Shared {
			g.Generation = h.Generation
		} else {
			taken[h.Slot] = true
		}
	}
	for taken[g.Slot] {
		g.Slot++
	}
	if c.MaxHold > 0 {
		g.EndsAt = m.clock + Clock(c.MaxHold)
	}
	l.holders = append(l.holders, &mHolder{Grant: g, ask: c})
	if c.Value != nil {
		l.hasValue, l.value, l.modified = true, bytes.Clone(c.Value), m.revision+1
		l.valueGrant, l.valueSession = g.Number, 0
	}
	m.emit(c.Session, Event{Kind: EventGranted, Lock: c.Lock, Grant: g.Number, Token: g.Generation, Slot: g.Slot, Shared: g.Shared, Value: c.Value})
	return Result{Status: Granted, Grant: &g}
}

func (m *model) beganGrant(l *mLock, c Acquire) {
	if c.OncePer > 0 && !c.RetryFailed {
		m.close(l, c.Lock, CauseOncePer, m.clock+ninths(c.OncePer))
	}
}

func ninths(d time.Duration) Clock { return Clock(d * 9 / 10) }

// handOn gives the lock to the head of the queue as long as that is lawful.
func (m *model) handOn(name string) {
	l := m.locks[name]
	for l != nil && len(l.queue) > 0 && m.fits(l, l.queue[0].ask) {
		w := l.queue[0]
		l.queue = l.queue[1:]
		r := m.give(l, w.ask)
		m.sessions[w.ask.Session].lanes[w.ask.Request.Lane].answer = r
		m.notices = append(m.notices, Notice{Session: w.ask.Session, Request: w.ask.Request, Result: r})
		m.beganGrant(l, w.ask)
	}
}

func (m *model) close(l *mLock, name string, cause Cause, until Clock) {
	if l.closing != 0 && until <= l.opensAt {
		return
	}
	l.closing, l.closedBy, l.opensAt = m.revision+1, cause, until
	m.emit(0, Event{Kind: EventClosed, Cause: cause, Lock: name, OpensAt: until})
	if cause == CauseOncePer {
		r := m.noLock(Closed, name)
		for len(l.queue) > 0 {
			m.leave(l.queue[0], CauseClosed, r)
		}
	}
}

func (m *model) endGrant(h *mHolder, cause Cause, by string, burnt uint64, confirmed, success bool) {
	l := m.locks[h.Lock]
	l.holders = slices.DeleteFunc(l.holders, func(x *mHolder) bool { return x == h })
	if len(l.holders) == 0 {
		l.sealed = false
	}
	m.emit(h.Session, Event{Kind: EventReleased, Cause: cause, Lock: h.Lock, Grant: h.Number, Token: h.Generation, Slot: h.Slot, Shared: h.Shared, Burnt: burnt, By: by})
	if l.hasValue && l.valueGrant == h.Number {
		m.dropValue(h.Session, h.Lock, cause)
	}
	if !confirmed && h.ask.LockDelay > 0 {
		m.close(l, h.Lock, CauseLockDelay, m.clock+Clock(h.ask.LockDelay))
	}
	if success && h.ask.RetryFailed {
		m.close(l, h.Lock, CauseOncePer, h.Since+ninths(h.ask.OncePer))
	}
}

func (m *model) dropValue(id SessionID, name string, cause Cause) {
	l := m.locks[name]
	l.hasValue, l.value, l.modified, l.valueGrant, l.valueSession = false, nil, 0, 0, 0
	m.emit(id, Event{Kind: EventDeleted, Cause: cause, Lock: name})
}

func (m *model) last() uint64 { return m.epoch<<48 + m.counter }

func (m *model) release(c Release) Result {
	if c.Grant == 0 || c.Grant > m.last() {
		return no(NoSuchGrant)
	}
	h := m.held(c.Grant)
	if h != nil && h.Session != c.Session {
		r := no(NotHeld)
		r.Refusal.Lock, r.Refusal.Holder = h.Lock, m.holder(h)
		return r
	}
	if h != nil {
		m.endGrant(h, CauseReleased, "", 0, true, !c.Failed)
		m.handOn(h.Lock)
	}
	if s := m.sessions[c.Session]; s != nil {
		s.tombs = slices.DeleteFunc(s.tombs, func(d mTomb) bool { return d.Grant == c.Grant })
	}
	return Result{Status: Done}
}

func (m *model) revoke(c Revoke) Result {
	if c.Now && c.Free {
		return no(Malformed)
	}
	h := m.held(c.Grant)
	if h == nil || h.Lock != c.Lock {
		for _, s := range m.sessions {
			for _, d := range s.tombs {
				if d.Grant == c.Grant && d.Lock == c.Lock {
					return Result{Status: Done, Number: d.burnt}
				}
			}
		}
		if c.Grant == 0 || c.Grant > m.last() {
			return m.noLock(NoSuchGrant, c.Lock)
		}
		return m.noLock(NotHeld, c.Lock)
	}
	burn := func() uint64 {
		m.counter++
		if h.Shared {
			m.locks[c.Lock].sealed = true // its token is below the burnt number
		}
		return m.last()
	}
	cause := CauseOperator
	if c.Cause == ByMaxHold {
		cause = CauseMaxHold
	}
	switch {
	case c.Now:
		return m.free(h, c.Cause, cause, c.By, burn())
	case c.Free && !h.revoked:
		return m.noLock(Conflict, c.Lock)
	case c.Free:
		cause = CauseOperator
		if h.cause == ByMaxHold {
			cause = CauseMaxHold
		}
		return m.free(h, h.cause, cause, h.by, h.burnt)
	case h.revoked:
		return Result{Status: Done, Number: h.burnt}
	}
	h.revoked, h.revokedAt, h.cause, h.by, h.burnt = true, m.clock, c.Cause, c.By, burn()
	m.emit(h.Session, Event{Kind: EventRevoked, Cause: cause, Lock: h.Lock, Grant: h.Number, Token: h.Generation, Slot: h.Slot, Shared: h.Shared, Burnt: h.burnt, By: c.By})
	return Result{Status: Done, Number: h.burnt, Revision: m.revision + 1}
}

func (m *model) free(h *mHolder, why RevokeCause, cause Cause, by string, burnt uint64) Result {
	m.endGrant(h, cause, by, burnt, false, false)
	s := m.sessions[h.Session]
	s.tombs = append(s.tombs, mTomb{Tombstone{Grant: h.Number, Lock: h.Lock, Cause: why, By: by}, burnt})
	m.handOn(h.Lock)
	return Result{Status: Done, Number: burnt, Revision: m.revision + 1}
}

func (m *model) reopen(c Reopen) Result {
	l := m.locks[c.Lock]
	if l == nil || l.closing == 0 || l.closing != c.Closing {
		return Result{Status: Done}
	}
	m.emit(0, Event{Kind: EventReopened, Cause: l.closedBy, Lock: c.Lock})
	l.closing, l.closedBy, l.opensAt = 0, 0, 0
	m.handOn(c.Lock)
	return Result{Status: Done, Revision: m.revision + 1}
}

// current reports whether a holder has the token.
func (m *model) current(name string, token uint64) bool {
	if l := m.locks[name]; l != nil {
		for _, h := range l.holders {
			if h.Generation == token {
				return true
			}
		}
	}
	return false
}

func (m *model) put(c Put) Result {
	if c.Lock == "" || len(c.Lock) > 512 || len(c.Value) > 4096 || c.Bind && c.Session == 0 {
		return no(Malformed)
	}
	l := m.locks[c.Lock]
	if l == nil {
		l = &mLock{created: m.revision + 1}
	}
	if c.Token != 0 && !m.current(c.Lock, c.Token) {
		return m.noValue(Stale, c.Lock)
	}
	if c.Conditional && c.IfRevision != l.modified {
		return m.noValue(Conflict, c.Lock)
	}
	m.locks[c.Lock] = l
	if !(c.Token != 0 && l.valueGrant != 0 && !c.Bind) {
		l.valueGrant, l.valueSession = 0, 0
	}
	if c.Bind {
		l.valueSession = c.Session
	}
	l.hasValue, l.value, l.modified = true, append([]byte{}, c.Value...), m.revision+1
	m.emit(c.Session, Event{Kind: EventPut, Lock: c.Lock, Token: c.Token, Value: l.value})
	return Result{Status: Done, Revision: m.revision + 1}
}

func (m *model) noValue(r Reason, name string) Result {
	a := m.noLock(r, name)
	if l := m.locks[name]; l != nil {
		a.Refusal.Revision = l.modified
	}
	return a
}

func (m *model) delete(c Delete) Result {
	if c.Lock == "" || len(c.Lock) > 512 {
		return no(Malformed)
	}
	l := m.locks[c.Lock]
	switch {
	case c.Token != 0 && !m.current(c.Lock, c.Token):
		return m.noValue(Stale, c.Lock)
	case l == nil:
		return m.noValue(NotFound, c.Lock)
	case len(l.holders)+len(l.queue) > 0:
		return m.noValue(InUse, c.Lock)
	case c.Conditional && c.IfRevision != l.modified:
		return m.noValue(Conflict, c.Lock)
	case !l.hasValue:
		return m.noValue(NotFound, c.Lock)
	}
	m.dropValue(c.Session, c.Lock, CauseDeleted)
	return Result{Status: Done, Revision: m.revision + 1}
}
