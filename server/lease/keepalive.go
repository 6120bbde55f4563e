package lease

import (
	"time"

	"holdfast/server/core"
)

// A wait is a keepalive without an answer yet.
type wait struct {
	handle  Handle
	session core.SessionID
	arrived Instant
	// revokes is the number of polite revokes that this leader had proposed
	// when the keepalive was looked at: its answer comes after all of them.
	revokes uint64
}

// markPending is a polite revoke in flight.
type markPending struct {
	grant uint64
	seq   uint64
}

// Keepalive hands over a keepalive that arrived at the given instant, not
// after the next turn's. Its answer comes out of some later turn, exactly once.
func (m *Machine) Keepalive(h Handle, id core.SessionID, arrived Instant) {
	m.inbox = append(m.inbox, wait{handle: h, session: id, arrived: arrived})
}

// Confirmed tells that leadership was confirmed, by a quorum, after everything
// that arrived at or before upTo (a read index was asked for and answered, or
// an entry of the own term was appended and committed), and that the confirmed
// index is applied. A lease-based read is no confirmation (B5).
func (m *Machine) Confirmed(upTo Instant) {
	if !m.leading {
		return
	}
	m.confirmedUpTo = max(m.confirmedUpTo, upTo)
	m.asked, m.unsettled = false, true
	if m.hold == holdConfirm && m.confirmedUpTo >= m.drainedAt {
		m.hold = holdNone
	}
}

// Proposed tells that this leader appended commands that did not come from a
// turn. Only polite revokes matter: a keepalive that arrives while one is in
// flight is answered after it is applied, so that every answer that does not
// tell of the mark belongs to a keepalive from before it, and the freeing T
// later cannot outrun the holder's deadline (B11).
func (m *Machine) Proposed(cmds []core.Command) {
	if !m.leading {
		return
	}
	for _, c := range cmds {
		if r, ok := c.(core.Revoke); ok && !r.Now && !r.Free {
			m.markProposed(r.Grant)
		}
	}
}

func (m *Machine) markProposed(grant uint64) {
	m.revokeSeq++
	m.revokes = append(m.revokes, markPending{grant, m.revokeSeq})
}

func (m *Machine) markSettled(grant uint64) {
	for i, r := range m.revokes {
		if r.grant == grant {
			m.unsettled = true
			m.revokes = append(m.revokes[:i:i], m.revokes[i+1:]...)
			return
		}
	}
}

// takeInbox decides how each new keepalive will be answered (B5).
func (m *Machine) takeInbox() {
	for _, w := range m.inbox {
		s := m.sessions[w.session]
		if s != nil && m.needsClear(s) {
			s.waits = append(s.waits, w)
			m.wantClear(s)
			continue
		}
		m.ordinary(s, w)
	}
	m.inbox = m.inbox[:0]
}

// needsClear reports whether the log may hold a suspicion of s that an answer
// would not outlive: applied, or on its way.
func (m *Machine) needsClear(s *session) bool {
	if m.weak.AnswerWithoutClear {
		return false
	}
	if m.weak.ForgetInFlight {
		return s.suspected || s.clearing
	}
	return s.suspected || s.suspecting || s.expiring || s.clearing
}

// ordinary moves the deadline on arrival, and lets the keepalive wait for a
// confirmation. s is nil for a session that the state does not know: a leader
// that was deposed unawares may miss it, so that too waits.
func (m *Machine) ordinary(s *session, w wait) {
	if s != nil {
		m.hear(s, w.arrived)
	}
	w.revokes = m.revokeSeq
	m.pending = append(m.pending, w)
	m.pendingUpTo = max(m.pendingUpTo, w.arrived)
	m.unsettled = m.unsettled || w.arrived <= m.confirmedUpTo || m.weak.LeaseReads
}

// hear notes that s was heard. The session's timer is not moved: it comes up
// at its old time, sees that it is early, and goes back (proposeSuspicions).
func (m *Machine) hear(s *session, arrived Instant) {
	if s.heard && arrived <= s.heardAt {
		return
	}
	s.heard, s.heardAt, s.heardClock = true, arrived, m.time.at(arrived)
}

// settle answers the pending keepalives that were confirmed.
func (m *Machine) settle() {
	if !m.unsettled {
		return
	}
	m.unsettled = false
	kept := m.pending[:0]
	for _, w := range m.pending {
		switch {
		case w.arrived > m.confirmedUpTo && !m.weak.LeaseReads, m.beforeMark(w):
			kept = append(kept, w)
		case m.sessions[w.session] == nil:
			m.answers = append(m.answers, Answer{w.handle, Lost})
		default:
			m.answers = append(m.answers, Answer{w.handle, Alive})
		}
	}
	clear(m.pending[len(kept):])
	m.pending = kept
}

// beforeMark reports whether a revoke that was proposed before w was looked at
// is still in flight.
func (m *Machine) beforeMark(w wait) bool {
	return len(m.revokes) > 0 && m.revokes[0].seq <= w.revokes && !m.weak.ForgetRevokes
}

// wantConfirm reports whether a confirmation is to be asked for now. One is
// outstanding at a time; what arrives meanwhile shares the next.
func (m *Machine) wantConfirm(now Instant) bool {
	want := m.hold == holdConfirm || len(m.pending) > 0 && m.pendingUpTo > m.confirmedUpTo
	if !want || m.asked && now-m.askedAt < 10*m.tick {
		return false
	}
	m.asked, m.askedAt = true, now
	return true
}

// wantClear queues s for a clear, unless one is queued or in flight.
func (m *Machine) wantClear(s *session) {
	if s.clearing || s.clearQueued {
		return
	}
	s.clearQueued = true
	m.toClear = append(m.toClear, s)
	m.place(s)
}

// proposeClears proposes the queued clears, many sessions a command.
func (m *Machine) proposeClears(eff *Effects) {
	queued := m.toClear
	m.toClear = nil
	var ids []core.SessionID
	for _, s := range queued {
		s.clearQueued = false
		if m.sessions[s.id] != s {
			continue // ended meanwhile; its keepalives have their answer
		}
		s.clearing, s.covered = true, len(s.waits)
		if ids = append(ids, s.id); len(ids) == maxListed {
			m.propose(eff, core.Clear{Sessions: ids})
			ids = nil
		}
	}
	if len(ids) > 0 {
		m.propose(eff, core.Clear{Sessions: ids})
	}
}

// cleared takes a clear's result for s. The keepalives for which it was
// proposed are answered by it. Those that arrived later were not confirmed by
// it, since it may have been committed before they arrived.
func (m *Machine) cleared(s *session) {
	s.clearing = false
	covered, later := s.waits[:s.covered], s.waits[s.covered:]
	s.waits, s.covered = nil, 0
	for _, w := range covered {
		m.hear(s, w.arrived)
		m.answers = append(m.answers, Answer{w.handle, Alive})
	}
	for _, w := range later {
		m.ordinary(s, w)
	}
	m.place(s)
}

// Heard is how long ago this leader last heard of a session; false if it has
// not, or does not lead.
func (m *Machine) Heard(now Instant, id core.SessionID) (ago time.Duration, ok bool) {
	s := m.sessions[id]
	if !m.leading || s == nil || !s.heard {
		return 0, false
	}
	return max(0, now-s.heardAt), true
}

// TTLLeft is how long the session will live if it stays silent, always within
// [0, T]; false if there is no such session or this machine does not lead.
func (m *Machine) TTLLeft(now Instant, st *core.State, id core.SessionID) (time.Duration, bool) {
	t, ok := st.SessionTiming(id)
	s := m.sessions[id]
	if !m.leading || !ok || s == nil {
		return 0, false
	}
	from := m.lastSign(s)
	if t.Suspected {
		from = t.Since
	}
	left := time.Duration(from-m.time.at(now)) + t.TTL
	return min(max(left, 0), t.TTL), true
}
