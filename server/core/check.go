package core

import (
	"fmt"
	"math"
)

// Check returns an error that wraps [ErrInvariant] and names the number, if
// the state breaks one of the invariants of DESIGN §3 in a way that a state
// alone can show: 2, 3 and 4 wholly; of 1, 5, 6 and 7 what a single state has
// of them (no number above the counter, queues in order of arrival, one entry
// a grant number, one wait a waiting lane). It looks at everything, so it is
// for tests, the simulator and [Decode]; it may run on a [State.Clone].
func (s *State) Check() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = haltFrom(r, s.index)
		}
	}()
	if !membersFit(s.members) || len(s.removed) > maxRemoved {
		broken("members: %s", rules[ruleMembers].text)
	}
	for i := 1; i < len(s.removed); i++ {
		if s.removed[i-1] >= s.removed[i] {
			broken("removed members are not in order")
		}
	}
	if s.version == 0 {
		broken("invariant 9: cluster version 0")
	}
	s.checkSessions()
	s.checkLocks()
	s.checkGrants()
	s.checkLanes()
	s.checkEvents()
	s.checkAudits()
	return nil
}

// must is for the checks below.
func must(ok bool, format string, args ...any) {
	if !ok {
		broken(format, args...)
	}
}

func (s *State) checkSessions() {
	var total session
	s.sessions.Ascend(func(x session) bool {
		who := fmt.Sprintf("session %d", x.id)
		must(x.id != 0 && x.who.ttl >= MinTTL && x.who.ttl <= MaxTTL, "%s: ID 0 or bad TTL", who)
		must(textFits(x.who.label) && textFits(x.who.host), "%s: bad label or host", who)
		must(x.suspected || x.since == 0, "%s: suspected since, but not suspected", who)
		key, ok := s.secrets.Get(secret{hash: x.who.secret})
		must(ok && key.id == x.id, "%s: not found by its secret", who)
		must(x.load() <= MaxPerSession && x.lanes <= MaxPerSession && x.tombs <= MaxTombstones, "%s: has too much", who)
		must(len(s.grantsOf(x.id)) == int(x.held), "%s: counts %d grants", who, x.held)
		must(len(s.waitsOf(x.id)) == int(x.waiting), "%s: counts %d waits", who, x.waiting)
		must(len(s.boundOf(x.id)) == int(x.bound), "%s: counts %d bound values", who, x.bound)
		must(len(s.lanesOf(x.id)) == int(x.lanes), "%s: counts %d lanes", who, x.lanes)
		must(len(s.tombsOf(x.id)) == int(x.tombs), "%s: counts %d tombstones", who, x.tombs)
		total.held, total.waiting, total.bound = total.held+x.held, total.waiting+x.waiting, total.bound+x.bound
		total.lanes, total.tombs = total.lanes+x.lanes, total.tombs+x.tombs
		return true
	})
	must(s.secrets.Len() == s.sessions.Len(), "secrets without sessions")
	// What is counted above belongs to live sessions; is there more?
	must(s.grants.Len() == int(total.held) && s.grantsBySess.Len() == int(total.held), "invariant 3: a grant of no live session")
	must(s.waits.Len() == int(total.waiting) && s.waitsBySess.Len() == int(total.waiting), "invariant 3: a wait of no live session")
	must(s.bound.Len() == int(total.bound), "invariant 3: a value bound to no live session")
	must(s.lanes.Len() == int(total.lanes), "invariant 3: a lane of no live session")
	must(s.tombs.Len() == int(total.tombs) && s.tombsBySess.Len() == int(total.tombs), "invariant 3: a tombstone of no live session")
}

func (s *State) checkLocks() {
	holders, waiters, closed, bonds := 0, 0, 0, 0
	s.locks.Ascend(func(l *lock) bool {
		s.checkLock(l)
		holders, waiters = holders+int(l.holders), waiters+int(l.waiters)
		if l.closed() {
			closed++
			c, ok := s.closings.Get(l)
			must(ok && c == l, "lock %q: closed, but not among the closed", l.name)
		}
		if l.valueSession != 0 {
			bonds++
			must(s.bound.Has(bond{session: l.valueSession, lock: l.name}), "lock %q: its bound value is not among the bound", l.name)
		}
		return true
	})
	must(s.grantsByLock.Len() == holders && s.grants.Len() == holders, "a grant of no lock")
	must(s.waits.Len() == waiters, "a wait for no lock")
	must(s.closings.Len() == closed, "a closing of no closed lock")
	must(s.bound.Len() == bonds, "a bound value of no lock")
}

func (s *State) checkLock(l *lock) {
	name := l.name
	must(nameFits(name), "lock %q: bad name", clip(name))
	must(l.created > 0 && l.created <= s.revision, "lock %q: created at revision %d", name, l.created)
	must(l.inUse() || l.hasValue() || l.closed(), "lock %q: nothing is left of it", name)
	must((l.limit != 0) == l.inUse() && l.limit <= MaxPermits, "lock %q: limit %d", name, l.limit)
	must(l.hasValue() == (l.value != nil) && len(l.value) <= MaxValue, "lock %q: bad value", name)
	must(l.hasValue() || l.valueGrant == 0 && l.valueSession == 0, "lock %q: owner of no value", name)
	must(l.valueGrant == 0 || l.valueSession == 0, "lock %q: two owners of one value", name)
	must(l.modified <= s.revision && l.closing <= s.revision, "lock %q: a revision to come", name)
	if l.valueGrant != 0 {
		g, ok := s.grant(l.valueGrant)
		must(ok && g.Lock == name, "lock %q: its value belongs to grant %d, which does not hold it", name, l.valueGrant)
	}
	if l.closed() {
		must(l.cause == CauseLockDelay || l.cause == CauseOncePer && l.waiters == 0, "lock %q: closed by %d, with %d waiters", name, l.cause, l.waiters)
	} else {
		must(l.cause == 0 && l.opensAt == 0, "lock %q: open, yet with a rule", name)
	}
	s.checkHolders(l)
	n, last := int32(0), Revision(0)
	ascendFrom(s.waits, &wait{ask: ask{lock: name}}, func(w *wait) bool {
		if w.lock != name {
			return false
		}
		n++
		must(w.ticket > last && w.ticket <= s.revision, "invariant 5: lock %q: the queue is not in order", name)
		must(w.ticket >= l.created, "lock %q: a waiter from before it", name)
		last = w.ticket
		x, ok := s.waitsBySess.Get(w)
		must(ok && x == w, "lock %q: a waiter that its session does not know", name)
		must(!w.shared || l.limit == 1, "lock %q: a shared waiter at limit %d", name, l.limit)
		return true
	})
	must(n == l.waiters && n <= MaxWaiters, "lock %q: counts %d waiters, has %d", name, l.waiters, n)
	if n > 0 {
		_, ok := s.room(l, s.head(name).shared)
		must(!ok, "invariant 4: lock %q has room for the head of its queue", name)
	}
}

func (s *State) checkHolders(l *lock) {
	var last *grant
	n, highest, burnt := int32(0), uint64(0), uint64(math.MaxUint64)
	s.eachHolder(l.name, func(g *grant) bool {
		n++
		must(g.Slot < l.limit, "invariant 2: lock %q: slot %d at limit %d", l.name, g.Slot, l.limit)
		must(!g.Shared || l.limit == 1, "invariant 2: lock %q: a shared holder at limit %d", l.name, l.limit)
		must(g.Shared || g.Generation == g.Number, "lock %q: grant %d is exclusive with generation %d", l.name, g.Number, g.Generation)
		if last != nil && last.Slot == g.Slot {
			must(last.Shared && g.Shared && last.Generation == g.Generation,
				"invariant 2: lock %q: slot %d has the holders %d and %d", l.name, g.Slot, last.Number, g.Number)
		}
		if highest = max(highest, g.Number); g.Shared && g.burnt != 0 {
			burnt = min(burnt, g.burnt)
			must(l.sealed, "invariant 2: lock %q: the run of the revoked grant %d is not sealed", l.name, g.Number)
		}
		last = g
		return true
	})
	must(highest < burnt, "invariant 2: lock %q: grant %d joined a run on which %d was burnt", l.name, highest, burnt)
	must(!l.sealed || last != nil && last.Shared, "lock %q: sealed, and not held by shared holders", l.name)
	must(n == l.holders, "lock %q: counts %d holders, has %d", l.name, l.holders, n)
}

func (s *State) checkGrants() {
	timed := 0
	s.grants.Ascend(func(g *grant) bool {
		n := g.Number
		must(n > 0 && n <= s.LastNumber() && g.Generation > 0 && g.Generation <= n, "invariant 1: grant %d of generation %d, last number %d", n, g.Generation, s.LastNumber())
		must(g.burnt <= s.LastNumber() && (g.burnt == 0 || g.burnt > n), "invariant 1: grant %d burnt %d", n, g.burnt)
		a, _ := s.grantsByLock.Get(g)
		b, _ := s.grantsBySess.Get(g)
		must(a == g && b == g, "invariant 6: grant %d differs between the trees", n)
		must(termsFit(g.terms), "grant %d: bad terms", n)
		must(g.revoked == (g.cause != 0) && textFits(g.by) && (g.revoked || g.revokedAt == 0 && g.by == "" && g.burnt == 0), "grant %d: half revoked", n)
		if g.isTimed() {
			timed++
			c, _ := s.timed.Get(g)
			must(c == g, "grant %d: has an end or a mark, and is not among the timed", n)
		}
		return true
	})
	must(s.timed.Len() == timed, "a timed grant that is not held")
	s.tombs.Ascend(func(d tomb) bool {
		_, held := s.grant(d.Grant)
		must(d.Grant > 0 && d.Grant <= s.LastNumber() && d.burnt <= s.LastNumber() && !held, "tombstone of grant %d: held, or above the counter", d.Grant)
		must(d.Cause == ByOperator || d.Cause == ByMaxHold, "tombstone of grant %d: no cause", d.Grant)
		must(nameFits(d.Lock) && textFits(d.By), "tombstone of grant %d: bad text", d.Grant)
		e, _ := s.tombsBySess.Get(d)
		must(e == d, "tombstone of grant %d: its session does not know it", d.Grant)
		return true
	})
}

func termsFit(t terms) bool {
	return periodFits(t.lockDelay) && periodFits(t.oncePer) && periodFits(t.maxHold) && (t.oncePer != 0 || !t.retryFailed)
}

func (s *State) checkLanes() {
	waiting := 0
	s.lanes.Ascend(func(n lane) bool {
		must(n.last > 0, "invariant 7: lane %d of session %d has request 0", n.lane, n.session)
		n.checkAsked()
		o := n.outcome
		must((o.grant != nil) == (o.status == Granted) && (o.refusal != nil) == (o.status == Refused), "lane %d of session %d: half an outcome", n.lane, n.session)
		must(o.revision <= s.revision, "lane %d of session %d: a revision to come", n.lane, n.session)
		switch o.status {
		case Waiting:
			waiting++
			w := s.waitOn(n)
			must(w.asked == n.asked && w.lock == n.asked.lock, "invariant 7: lane %d of session %d waits for another lock than was asked for", n.lane, n.session)
			must(termsFit(w.terms) && len(w.value) <= MaxValue, "lane %d of session %d: bad terms or value", n.lane, n.session)
		case Granted:
			must(o.grant.Number > 0 && o.grant.Number <= s.LastNumber() && o.grant.Session == n.session, "invariant 1: lane %d of session %d: grant %d", n.lane, n.session, o.grant.Number)
			if g, held := s.grant(o.grant.Number); held {
				must(*g.Grant == *o.grant, "invariant 7: lane %d of session %d remembers another grant %d than is held", n.lane, n.session, g.Number)
			}
		}
		return true
	})
	must(s.waits.Len() == waiting, "invariant 7: a wait that no lane knows")
}

func (s *State) checkEvents() {
	next, place := Revision(0), int32(0)
	first, any := s.events.Min()
	must(any == (s.revision > 0), "revision %d with %d events", s.revision, s.events.Len())
	if !any {
		return
	}
	must(s.events.Len()-int(first.of) < EventsKept, "%d events are too many", s.events.Len())
	must(first.Revision == 1 || first.Kind == EventEpoch || s.events.Len() >= EventsKept, "%d events are too few", s.events.Len())
	next = first.Revision
	s.events.Ascend(func(r record) bool {
		must(r.Revision == next && r.place == place && r.Kind != 0, "event %d of revision %d is out of order", r.place, r.Revision)
		if place++; place == r.of {
			next, place = next+1, 0
		}
		return true
	})
	must(next == s.revision+1 && place == 0, "events end at revision %d of %d", next-1, s.revision)
}
