package sim

import "holdfast/server/replica"

// Early is what an office must not begin before (B3).
const Early Property = "an office starts with its own first entry (B3)"

// leadsEarly checks that the last entry which a new leader applied is of its own
// term: before that it does not know what it inherited.
func (j *judge) leadsEarly(s *server, r replica.Role) {
	at := s.m.State().Index()
	if p, ok := j.log.pages[at]; ok && p.term != r.Term {
		j.object(Early, "%s leads in term %d, and has applied entry %d of term %d", s.name, r.Term, at, p.term)
	}
}
