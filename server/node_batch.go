package server

import "holdfast/server/core"

// gather takes the next entry's commands: the lease machine's, then what frees
// or keeps alive, then new work, each in order of arrival.
func (l *loop) gather() []proposal {
	b := batch{state: l.m.State()}
	l.first = b.take(l.first)
	l.urgent = b.take(l.urgent)
	l.ordinary = b.take(l.ordinary)
	return b.items
}

// batch is an entry being filled.
type batch struct {
	state *core.State
	items []proposal
	bytes int
	ends  int
	full  bool
}

// take moves commands from the head of a queue until the entry is full, and
// returns the rest.
func (b *batch) take(queue []proposal) []proposal {
	for i, p := range queue {
		bytes, ends := size(p.cmd), b.endsOf(p.cmd)
		record := b.recordOf(p)
		if record != nil {
			bytes += size(*record)
		}
		fits := len(b.items) == 0 || (len(b.items) < maxEntryCommands && b.bytes+bytes <= maxEntryBytes && (ends == 0 || b.ends+ends <= maxEntryEnds))
		if b.full || !fits {
			b.full = true
			return queue[i:]
		}
		b.items = append(b.items, p)
		if record != nil {
			b.items = append(b.items, proposal{cmd: *record, sink: func(Answer) {}})
		}
		b.bytes, b.ends = b.bytes+bytes, b.ends+ends
	}
	return nil
}

// endsOf is how much a command removes beyond itself: with a session, or from
// the queue of a lock that it frees.
func (b *batch) endsOf(cmd core.Command) int {
	switch c := cmd.(type) {
	case core.End:
		return b.state.EndCost(c.ID)
	case core.Expire:
		return b.state.EndCost(c.ID)
	case core.Release:
		return b.state.GrantEndCost(c.Grant, !c.Failed)
	case core.Revoke:
		return b.state.RevokeCost(c)
	case core.Reopen:
		return b.state.ReopenCost(c.Lock)
	case core.Cancel:
		if req, r, ok := b.state.Lane(c.Session, c.Request.Lane); ok && req == c.Request && r.Status == core.Granted {
			return b.state.GrantEndCost(r.Grant.Number, false)
		}
	}
	return 0
}

// size is about how many bytes a command takes in the log.
func size(cmd core.Command) int {
	const fixed = 160
	switch c := cmd.(type) {
	case core.Open:
		return fixed + len(c.Label) + len(c.Host)
	case core.Acquire:
		return fixed + len(c.Lock) + len(c.Value)
	case core.Put:
		return fixed + len(c.Lock) + len(c.Value)
	case core.Delete:
		return fixed + len(c.Lock)
	case core.Revoke:
		return fixed + len(c.Lock) + len(c.By)
	case core.Audit:
		return fixed + auditBytes(c)
	case core.Suspect:
		return fixed + 10*len(c.Sessions)
	case core.Clear:
		return fixed + 10*len(c.Sessions)
	}
	return fixed
}
