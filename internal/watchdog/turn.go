package watchdog

import "time"

// expire applies promise 2. It comes before anything else of an input.
func (m *Machine) expire(now Moment, acts []Action) []Action {
	if m.over || now.At < m.Deadline() {
		return acts
	}
	cause := Expired
	if m.pulse.failures > 0 {
		cause = Unreachable
	}
	return m.finish(m.Deadline(), cause, acts)
}

// finish makes the session over. What the service may still believe in is
// ended there: at once if no handle is out, else when the lease would have run
// out, so that guarded work has the margin to stop in.
func (m *Machine) finish(at Instant, cause Cause, acts []Action) []Action {
	m.over, m.cause, m.overAt = true, cause, at
	for _, c := range m.calls {
		acts = append(acts, Action{Kind: Abort, Call: c.id})
	}
	for i := range m.grants {
		g := &m.grants[i]
		if g.lost == 0 && !g.asked {
			acts = m.lose(Moment{At: at}, g, cause, "", acts)
		}
	}
	acts = append(acts, Action{Kind: SessionOver, Cause: cause})
	m.requests = nil
	m.endAt = at
	switch cause {
	case Expired, Unreachable:
		m.endAt = at + m.set.Margin
	case SessionEnded:
		return m.done(acts)
	}
	return acts
}

// done forgets everything: the service has confirmed that the session is gone,
// or there is no use in asking any longer.
func (m *Machine) done(acts []Action) []Action {
	for _, g := range m.grants {
		if g.asked {
			acts = append(acts, Action{Kind: GrantReleased, Grant: g.id})
		}
	}
	m.grants, m.finished = nil, true
	return append(acts, Action{Kind: Finished})
}

// turn does all that is due.
func (m *Machine) turn(now Moment, acts []Action) []Action {
	switch {
	case m.finished:
		return acts
	case m.over:
		return m.turnOver(now, acts)
	}
	acts = m.giveUpCalls(now, acts)
	acts = m.sendRequests(now, acts)
	acts = m.sendReleases(now, acts)
	for i := range m.grants {
		g := &m.grants[i]
		g.lingers = g.lingers && now.At < g.lostAt+m.set.TTL
	}
	if m.needed() {
		m.idle = false
		if m.pulse.call == 0 && now.At >= m.pulse.next {
			m.pulse.callAt = now.At
			m.pulse.call, acts = m.send(now, Action{Send: CallKeepalive}, acts)
		}
		return acts
	}
	if !m.idle {
		m.idle, m.idleSince = true, now.At
	}
	if m.empty() && now.At >= m.idleSince+m.set.Interval {
		acts = m.finish(now.At, Retired, acts)
		return m.turnOver(now, acts)
	}
	return acts
}

// empty reports that nothing is unsettled.
func (m *Machine) empty() bool { return len(m.requests) == 0 && len(m.grants) == 0 }

// needed reports whether something is held or waited for (promise 6). What was
// politely revoked is still held at the service until its owner has stopped;
// the service frees it one TTL later in any case.
func (m *Machine) needed() bool {
	for i := range m.requests {
		if !m.requests[i].cancelling {
			return true
		}
	}
	for i := range m.grants {
		if g := &m.grants[i]; !g.asked && (g.lost == 0 || g.lingers) {
			return true
		}
	}
	return false
}

// turnOver ends the session at the service, and keeps trying for one TTL.
func (m *Machine) turnOver(now Moment, acts []Action) []Action {
	if m.endCall != 0 {
		if now.At < m.endCallAt+m.set.CallTimeout {
			return acts
		}
		acts = append(acts, Action{Kind: Abort, Call: m.endCall})
		m.endCall, m.endCallAt = 0, 0
		m.endTries++
		m.endAt = now.At + m.backoff(now, m.endTries)
	}
	if m.endTries > 0 && now.At >= m.overAt+m.set.TTL {
		return m.done(acts)
	}
	if now.At >= m.endAt || m.endTries == 0 && m.handlesBack() {
		m.endCallAt = now.At
		m.endCall, acts = m.send(now, Action{Send: CallEnd}, acts)
	}
	return acts
}

// handlesBack reports that no owner of a grant may still be at work.
func (m *Machine) handlesBack() bool {
	for i := range m.grants {
		if !m.grants[i].asked {
			return false
		}
	}
	return true
}

// patience is how long the call of a request may take before it is given up
// and made again. A waiting acquire is asked again after a TTL, which heals a
// lost wake-up.
func (m *Machine) patience(q *request) time.Duration {
	if q.cancelling || q.try {
		return m.set.CallTimeout
	}
	return m.set.TTL
}

// giveUpCalls stops waiting for calls that take too long, so that the next try
// never depends on an answer to the last.
func (m *Machine) giveUpCalls(now Moment, acts []Action) []Action {
	if p := &m.pulse; p.call != 0 && now.At >= p.callAt+m.set.CallTimeout {
		acts = append(acts, Action{Kind: Abort, Call: p.call})
		acts = m.settleKeepalive(now, call{id: p.call, kind: CallKeepalive, sent: p.callAt}, Reply{}, acts)
	}
	for i := range m.requests {
		q := &m.requests[i]
		if q.call == 0 || now.At < q.callAt+m.patience(q) {
			continue
		}
		acts = append(acts, Action{Kind: Abort, Call: q.call})
		switch c := (call{id: q.call, sent: q.callAt, request: q.id}); {
		case q.cancelling:
			acts = m.settleCancel(now, c, Reply{}, acts)
		case q.try:
			acts = m.settleAcquire(now, c, Reply{}, acts)
		default:
			q.call, q.callAt, q.retryAt = 0, 0, now.At // no failure: it waits
		}
	}
	for i := range m.grants {
		if g := &m.grants[i]; g.call != 0 && now.At >= g.callAt+m.set.CallTimeout {
			acts = append(acts, Action{Kind: Abort, Call: g.call})
			acts = m.settleRelease(now, call{id: g.call, grant: g.id}, Reply{}, acts)
		}
	}
	return acts
}

func (m *Machine) sendRequests(now Moment, acts []Action) []Action {
	for i := range m.requests {
		q := &m.requests[i]
		if q.call != 0 || now.At < q.retryAt {
			continue
		}
		a := Action{Send: CallAcquire, Request: q.id, Try: q.try}
		if q.cancelling {
			a.Send = CallCancel
		}
		q.callAt = now.At
		q.call, acts = m.send(now, a, acts)
	}
	return acts
}

func (m *Machine) sendReleases(now Moment, acts []Action) []Action {
	for i := range m.grants {
		g := &m.grants[i]
		if g.release && g.call == 0 && now.At >= g.retryAt {
			g.callAt = now.At
			g.call, acts = m.send(now, Action{Send: CallRelease, Grant: g.id, Failed: g.failed}, acts)
		}
	}
	return acts
}

// Wake returns the instant at which Tick is due next; false if never.
func (m *Machine) Wake() (Instant, bool) {
	if m.finished {
		return 0, false
	}
	if m.over {
		if m.endCall != 0 {
			return m.endCallAt + m.set.CallTimeout, true
		}
		if m.endTries > 0 {
			return min(m.endAt, m.overAt+m.set.TTL), true
		}
		return m.endAt, true
	}
	wake := m.Deadline()
	for i := range m.requests {
		if q := &m.requests[i]; q.call != 0 {
			wake = min(wake, q.callAt+m.patience(q))
		} else {
			wake = min(wake, q.retryAt)
		}
	}
	for i := range m.grants {
		switch g := &m.grants[i]; {
		case g.call != 0:
			wake = min(wake, g.callAt+m.set.CallTimeout)
		case g.release:
			wake = min(wake, g.retryAt)
		case g.lingers:
			wake = min(wake, g.lostAt+m.set.TTL)
		}
	}
	if m.pulse.call != 0 {
		wake = min(wake, m.pulse.callAt+m.set.CallTimeout)
	}
	switch {
	case !m.idle && m.pulse.call == 0:
		wake = min(wake, m.pulse.next)
	case m.idle && m.empty():
		wake = min(wake, m.idleSince+m.set.Interval)
	}
	return wake, true
}
