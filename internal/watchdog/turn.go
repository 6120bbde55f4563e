package watchdog

import (
	"maps"
	"slices"
	"time"
)

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
	for _, id := range slices.Sorted(maps.Keys(m.calls)) {
		acts = append(acts, Action{Kind: Abort, Call: id})
	}
	for i, g := range m.grants {
		if g.known && g.lost == 0 && !g.asked {
			acts = m.lose(at, i, cause, "", acts)
		}
	}
	acts = append(acts, Action{Kind: SessionOver, Cause: cause})
	for i := range m.lanes {
		m.drop(i)
	}
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
	for i, g := range m.grants {
		if g.asked {
			acts = append(acts, Action{Kind: GrantReleased, Grant: g.id})
		}
		if g.known {
			m.forget(i)
		}
	}
	m.finished = true
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
	if p := m.pulse; p.call != 0 && now.At >= p.callAt+m.set.CallTimeout {
		acts = append(acts, Action{Kind: Abort, Call: p.call})
		acts = m.settleKeepalive(now, call{id: p.call, kind: CallKeepalive, sent: p.callAt}, Reply{}, acts)
	}
	for d, ok := m.dueRequests.first(); ok && d.at <= now.At; d, ok = m.dueRequests.first() {
		acts = m.turnRequest(now, d.n, acts)
	}
	for d, ok := m.dueGrants.first(); ok && d.at <= now.At; d, ok = m.dueGrants.first() {
		acts = m.turnGrant(now, d.n, acts)
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
func (m *Machine) empty() bool { return len(m.freeLanes.heap) == len(m.lanes) && len(m.slots) == 0 }

// needed reports whether something is held or waited for (promise 6). What was
// politely revoked is still held at the service until its owner has stopped;
// the service frees it one TTL later in any case.
func (m *Machine) needed() bool { return m.needing > 0 }

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
	if now.At >= m.endAt || m.endTries == 0 && m.out == 0 { // no owner of a grant may still be at work
		m.endCallAt = now.At
		m.endCall, acts = m.send(now, Action{Send: CallEnd}, acts)
	}
	return acts
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

// turnRequest does what is due about the request of a lane. A call that takes
// too long is no longer waited for, so that the next try never depends on an
// answer to the last.
func (m *Machine) turnRequest(now Moment, lane int, acts []Action) []Action {
	q := m.lanes[lane].request
	if q.call == 0 {
		a := Action{Send: CallAcquire, Request: q.id, Try: q.try}
		if q.cancelling {
			a.Send = CallCancel
		}
		m.changeRequest(lane, func(q *request) {
			q.callAt = now.At
			q.call, acts = m.send(now, a, acts)
		})
		return acts
	}
	acts = append(acts, Action{Kind: Abort, Call: q.call})
	switch c := (call{id: q.call, sent: q.callAt, request: q.id}); {
	case q.cancelling:
		return m.settleCancel(now, c, Reply{}, acts)
	case q.try:
		return m.settleAcquire(now, c, Reply{}, acts)
	}
	m.changeRequest(lane, func(q *request) { q.call, q.callAt, q.retryAt = 0, 0, now.At }) // no failure: it waits
	return acts
}

// turnGrant does what is due about the grant in a slot.
func (m *Machine) turnGrant(now Moment, slot int, acts []Action) []Action {
	switch g := m.grants[slot]; {
	case g.call != 0:
		acts = append(acts, Action{Kind: Abort, Call: g.call})
		return m.settleRelease(now, call{id: g.call, grant: g.id}, Reply{}, acts)
	case g.release:
		a := Action{Send: CallRelease, Grant: g.id, Failed: g.failed}
		m.changeGrant(slot, func(g *grant) {
			g.callAt = now.At
			g.call, acts = m.send(now, a, acts)
		})
	default:
		m.changeGrant(slot, func(g *grant) { g.lingers = false })
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
	if d, ok := m.dueRequests.first(); ok {
		wake = min(wake, d.at)
	}
	if d, ok := m.dueGrants.first(); ok {
		wake = min(wake, d.at)
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
