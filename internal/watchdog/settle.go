package watchdog

import "slices"

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
	case r.Verdict == Done && c.kind != CallEnd && len(m.grants) == 0:
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
		m.good = c.sent // an answer counts from the instant before its call, however late
		m.pulse.failures = 0
		if m.pulse.call == 0 {
			m.pulse.next = max(now.At, c.sent+m.set.Interval)
		}
		m.early = m.early[:0]
	}
	for _, rev := range r.Revoked {
		if i := m.findGrant(rev.Grant); i >= 0 {
			acts = m.revoke(now, &m.grants[i], rev, acts)
		} else if newest {
			m.early = append(m.early, rev)
		}
	}
	if !newest {
		return acts
	}
	for i := range m.grants {
		g := &m.grants[i]
		contended := slices.Contains(r.Contended, g.id)
		if contended && !g.contended && g.lost == 0 && !g.asked {
			acts = append(acts, Action{Kind: GrantContended, Grant: g.id})
		}
		g.contended = contended
	}
	return acts
}

// revoke: the holder must stop, and acknowledges by its release (B11).
func (m *Machine) revoke(now Moment, g *grant, rev Revocation, acts []Action) []Action {
	if g.lost != 0 || g.asked {
		return acts
	}
	return m.lose(now, g, rev.Cause, rev.By, acts)
}

func (m *Machine) settleAcquire(now Moment, c call, r Reply, acts []Action) []Action {
	i := m.findRequest(c.request)
	if i < 0 || m.requests[i].cancelling {
		return acts // the cancel's answer settles it (C2)
	}
	q := &m.requests[i]
	switch r.Verdict {
	case Done:
		m.drop(i)
		m.grants = append(m.grants, grant{id: r.Grant})
		acts = append(acts, Action{Kind: Granted, Request: c.request, Grant: r.Grant})
		for _, rev := range m.early {
			if rev.Grant == r.Grant {
				acts = m.revoke(now, &m.grants[len(m.grants)-1], rev, acts)
			}
		}
	case Refused:
		m.drop(i)
		acts = append(acts, Action{Kind: Declined, Request: c.request})
	case Retry:
		if q.call != c.id {
			return acts // a newer attempt is under way
		}
		q.call, q.callAt = 0, 0
		q.failures++
		q.retryAt = now.At + m.backoff(now, q.failures)
		if waited := !q.try && now.At-c.sent > m.set.CallTimeout; waited || !q.failing {
			q.failing, q.failingAt, q.failures = true, now.At, 1
		}
		if now.At-q.failingAt >= m.set.TTL {
			acts = append(acts, Action{Kind: GaveUp, Request: q.id})
			acts = m.cancel(now, q, acts)
		}
	}
	return acts
}

func (m *Machine) settleCancel(now Moment, c call, r Reply, acts []Action) []Action {
	i := m.findRequest(c.request)
	if i < 0 || !m.requests[i].cancelling {
		return acts
	}
	q := &m.requests[i]
	if r.Verdict == Done {
		m.drop(i)
		return append(acts, Action{Kind: Settled, Request: c.request})
	}
	if q.call == c.id {
		q.call, q.callAt = 0, 0
		q.failures++
		q.retryAt = now.At + m.backoff(now, q.failures)
	}
	return acts
}

func (m *Machine) settleRelease(now Moment, c call, r Reply, acts []Action) []Action {
	i := m.findGrant(c.grant)
	if i < 0 {
		return acts
	}
	g := &m.grants[i]
	switch {
	case r.Verdict == Done:
		m.grants = slices.Delete(m.grants, i, i+1)
		return append(acts, Action{Kind: GrantReleased, Grant: c.grant})
	case g.call != c.id:
		// a newer attempt is under way
	case r.Verdict == Refused:
		// Trying the same again is no use; Release may be called again.
		g.call, g.callAt, g.release = 0, 0, false
	default:
		g.call, g.callAt = 0, 0
		g.failures++
		g.retryAt = now.At + m.backoff(now, g.failures)
	}
	return acts
}

// cancel turns a request into one that is being cancelled.
func (m *Machine) cancel(now Moment, q *request, acts []Action) []Action {
	if q.cancelling {
		return acts
	}
	if q.call != 0 {
		acts = append(acts, Action{Kind: Abort, Call: q.call})
	}
	q.cancelling, q.call, q.callAt, q.failures, q.retryAt = true, 0, 0, 0, now.At
	return acts
}

// drop frees the lane of a request that has its final answer (promise 4).
func (m *Machine) drop(i int) {
	m.lanes[m.requests[i].id.Lane].busy = false
	m.requests = slices.Delete(m.requests, i, i+1)
}

// lose marks one grant as lost (promise 3).
func (m *Machine) lose(now Moment, g *grant, cause Cause, by string, acts []Action) []Action {
	g.lost, g.lostAt = cause, now.At
	g.lingers = cause == Revoked || cause == MaxHold
	return append(acts, Action{Kind: GrantLost, Grant: g.id, Cause: cause, By: by})
}
