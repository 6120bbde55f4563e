package sim

// Orphan is what a client must never leave behind (C2, C4).
const Orphan Property = "nothing is held that its client knows nothing of (C2)"

// retired checks, when a client ends a session because nothing needs it, that
// the service agrees: every request has had its final answer, and every grant
// was released, so that nothing is held by the session, and nothing waits.
func (j *judge) retired(s *session) {
	if s.cloned { // its other half may hold something
		return
	}
	grants, waits := 0, 0
	for _, name := range j.audit.names { // what members applied; one that just started knows less
		for _, h := range j.audit.locks[name].holders {
			if h.session == s.id {
				grants++
			}
		}
		for _, q := range j.audit.locks[name].queue {
			if q.session == s.id {
				waits++
			}
		}
	}
	if grants+waits > 0 {
		j.object(Orphan, "%s needs session %d no longer, which has %d grants and %d waits", s.c.name, j.short(s.id), grants, waits)
	}
}
