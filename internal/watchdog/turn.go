package watchdog

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
		if now.At < m.sentAt(m.endCall)+m.set.CallTimeout {
			return acts
		}
		acts = append(acts, Action{Kind: Abort, Call: m.endCall})
		m.endCall = 0
		m.endTries++
		m.endAt = now.At + m.backoff(now, m.endTries)
	}
	if m.endTries > 0 && now.At >= m.overAt+m.set.TTL {
		return m.done(acts)
	}
	if now.At >= m.endAt || m.endTries == 0 && m.handlesBack() {
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

// patience is how long a call may take before it is given up and made again.
// A waiting acquire is asked again after a TTL, which heals a lost wake-up.
func (m *Machine) patience(c call) Instant {
	if c.kind == CallAcquire {
		if i := m.findRequest(c.request); i >= 0 && !m.requests[i].try {
			return m.set.TTL
		}
	}
	return m.set.CallTimeout
}

// giveUpCalls stops waiting for calls that take too long, so that the next try
// never depends on an answer to the last.
func (m *Machine) giveUpCalls(now Moment, acts []Action) []Action {
	for _, c := range m.calls {
		if now.At < c.sent+m.patience(c) || !m.counts(c) {
			continue
		}
		acts = append(acts, Action{Kind: Abort, Call: c.id})
		switch c.kind {
		case CallAcquire:
			if i := m.findRequest(c.request); !m.requests[i].try {
				m.requests[i].call, m.requests[i].retryAt = 0, now.At
				continue
			}
			acts = m.settleAcquire(now, c, Reply{Verdict: Retry}, acts)
		case CallKeepalive:
			acts = m.settleKeepalive(now, c, Reply{Verdict: Retry}, acts)
		case CallCancel:
			acts = m.settleCancel(now, c, Reply{Verdict: Retry}, acts)
		case CallRelease:
			acts = m.settleRelease(now, c, Reply{Verdict: Retry}, acts)
		}
	}
	return acts
}

// counts reports whether c is the call that its keepalive, request or grant
// waits for; others were given up before.
func (m *Machine) counts(c call) bool {
	switch c.kind {
	case CallKeepalive:
		return c.id == m.pulse.call
	case CallAcquire, CallCancel:
		i := m.findRequest(c.request)
		return i >= 0 && m.requests[i].call == c.id
	case CallRelease:
		i := m.findGrant(c.grant)
		return i >= 0 && m.grants[i].call == c.id
	}
	return false
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
		q.call, acts = m.send(now, a, acts)
	}
	return acts
}

func (m *Machine) sendReleases(now Moment, acts []Action) []Action {
	for i := range m.grants {
		g := &m.grants[i]
		if g.release && g.call == 0 && now.At >= g.retryAt {
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
			return m.sentAt(m.endCall) + m.set.CallTimeout, true
		}
		if m.endTries > 0 {
			return min(m.endAt, m.overAt+m.set.TTL), true
		}
		return m.endAt, true
	}
	wake := m.Deadline()
	for _, c := range m.calls {
		if m.counts(c) {
			wake = min(wake, c.sent+m.patience(c))
		}
	}
	for i := range m.requests {
		if m.requests[i].call == 0 {
			wake = min(wake, m.requests[i].retryAt)
		}
	}
	for i := range m.grants {
		if g := &m.grants[i]; g.release && g.call == 0 {
			wake = min(wake, g.retryAt)
		} else if g.lingers {
			wake = min(wake, g.lostAt+m.set.TTL)
		}
	}
	switch {
	case !m.idle && m.pulse.call == 0:
		wake = min(wake, m.pulse.next)
	case m.idle && m.empty():
		wake = min(wake, m.idleSince+m.set.Interval)
	}
	return wake, true
}
