package sim

import "holdfast/server/core"

// restored tells that the service began anew after an entry. Its log is
// another one from there on: what the old one had beyond that never happened,
// and all sessions are void. Numbers go on rising, whatever was lost.
func (j *judge) restored(index uint64) {
	old := j.log
	j.log = newLogBook()
	j.log.number, j.log.granted, j.log.request, j.log.last = old.number, old.granted, old.request, index
	fresh := newAudit(j)
	fresh.raised = true
	j.audit, j.due, j.tale.from = fresh, newDues(j), j.w.now
	for id := range j.alive { // each on its own: the order does not matter
		j.byOperator[id] = true
	}
}

// endsSession notes that an operator has a session ended: it breaks the promise
// for all that the session holds, as a revoke at once does.
func (j *judge) endsSession(id core.SessionID) {
	j.byOperator[id] = true
	for n, h := range j.clients.holds { // each on its own: the order does not matter
		if h.s.id == id {
			j.breaks(n)
		}
	}
}

// breaks says that no promise stands for a grant any more.
func (j *judge) breaks(number uint64) {
	j.tale.mayEnd(number, j.w.now)
	if g := j.tale.grants[number]; g != nil {
		g.exempt = true
	}
}

// unbound reports whether no promise stands for a session: clones share it, an
// operator ended it, or the service began anew without it. Gates must do.
func (s *session) unbound() bool { return s.cloned || s.c.w.judge.byOperator[s.id] }

func (h *hold) unbound() bool { return h.s.unbound() }
