package sim

import "holdfast/server/core"

// gather takes the next entry's commands: the lease machine's, then what frees
// or keeps alive, then new work, each in order of arrival, as far as one entry
// may hold them (D8).
func (s *server) gather() []proposal {
	e := entry{server: s}
	s.first = e.take(s.first)
	s.urgent = e.take(s.urgent)
	s.ordinary = e.take(s.ordinary)
	return e.items
}

// An entry that is being filled.
type entry struct {
	server *server
	items  []proposal
	ends   int
	full   bool
}

// take moves commands from the head of a queue until the entry is full, and
// returns the rest.
func (e *entry) take(queue []proposal) []proposal {
	w, st := e.server.w, e.server.m.State()
	for i, p := range queue {
		ends := endsOf(st, p.cmd)
		fits := len(e.items) == 0 || len(e.items) < w.EntryCommands && (ends == 0 || e.ends+ends <= w.EntryEnds)
		if e.full = e.full || !fits; e.full {
			return queue[i:]
		}
		e.items = append(e.items, p)
		if p.audit != nil && st.Version() >= core.VersionOf(*p.audit) {
			e.items = append(e.items, proposal{cmd: *p.audit, quiet: true})
		}
		e.ends += ends
	}
	return nil
}

// endsOf is how much a command removes beyond itself.
func endsOf(st *core.State, cmd core.Command) int {
	switch c := cmd.(type) {
	case core.End:
		return st.EndCost(c.ID)
	case core.Expire:
		return st.EndCost(c.ID)
	case core.Release:
		return st.GrantEndCost(c.Grant, !c.Failed)
	case core.Revoke:
		return st.RevokeCost(c)
	case core.Reopen:
		return st.ReopenCost(c.Lock)
	case core.Cancel:
		if req, r, ok := st.Lane(c.Session, c.Request.Lane); ok && req == c.Request && r.Status == core.Granted {
			return st.GrantEndCost(r.Grant.Number, false)
		}
	}
	return 0
}
