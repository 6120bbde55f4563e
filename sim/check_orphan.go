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
	var newest *server
	for _, o := range j.w.servers {
		if o.up && (newest == nil || o.m.State().Index() > newest.m.State().Index()) {
			newest = o
		}
	}
	if newest == nil {
		return
	}
	if v, ok := newest.m.State().Session(s.id); ok && len(v.Grants)+len(v.Waits) > 0 {
		j.object(Orphan, "%s needs session %d no longer, which has %d grants and %d waits", s.c.name, j.short(s.id), len(v.Grants), len(v.Waits))
	}
}
