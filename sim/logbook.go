package sim

import (
	"time"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// How often the dear checks are made.
const (
	hashEvery  = 64 // entries
	checkEvery = 16
)

// A logBook is what the members applied, seen from outside: the first who
// applies an entry writes it down, and every other one is held to it.
type logBook struct {
	pages   map[uint64]page
	hashes  map[uint64][32]byte
	last    uint64
	number  uint64                // highest grant number
	clock   core.Clock            // of the latest entry
	granted map[uint64]core.Event // by number
	request map[uint64]place      // by number
	entered time.Duration         // when the latest was applied first
	// suspects reports that a session was suspected after it.
	suspects bool
	recent   []instant // of the latest entries, oldest first
}

// A page is what one entry did.
type page struct {
	term, number uint64
	clock        core.Clock
	revision     core.Revision
	commands     int
}

func newLogBook() logBook {
	return logBook{pages: map[uint64]page{}, hashes: map[uint64][32]byte{}, granted: map[uint64]core.Event{}, request: map[uint64]place{}}
}

// applied compares an entry with what others applied at its place.
func (j *judge) applied(s *server, a replica.Applied) {
	b, st, i := &j.log, s.m.State(), a.Entry.Index
	p := page{a.Entry.Term, st.LastNumber(), st.Clock(), st.Revision(), len(a.Entry.Commands)}
	if old, ok := b.pages[i]; !ok {
		b.pages[i] = p
		j.first(s, a)
	} else if old != p {
		j.object(Diverged, "%s applies %+v at %d, and another one applied %+v", s.name, p, i, old)
	}
	if i%hashEvery == 0 {
		j.hashed(s)
	}
}

// hashed compares a member's state with that of others at the same index.
func (j *judge) hashed(s *server) {
	st := s.m.State()
	h := st.Hash()
	if old, ok := j.log.hashes[st.Index()]; ok && old != h {
		j.object(Diverged, "%s has another state at %d than others had", s.name, st.Index())
	}
	j.log.hashes[st.Index()] = h
}

// first looks at an entry that nobody applied before.
func (j *judge) first(s *server, a replica.Applied) {
	b, st := &j.log, s.m.State()
	if a.Entry.Index != b.last+1 && b.last != 0 {
		j.object(Diverged, "%s applies %d as the first, and the last that anybody applied was %d", s.name, a.Entry.Index, b.last)
	}
	b.last = a.Entry.Index
	if st.Clock() < b.clock {
		j.object(BrokenState, "the clock falls from %v to %v", time.Duration(b.clock), time.Duration(st.Clock()))
	}
	b.clock = st.Clock()
	j.audit.look(a, st.Clock())
	j.entered()
	if len(a.Entry.Commands) > 0 && !changesMembers(a.Entry.Commands) { // the others are in flight beside these
		j.runs(a.Entry.Term, st.Clock())
	}
	for _, e := range a.Did.Events {
		switch e.Kind {
		case core.EventGranted:
			if e.Grant <= b.number {
				j.object(TokensRise, "grant %d after grant %d", e.Grant, b.number)
			}
			b.number = e.Grant
			b.granted[e.Grant] = e
			b.request[e.Grant] = j.audit.entry.asker[e.Grant]
		case core.EventEnded:
			j.w.say("session %d ends at %d: cause %d", j.short(e.Session), a.Entry.Index, e.Cause)
			if e.Cause == core.CauseExpired {
				j.expired(e.Session)
				j.sessionExpired(e.Session)
			}
		case core.EventOpened:
			j.alive[e.Session] = max(j.alive[e.Session], 0)
			j.heard(e.Session)
		}
	}
	if a.Entry.Index%checkEvery == 0 {
		if err := st.Check(); err != nil {
			j.object(BrokenState, "%s at %d: %v", s.name, a.Entry.Index, err)
		}
	}
}

// told checks that what a client was told stands in the log.
func (b *logBook) told(j *judge, h *hold, q *want) {
	e, ok := b.granted[h.number]
	switch {
	case !ok:
		j.object(AckedLost, "%s was told of grant %d, which is in no log", h.s.c.name, h.number)
	case b.request[h.number].request != core.Request(q.request):
		j.object(OneRequest, "%s was told of grant %d for request %v, and the log has it for %v", h.s.c.name, h.number, q.request, b.request[h.number].request)
	case e.Lock != h.lock.name || e.Token != h.token.Number || e.Session != h.s.id:
		j.object(AckedLost, "%s was told of grant %d of %s with token %d, and the log says %s, token %d", h.s.c.name, h.number, h.lock.name, h.token.Number, e.Lock, e.Token)
	}
}

// end is what must be true when the world was left alone for long enough.
func (j *judge) end() {
	if j.w.stopped {
		return
	}
	lead := j.w.leader()
	for _, s := range j.w.servers {
		if s.up {
			role := s.m.Role()
			s.say("at the end: index %d, term %d, leader %d, silent %v, probed %v, %d calls of the disk under way, hung %d busy %v jobs %d broken %v done %d slow %v", s.m.State().Index(), role.Term, role.Leader, s.silent, s.probed, len(s.outstanding), s.disk.hung, s.disk.busy, len(s.disk.jobs), s.disk.broken, s.disk.slow)
		}
	}
	if lead == nil {
		j.object(NotSettled, "nobody leads")
		return
	}
	for _, s := range j.w.servers {
		if !s.up {
			continue
		}
		if err := s.m.State().Check(); err != nil {
			j.object(BrokenState, "%s at the end: %v", s.name, err)
		}
		if s.m.State().Index()+50 < lead.m.State().Index() {
			j.object(NotSettled, "%s is at %d, the leader at %d", s.name, s.m.State().Index(), lead.m.State().Index())
		}
		j.hashed(s)
	}
	lead.m.State().EachSessionTiming(func(t core.SessionTiming) bool {
		j.outlived(t.ID)
		return true
	})
	j.due.all()
	// A leader, the end of a dead holder, the delay of its lock, and then all
	// who stand before it in the queue.
	limit := 4*j.w.TTL + 40*j.w.Tick + 2*time.Second
	for _, c := range j.w.clients {
		for _, x := range c.sessions {
			for _, q := range x.sortedWants() {
				if age := j.w.now - q.asked; !q.done && age > limit && j.w.now-j.w.Faulty > limit {
					j.object(NotServed, "%s waits for %s since %v", c.name, q.lock.name, q.asked)
				}
			}
		}
	}
	j.histories()
}
