package watchdog

import (
	"slices"
	"strings"

	"holdfast/internal/planted"
)

// settle applies the reply to a call that is no longer in flight.
func (m *Machine) settle(now Moment, c call, r Reply, acts []Action) []Action {
	if m.finished {
		return acts
	}
	if m.over {
		return m.settleOver(now, c, r, acts)
	}
	if r.Verdict == SessionLost {
		return m.finish(now.At, SessionEnded, acts)
	}
	switch c.kind {
	case CallKeepalive:
		return m.settleKeepalive(now, c, r, acts)
	case CallAcquire:
		return m.settleAcquire(now, c, r, acts)
	case CallCancel:
		return m.settleCancel(now, c, r, acts)
	case CallRelease:
		return m.settleRelease(now, c, r, acts)
	}
	return acts
}

// settleOver: nothing is revived (promise 2). What a late yes shows to be
// alive at the service is ended as soon as possible.
func (m *Machine) settleOver(now Moment, c call, r Reply, acts []Action) []Action {
	switch {
	case c.kind == CallEnd && c.id == m.endCall:
		m.endCall, m.endCallAt = 0, 0
		if r.Verdict == Done || r.Verdict == SessionLost {
			return m.done(acts)
		}
		m.endTries++
		m.endAt = now.At + m.backoff(now, m.endTries)
	case r.Verdict == SessionLost:
		return m.done(acts)
	case r.Verdict == Done && c.kind != CallEnd && len(m.slots) == 0:
		m.endAt = min(m.endAt, now.At)
	}
	return acts
}

func (m *Machine) settleKeepalive(now Moment, c call, r Reply, acts []Action) []Action {
	current := c.id == m.pulse.call
	if current {
		m.pulse.call, m.pulse.callAt = 0, 0
	}
	if r.Verdict != Done {
		if current {
			m.pulse.failures++
			m.pulse.next = now.At + m.backoff(now, m.pulse.failures)
		}
		return acts
	}
	newest := c.sent >= m.good
	if newest {
		if m.good = c.sent; planted.On("B10-from-answer") {
			m.good = now.At
		} // an answer counts from the instant before its call, however late
		m.pulse.failures = 0
		if m.pulse.call == 0 {
			m.pulse.next = max(now.At, c.sent+m.set.Interval)
		}
		m.early = m.early[:0]
	}
	for _, rev := range r.Revoked {
		if i, known := m.slots[rev.Grant]; known {
			acts = m.revoke(now, i, rev, acts)
		} else if newest {
			m.early = append(m.early, rev)
		}
	}
	if !newest {
		return acts
	}
	slices.SortStableFunc(m.early, func(a, b Revocation) int { return strings.Compare(a.Grant, b.Grant) })
	return m.contend(c.id, r.Contended, acts)
}

// contend takes in which grants somebody waits for, and tells what is new.
func (m *Machine) contend(by CallID, ids []string, acts []Action) []Action {
	for _, id := range ids {
		i, known := m.slots[id]
		if !known {
			continue
		}
		g := &m.grants[i]
		if !m.contended(g) && g.contended != by && g.lost == 0 && !g.asked {
			acts = append(acts, Action{Kind: GrantContended, Grant: g.id})
		}
		g.contended = by // nothing is due or counted by it
	}
	m.told = by
	return acts
}

// contended reports whether the last keepalive said that somebody waits.
func (m *Machine) contended(g *grant) bool { return g.contended != 0 && g.contended == m.told }

// revoke: the holder must stop, and acknowledges by its release (B11).
func (m *Machine) revoke(now Moment, slot int, rev Revocation, acts []Action) []Action {
	if g := &m.grants[slot]; g.lost != 0 || g.asked || planted.On("B11-holder-goes-on") {
		return acts
	}
	return m.lose(now.At, slot, rev.Cause, rev.By, acts)
}

func (m *Machine) settleAcquire(now Moment, c call, r Reply, acts []Action) []Action {
	i := int(c.request.Lane)
	if !m.isOpen(c.request) || m.lanes[i].request.cancelling && !planted.On("C2-acts-on-a-late-grant") {
		return acts // the cancel's answer settles it (C2)
	}
	if _, known := m.slots[r.Grant]; known && r.Verdict == Done {
		r.Verdict = Retry // another request's grant is no answer to this one
	}
	switch r.Verdict {
	case Done:
		m.drop(i)
		slot := m.add(r.Grant)
		acts = append(acts, Action{Kind: Granted, Request: c.request, Grant: r.Grant})
		first, _ := slices.BinarySearchFunc(m.early, r.Grant, func(rev Revocation, id string) int { return strings.Compare(rev.Grant, id) })
		for _, rev := range m.early[first:] {
			if rev.Grant != r.Grant {
				break
			}
			acts = m.revoke(now, slot, rev, acts)
		}
	case Refused:
		m.drop(i)
		acts = append(acts, Action{Kind: Declined, Request: c.request})
	case Retry:
		if m.lanes[i].request.call != c.id {
			return acts // a newer attempt is under way
		}
		m.changeRequest(i, func(q *request) {
			q.call, q.callAt = 0, 0
			q.failures++
			q.retryAt = now.At + m.backoff(now, q.failures)
			if waited := !q.try && now.At-c.sent > m.set.CallTimeout; waited || !q.failing {
				q.failing, q.failingAt, q.failures = true, now.At, 1
			}
		})
		if now.At-m.lanes[i].request.failingAt >= m.set.TTL {
			acts = append(acts, Action{Kind: GaveUp, Request: c.request})
			acts = m.cancel(now, i, acts)
		}
	}
	return acts
}

func (m *Machine) settleCancel(now Moment, c call, r Reply, acts []Action) []Action {
	i := int(c.request.Lane)
	if !m.isOpen(c.request) || !m.lanes[i].request.cancelling {
		return acts
	}
	if r.Verdict == Done {
		m.drop(i)
		return append(acts, Action{Kind: Settled, Request: c.request})
	}
	if m.lanes[i].request.call == c.id {
		m.changeRequest(i, func(q *request) {
			q.call, q.callAt = 0, 0
			q.failures++
			q.retryAt = now.At + m.backoff(now, q.failures)
		})
	}
	return acts
}

func (m *Machine) settleRelease(now Moment, c call, r Reply, acts []Action) []Action {
	i, known := m.slots[c.grant]
	if !known {
		return acts
	}
	switch {
	case r.Verdict == Done || r.Verdict == Retry && planted.On("C3-release-not-repeated"):
		m.forget(i)
		return append(acts, Action{Kind: GrantReleased, Grant: c.grant})
	case m.grants[i].call != c.id:
		// a newer attempt is under way
	case r.Verdict == Refused:
		// Trying the same again is no use; Release may be called again.
		m.changeGrant(i, func(g *grant) { g.call, g.callAt, g.release = 0, 0, false })
	default:
		m.changeGrant(i, func(g *grant) {
			g.call, g.callAt = 0, 0
			g.failures++
			g.retryAt = now.At + m.backoff(now, g.failures)
		})
	}
	return acts
}

// cancel turns the request of a lane into one that is being cancelled.
func (m *Machine) cancel(now Moment, lane int, acts []Action) []Action {
	q := m.lanes[lane].request
	if q.cancelling {
		return acts
	}
	if planted.On("C2-cancel-not-sent") {
		m.drop(lane)
		return append(acts, Action{Kind: Settled, Request: q.id})
	}
	if q.call != 0 {
		acts = append(acts, Action{Kind: Abort, Call: q.call})
	}
	m.changeRequest(lane, func(q *request) {
		q.cancelling, q.call, q.callAt, q.failures, q.retryAt = true, 0, 0, 0, now.At
	})
	return acts
}

// lose marks one grant as lost (promise 3).
func (m *Machine) lose(at Instant, slot int, cause Cause, by string, acts []Action) []Action {
	m.changeGrant(slot, func(g *grant) {
		g.lost, g.lostAt = cause, at
		g.lingers = cause == Revoked || cause == MaxHold
	})
	return append(acts, Action{Kind: GrantLost, Grant: m.grants[slot].id, Cause: cause, By: by})
}
