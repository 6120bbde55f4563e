package sim

import (
	"holdfast/internal/watchdog"
	"holdfast/server/core"
)

// promises are what clients count on, as they see it.
type promises struct {
	sessions map[core.SessionID]*session
	holds    map[uint64]*hold
	over     map[uint64]core.Cause // grants that ended otherwise than at once
	now      map[uint64]bool       // grants that an operator frees at once
}

func newPromises() promises {
	return promises{
		sessions: map[core.SessionID]*session{}, holds: map[uint64]*hold{}, over: map[uint64]core.Cause{}, now: map[uint64]bool{},
	}
}

// counts reports whether a client still counts on its session: the log may not
// end it then (B10). Where clocks differ by more than the margin it may.
func (s *session) counts() bool {
	return s.c.up && !s.over && !s.unbound() && !s.c.w.Outside() && s.m.Deadline() > s.c.time()
}

// sessionExpired checks that the client gave up first.
func (j *judge) sessionExpired(id core.SessionID) {
	if s := j.clients.sessions[id]; s != nil && s.counts() {
		j.object(GivesUpFirst, "session %d expires, and %s counts on it for %v more", j.short(id), s.c.name, s.m.Deadline()-s.c.time())
	}
}

// grantOver checks, when a grant ends in the log, that its holder does not
// believe in it any more. Only a revoke at once may end it under its hands.
func (j *judge) grantOver(e core.Event, now bool) {
	defer j.tale.hasEnded(e.Grant, j.w.now)
	if now {
		return
	}
	j.clients.over[e.Grant] = e.Cause
	h := j.clients.holds[e.Grant]
	if h == nil || j.w.Outside() || !h.s.c.up || h.unbound() || j.clients.now[e.Grant] {
		return
	}
	if h.believes() {
		j.object(GivesUpFirst, "grant %d of %s ends by cause %d, and %s believes in it", e.Grant, e.Lock, e.Cause, h.s.c.name)
	}
}

// told keeps a hold, and checks that it is none of a grant that is over.
func (p *promises) told(j *judge, h *hold) {
	p.holds[h.number] = h
	if cause, over := p.over[h.number]; over && !j.w.Outside() && !h.unbound() && !p.now[h.number] && h.believes() {
		j.object(GivesUpFirst, "%s is told of grant %d, which ended by cause %d, and believes in it", h.s.c.name, h.number, cause)
	}
}

// settled checks, when a client took in an answer, that it believes in nothing
// that is over: lost is final.
func (j *judge) settled(s *session) {
	if _, expired := j.ended[s.id]; expired && s.counts() {
		j.object(GivesUpFirst, "%s counts on session %d, which has expired", s.c.name, j.short(s.id))
	}
	if len(s.holds) == 0 || j.w.Outside() {
		return
	}
	for _, h := range s.sortedHolds() {
		if cause, over := j.clients.over[h.number]; over && h.believes() && !h.unbound() && !j.clients.now[h.number] {
			j.object(GivesUpFirst, "%s believes in grant %d, which ended by cause %d", s.c.name, h.number, cause)
		}
	}
}

// revokesNow notes that an operator frees a grant at once: it breaks the
// promise, and is the checkers' only exception (B11).
func (j *judge) revokesNow(number, generation uint64) {
	j.freed[generation] = true
	j.clients.now[number] = true
	j.tale.mayEnd(number, j.w.now)
	if g := j.tale.grants[number]; g != nil {
		g.exempt = true
	}
}

// healthyFor is how long a client must have been well, in TTLs, before the loss
// of its session is the service's fault.
const healthyFor = 3

// sessionOver checks that a healthy session did not die of the service: the
// client ran, all its servers ran, everybody reached everybody, no message was
// late or lost, and for half a TTL without a break somebody was in office.
func (j *judge) sessionOver(s *session, cause watchdog.Cause) {
	if cause == watchdog.Retired {
		j.retired(s)
	}
	if cause == watchdog.Retired || cause == watchdog.Closed {
		return
	}
	j.counts.Lost++
	if s.unbound() {
		return
	}
	if j.audit.live[s.id] {
		j.meet(ClientFirst)
	}
	if cause == watchdog.SessionEnded && s.m.Deadline() > s.c.time() && !j.w.Outside() && s.c.up {
		j.object(Healthy, "%s is told that session %d has ended, on which it counts for %v more", s.c.name, j.short(s.id), s.m.Deadline()-s.c.time())
		return
	}
	if j.w.messy() {
		return
	}
	j.sampleOffice()
	since := j.w.now - healthyFor*j.w.TTL
	if s.opened > since || s.c.steady > since || j.office.whole > since || j.office.stretch < j.w.TTL/2 || j.w.Outside() {
		return
	}
	for _, o := range j.w.servers {
		there, back := j.w.net.line(&s.c.process, &o.process), j.w.net.line(&o.process, &s.c.process)
		if there.cuts+back.cuts > 0 || there.slow+back.slow > 0 || max(there.mended, back.mended) > since {
			return
		}
	}
	j.object(Healthy, "%s loses session %d (%v), and everything was well for %v", s.c.name, j.short(s.id), cause, healthyFor*j.w.TTL)
}

// messy reports that faults happen to single messages.
func (w *world) messy() bool {
	return w.Rates[Drop]+w.Rates[Delay]+w.Rates[Duplicate]+w.Rates[Reorder] > 0
}
