package core

// Taken is a grant that was taken back from its session (B11).
type Taken struct {
	Tombstone
	// Held: marked, and held until it is acknowledged or freed. Else it is
	// gone, and remembered until it is acknowledged.
	Held bool
}

// TakenBack returns what a session must be told that it loses or lost: its
// grants that are marked as revoked, then its tombstones, each by number. It
// looks at the session's own grants only, so every keepalive can ask.
func (s *State) TakenBack(id SessionID) (out []Taken) {
	s.eachGrantOf(id, func(g *grant) bool {
		if g.revoked {
			out = append(out, Taken{Tombstone{Grant: g.Number, Lock: g.Lock, Cause: g.cause, By: g.by}, true})
		}
		return true
	})
	if x, ok := s.session(id); ok && x.tombs > 0 {
		for _, d := range s.tombsOf(id) {
			out = append(out, Taken{d.Tombstone, false})
		}
	}
	return out
}

// SessionLoad is how many grants, waits and bound values the end of a session
// removes; 0 for one that is not there.
func (s *State) SessionLoad(id SessionID) int {
	x, ok := s.session(id)
	if !ok {
		return 0
	}
	return x.load()
}
