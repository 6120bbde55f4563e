package core

import (
	"math"

	"holdfast/internal/planted"
)

func (x *codec) outcome(o *outcome) {
	x.u8((*uint8)(&o.status), uint8(Cancelled), "lane's outcome")
	switch o.status {
	case Granted:
		g := new(Grant)
		if x.writing {
			g = o.grant
		}
		x.text(&g.Lock, MaxLockName, "lane's lock")
		x.told(g)
		o.grant = g
	case Refused:
		r := new(refusal)
		if x.writing {
			r = o.refusal
		}
		x.refusal(r)
		o.refusal = r
	case Done:
		x.revision(&o.revision, math.MaxInt64, "lane's revision")
	case Waiting, Cancelled:
	default:
		x.corrupt("lane's outcome is %d", o.status)
	}
}

// told is a grant without its lock, which stands elsewhere.
func (x *codec) told(g *Grant) {
	x.u64(&g.Number)
	x.u64(&g.Generation)
	x.u64(&g.Incarnation)
	x.session(&g.Session)
	x.u32(&g.Slot, "slot")
	x.flag(&g.Shared, "shared")
	x.clock(&g.Since, "grant's clock")
	x.clock(&g.EndsAt, "grant's end")
}

func (x *codec) refusal(r *refusal) {
	x.u8((*uint8)(&r.rule), uint8(ruleEnd)-1, "refusal's rule")
	if r.rule == 0 {
		x.corrupt("a refusal has no rule")
	}
	x.text(&r.lock, MaxLockName, "refusal's lock")
	some := r.holder != nil
	x.flag(&some, "refusal's holder")
	if some && x.err == nil {
		h := new(Holder)
		if x.writing {
			h = r.holder
		}
		x.text(&h.Lock, MaxLockName, "holder's lock")
		x.told(&h.Grant)
		x.text(&h.Label, MaxLabel, "holder's label")
		x.text(&h.Host, MaxLabel, "holder's host")
		if !x.writing {
			r.holder = h
		}
	}
	n := uint64(r.waiters)
	x.below(&n, MaxWaiters, "refusal's waiters")
	if !x.writing {
		r.waiters = int(n)
	}
	x.clock(&r.opensAt, "refusal's opening")
	x.revision(&r.revision, math.MaxInt64, "refusal's revision")
	x.u32(&r.limit, "refusal's limit")
}

func (x *codec) stateLocks(s *State) {
	x.what, x.nth = "locks", 0
	n := x.count(s.locks.Len(), math.MaxInt32, "locks")
	if x.writing {
		s.locks.Ascend(func(l *lock) bool {
			x.oneLock(s, *l)
			return x.err == nil
		})
		return
	}
	before := ""
	for i := 1; i <= n && x.err == nil; i++ {
		x.what, x.nth = "lock", i
		before = x.oneLock(s, lock{name: before})
	}
}

// oneLock is a lock with its holders and its queue. Reading, l.name is that of
// the lock before; it returns the name.
func (x *codec) oneLock(s *State, l lock) string {
	before := l.name
	x.text(&l.name, MaxLockName, "name")
	if x.reading() && (l.name <= before || !nameFits(l.name)) {
		x.corrupt("%s, or names are not in order", rules[ruleName].text)
	}
	x.revision(&l.created, s.revision, "creation")
	x.u32(&l.limit, "limit")
	x.flag(&l.sealed, "sealed")
	some := l.hasValue()
	x.flag(&some, "has a value")
	if some {
		x.revision(&l.modified, s.revision, "modification")
		x.value(&l.value, MaxValue, "value")
		x.u64(&l.valueGrant)
		x.session(&l.valueSession)
	}
	if l.inUse() && planted.On("D8-no-closings") {
		l.closing, l.cause, l.opensAt = 0, 0, 0
	}
	closed := l.closed()
	x.flag(&closed, "closed")
	if closed {
		x.revision(&l.closing, s.revision, "closing")
		x.u8((*uint8)(&l.cause), uint8(CauseOncePer), "closing's cause")
		x.clock(&l.opensAt, "opening")
	}
	if x.reading() && (some != l.hasValue() || some != (l.value != nil) || closed != l.closed()) {
		x.corrupt("revision 0 of a value or a closing, or no value")
	}
	if x.reading() && l.valueSession != 0 {
		s.bound.ReplaceOrInsert(bond{session: l.valueSession, lock: l.name})
		x.belong(s, l.valueSession, func(v *session) { v.bound++ })
	}
	x.holdersOf(s, &l)
	x.queueOf(s, &l)
	if x.reading() {
		s.putLock(&l)
	}
	return l.name
}

// belong counts one more thing of a session that was read before.
func (x *codec) belong(s *State, id SessionID, count func(*session)) {
	v, ok := s.session(id)
	if !ok {
		x.corrupt("belongs to session %d, which is not there", id)
		return
	}
	count(&v)
	s.sessions.ReplaceOrInsert(v)
}

func (x *codec) holdersOf(s *State, l *lock) {
	n := x.count(int(l.holders), math.MaxInt32, "holders")
	if x.writing {
		s.eachHolder(l.name, func(g *grant) bool {
			x.oneHolder(*g, *g.Grant)
			return x.err == nil
		})
		return
	}
	var last *grant
	for i := 0; i < n && x.err == nil; i++ {
		g := x.oneHolder(grant{}, Grant{Lock: l.name})
		if x.err != nil {
			return
		}
		if last != nil && !grantLockLess(last, g) || s.grants.Has(g) {
			x.corrupt("holders are not in order, or one number is held twice")
			return
		}
		x.belong(s, g.Session, func(v *session) { v.held++ })
		s.putGrant(g)
		l.holders++
		last = g
	}
}

func (x *codec) oneHolder(g grant, told Grant) *grant {
	x.told(&told)
	x.terms(&g.terms)
	x.flag(&g.revoked, "revoked")
	if g.revoked {
		x.clock(&g.revokedAt, "revocation")
		if x.reading() && planted.On("D8-no-mark-clock") {
			g.revokedAt = 0
		}
		x.u8((*uint8)(&g.cause), uint8(ByMaxHold), "revocation's cause")
		x.text(&g.by, MaxLabel, "revocation's operator")
		x.u64(&g.burnt)
	}
	g.Grant = &told
	return &g
}

func (x *codec) terms(t *terms) {
	x.length(&t.lockDelay, "lock-delay")
	x.length(&t.oncePer, "once-per")
	x.length(&t.maxHold, "maximum hold")
	x.flag(&t.retryFailed, "retry-failed")
}

func (x *codec) queueOf(s *State, l *lock) {
	n := x.count(int(l.waiters), MaxWaiters, "waiters")
	if x.writing {
		ascendFrom(s.waits, &wait{ask: ask{lock: l.name}}, func(w *wait) bool {
			if w.lock == l.name {
				x.oneWait(*w, s)
			}
			return w.lock == l.name && x.err == nil
		})
		return
	}
	last := Revision(0)
	for i := 0; i < n && x.err == nil; i++ {
		w := x.oneWait(wait{ask: ask{lock: l.name}}, s)
		if x.err != nil {
			return
		}
		if w.ticket <= last || s.waitsBySess.Has(w) {
			x.corrupt("a queue is not in order, or one lane waits twice")
			return
		}
		n, _ := s.lanes.Get(lane{session: w.session, lane: w.request.Lane})
		w.asked = n.asked // [State.Check] sees whether it is the lane's last request
		x.belong(s, w.session, func(v *session) { v.waiting++ })
		s.waits.ReplaceOrInsert(w)
		s.waitsBySess.ReplaceOrInsert(w)
		l.waiters++
		last = w.ticket
	}
}

func (x *codec) oneWait(w wait, s *State) *wait {
	x.session(&w.session)
	x.request(&w.request)
	x.flag(&w.shared, "shared")
	x.value(&w.value, MaxValue, "waiter's value")
	x.terms(&w.terms)
	x.revision(&w.ticket, s.revision, "ticket")
	x.clock(&w.since, "waiter's clock")
	return &w
}

// stateEvents is the ring. Its revisions follow one another up to the
// present one, so only the number of them is written.
func (x *codec) stateEvents(s *State) {
	x.what, x.nth = "events", 0
	groups := uint64(0)
	if first, ok := s.events.Min(); ok {
		groups = uint64(s.revision-first.Revision) + 1
	}
	if planted.On("D8-no-events") {
		groups = 0
	}
	x.below(&groups, uint64(s.revision), "number of revisions with events")
	if x.writing {
		s.events.Ascend(func(r record) bool {
			if r.place == 0 {
				x.count(int(r.of), math.MaxInt32, "events")
			}
			x.event(*r.Event)
			return x.err == nil
		})
		return
	}
	for rev := s.revision - Revision(groups) + 1; rev <= s.revision && x.err == nil; rev++ {
		x.nth = int(rev)
		n := x.count(0, math.MaxInt32, "events")
		if n == 0 {
			x.corrupt("revision without events")
		}
		for i := 0; i < n && x.err == nil; i++ {
			e := x.event(Event{Revision: rev})
			s.events.ReplaceOrInsert(record{Event: &e, place: int32(i), of: int32(n)})
		}
	}
}

func (x *codec) event(e Event) Event {
	x.clock(&e.Clock, "clock")
	x.u8((*uint8)(&e.Kind), uint8(lastEventKind(x.format)), "kind")
	x.u8((*uint8)(&e.Cause), uint8(CauseEpoch), "cause")
	x.text(&e.Lock, MaxLockName, "lock")
	x.session(&e.Session)
	x.text(&e.Label, MaxLabel, "label")
	x.text(&e.Host, MaxLabel, "host")
	x.u64(&e.Grant)
	x.u64(&e.Token)
	x.u32(&e.Slot, "slot")
	x.flag(&e.Shared, "shared")
	x.u64(&e.Burnt)
	x.value(&e.Value, MaxValue, "value")
	x.clock(&e.OpensAt, "opening")
	x.text(&e.By, MaxLabel, "operator")
	if e.Kind == EventAudit {
		var c AuditCall
		if e.Audit != nil {
			c = *e.Audit
		}
		x.auditCall(&c, MaxLabel, 255)
		e.Audit = &c
	}
	return e
}
