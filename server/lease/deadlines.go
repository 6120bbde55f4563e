package lease

import (
	"time"

	"holdfast/server/core"
)

// Limits on one turn's proposals. What does not fit waits for the next turn,
// which is asked for at once.
const (
	maxProposed = 256    // commands
	maxListed   = 10_000 // sessions in one suspect or clear
)

// retryAfter is how long a command that was applied without the expected
// effect (a full counter refuses a revoke) is not proposed again.
const retryAfter = core.Clock(time.Second)

// A session is this leader's memory of one session.
type session struct {
	id  core.SessionID
	ttl time.Duration

	heard      bool // by this leader
	heardAt    Instant
	heardClock core.Clock

	// In the applied state:
	suspected bool
	since     core.Clock

	// In flight, proposed by this leader:
	suspecting bool
	expiring   bool
	clearing   bool

	clearQueued bool
	notBefore   core.Clock
	waits       []wait // keepalives that a clear will answer
	covered     int    // the first so many, by the clear in flight

	due   timer // in silence or expiry
	byTTL timer // in suspectsT
}

// A grant is one with an end or a mark.
type grant struct {
	core.GrantTiming
	number    uint64
	marking   bool // a polite revoke is in flight
	freeing   bool // a freeing revoke is in flight
	notBefore core.Clock
	due       timer
}

// A closing is one closed lock.
type closing struct {
	core.ClosingTiming
	lock      string
	opening   bool // a reopen is in flight
	notBefore core.Clock
	due       timer
}

func newSession(t core.SessionTiming) *session {
	s := &session{id: t.ID, ttl: t.TTL, suspected: t.Suspected, since: t.Since}
	s.due.s, s.byTTL.s = s, s
	return s
}

// lastSign is the clock from which the silence of s counts: last heard, or
// this leader's start (B6).
func (m *Machine) lastSign(s *session) core.Clock {
	if s.heard {
		return s.heardClock
	}
	return m.time.base
}

// suspectAt is the clock at which s is to be suspected.
func (m *Machine) suspectAt(s *session) core.Clock {
	switch {
	case m.weak.ExpireWithoutSuspicion:
		return m.lastSign(s) + core.Clock(s.ttl)
	case s.heard || m.weak.SuspectAtHalfOnly:
		return m.lastSign(s) + core.Clock(s.ttl/2)
	}
	return m.lastSign(s) + core.Clock(s.ttl/8)
}

// place puts s into the heaps where it belongs now. While a clear is wanted or
// anything is in flight it has no deadline: the result will place it anew.
func (m *Machine) place(s *session) {
	if s.suspected {
		m.suspectsT.set(&s.byTTL, core.Clock(s.ttl))
	} else {
		s.byTTL.drop()
	}
	silenced := s.clearing || s.clearQueued
	switch {
	case s.suspected && !s.expiring && (!silenced || m.weak.ExpireDespiteClear):
		m.expiry.set(&s.due, max(s.since+core.Clock(s.ttl), s.notBefore))
	case !s.suspected && !s.suspecting && !silenced:
		m.silence.set(&s.due, m.suspectAt(s))
	default:
		s.due.drop()
	}
}

func (m *Machine) trackGrant(t core.GrantTiming) {
	g := m.grants[t.Number]
	if g == nil {
		g = &grant{number: t.Number}
		g.due.g = g
		m.grants[t.Number] = g
	}
	if t.Revoked != g.Revoked {
		g.notBefore = 0
	}
	g.GrantTiming = t
	switch free := t.RevokedAt + core.Clock(t.TTL); {
	case t.Revoked && !g.freeing && m.weak.FreeAtOnce:
		m.frees.set(&g.due, t.RevokedAt)
	case t.Revoked && !g.freeing:
		m.frees.set(&g.due, max(free, g.notBefore))
	case !t.Revoked && t.EndsAt != 0 && !g.marking && !m.weak.ForgetEnds:
		m.ends.set(&g.due, max(t.EndsAt, g.notBefore))
	default:
		g.due.drop()
	}
}

func (m *Machine) trackClosing(t core.ClosingTiming) {
	c := m.closings[t.Lock]
	if c == nil || c.Closing != t.Closing {
		if c != nil {
			c.due.drop()
		}
		c = &closing{lock: t.Lock}
		c.due.c = c
		m.closings[t.Lock] = c
	}
	c.ClosingTiming = t
	if c.opening {
		c.due.drop()
		return
	}
	m.ends.set(&c.due, max(t.OpensAt, c.notBefore))
}

// propose adds one command. Every entry carries the clock, so it also stands
// for a tick.
func (m *Machine) propose(eff *Effects, c core.Command) {
	eff.Propose = append(eff.Propose, c)
	m.logged = max(m.logged, m.time.clock)
}

// full reports whether this turn has proposed enough.
func (m *Machine) full(eff *Effects) bool {
	if len(eff.Propose) < maxProposed {
		return false
	}
	m.moreWork = true
	return true
}

// due returns the heap's first timer if its clock has come.
func (m *Machine) due(h *timerHeap) *timer {
	if t := h.top(); t != nil && t.at <= m.time.clock {
		return t
	}
	return nil
}

// proposeSuspicions suspects the silent sessions (B4, B6). Sessions with one
// since share a command: those that this leader never heard all do.
func (m *Machine) proposeSuspicions(eff *Effects) {
	lists := map[core.Clock]int{} // since → place in eff.Propose
	for t := m.due(&m.silence); t != nil && !m.full(eff); t = m.due(&m.silence) {
		s := t.s
		if at := m.suspectAt(s); at > m.time.clock {
			m.silence.set(t, at) // heard since the timer was set
			continue
		}
		since := m.lastSign(s)
		s.suspecting = true
		m.place(s)
		if i, ok := lists[since]; ok {
			list := eff.Propose[i].(core.Suspect)
			if len(list.Sessions) < maxListed {
				list.Sessions = append(list.Sessions, s.id)
				eff.Propose[i] = list
				continue
			}
		}
		lists[since] = len(eff.Propose)
		m.propose(eff, core.Suspect{Since: since, Sessions: []core.SessionID{s.id}})
	}
}

// proposeExpiries ends what T has passed for: suspected sessions, and revoked
// grants (B4, B11). After a stall it waits (B9).
func (m *Machine) proposeExpiries(eff *Effects) {
	if m.hold != holdNone {
		return
	}
	for t := m.due(&m.expiry); t != nil && !m.full(eff); t = m.due(&m.expiry) {
		t.s.expiring = true
		m.place(t.s)
		m.propose(eff, core.Expire{ID: t.s.id, Since: t.s.since})
	}
	for t := m.due(&m.frees); t != nil && !m.full(eff); t = m.due(&m.frees) {
		g := t.g
		g.freeing = true
		t.drop()
		m.propose(eff, core.Revoke{Lock: g.Lock, Grant: g.number, Free: true})
	}
}

// proposeEnds reopens locks, and asks for grants back whose maximum hold is
// reached (B8).
func (m *Machine) proposeEnds(eff *Effects) {
	for t := m.due(&m.ends); t != nil && !m.full(eff); t = m.due(&m.ends) {
		t.drop()
		if g := t.g; g != nil {
			g.marking = true
			m.markProposed(g.number)
			m.propose(eff, core.Revoke{Lock: g.Lock, Grant: g.number, Cause: core.ByMaxHold})
			continue
		}
		t.c.opening = true
		m.propose(eff, core.Reopen{Lock: t.c.lock, Closing: t.c.Closing})
	}
}

// tickEvery is how often the clock must reach the log (B6); 0 while nothing
// is timed: a quiet healthy cluster logs nothing.
func (m *Machine) tickEvery() time.Duration {
	const least, most = 100 * time.Millisecond, 10 * time.Second
	every := time.Duration(0)
	if t := m.suspectsT.top(); t != nil {
		share := time.Duration(32)
		if m.weak.CoarseTicks {
			share = 8
		}
		every = max(t.s.ttl/share, least)
	}
	for _, h := range [...]*timerHeap{&m.ends, &m.frees} {
		if t := h.top(); t != nil {
			left := min(max(time.Duration(t.at-m.time.clock)/100, least), most)
			if every == 0 || left < every {
				every = left
			}
		}
	}
	return every
}

// proposeTick logs the clock if it must be and no other command just did.
func (m *Machine) proposeTick(eff *Effects) {
	every := m.tickEvery()
	if every == 0 || m.ticking || m.weak.NoTicks || m.time.clock < m.logged+core.Clock(every) {
		return
	}
	m.ticking = true
	m.propose(eff, core.Tick{})
}
