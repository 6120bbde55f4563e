package sim

import (
	"slices"
	"time"

	"holdfast/server/core"
	"holdfast/server/lease"
	"holdfast/server/replica"
)

// An instant is when an entry was applied first.
type instant struct {
	at    time.Duration
	clock core.Clock
	term  uint64
	timed bool  // sessions lived: a gap is a stall
	stood stood // of who led then
}

// stood is how long a process has stood still in all, and how often.
type stood struct {
	long  time.Duration
	times int
}

// runs checks that the log's clock runs no faster than time, less what its
// leader stood still (B2, B9). An entry's clock is of when it was proposed; a
// leader has one in flight, so that the entry before it had been applied.
func (j *judge) runs(term uint64, clock core.Clock) {
	b, w := &j.log, j.w
	here := instant{at: w.now, clock: clock, term: term, timed: len(j.audit.live) > 0}
	lead := w.ledBy(term)
	if lead != nil {
		here.stood = lead.stoodStill()
	}
	if n := len(b.recent); n == 2 {
		took := w.now - b.recent[0].at
		stall := w.stall() // a gap up to this is none
		if lead != nil && b.recent[0].term == term && b.recent[0].timed && b.recent[1].timed {
			was := b.recent[0].stood
			took -= max(0, here.stood.long-was.long-time.Duration(here.stood.times-was.times+1)*2*stall)
		}
		limit := took + took*time.Duration(w.Skew)/1_000_000 + time.Millisecond
		if ran := time.Duration(clock - b.recent[n-1].clock); ran > limit {
			j.object(ClockRuns, "the log's clock runs %v, and its leader ran for at most %v", ran, took)
		}
		b.recent = b.recent[1:]
	}
	b.recent = append(b.recent, here)
}

// ledBy is the server that was elected in a term, if it is known.
func (w *world) ledBy(term uint64) *server {
	i := slices.IndexFunc(w.servers, func(s *server) bool { return s.up && s.m.Role().Elected && s.m.Role().Term == term })
	if i < 0 {
		return nil
	}
	return w.servers[i]
}

// proposes checks what a leader proposes: no expiry of a session whose call has
// lain in its socket for longer than a stall may pass unnoticed (B9).
func (j *judge) proposes(s *server, c core.Command) {
	e, ok := c.(core.Expire)
	if r, frees := c.(core.Revoke); !ok && (!frees || !r.Free) {
		return
	}
	if s.stalled > max(s.leadsSince, j.audit.idle) && s.drained < s.stalled {
		j.object(Unread, "%s ends what is due at once after a stall, and has not read its connections (B9)", s.name)
	}
	long := j.w.stall() + 10*time.Millisecond
	for _, m := range s.socket {
		if m.call == callKeepalive && m.session == e.ID && j.w.now-m.reached > long {
			j.object(Unread, "%s expires session %d, whose keepalive has lain unread for %v", s.name, j.short(e.ID), j.w.now-m.reached)
		}
	}
}

// untold checks an answer to a keepalive that arrived while a polite revoke of
// its session was in flight: it must wait for the revoke (B11).
func (j *judge) untold(s *server, m message) {
	if s.flight == nil || s.flight.since > m.read {
		return
	}
	for _, p := range s.flight.items {
		r, ok := p.cmd.(core.Revoke)
		if !ok || r.Now || r.Free {
			continue
		}
		if h, held := s.m.State().GrantByNumber(r.Grant); held && h.Session == m.session && !h.Revoked {
			j.object(Untold, "%s answers a keepalive of session %d, and a revoke of its grant %d is in flight (B11)", s.name, j.short(m.session), r.Grant)
		}
	}
}

// stuck checks a leader in office: no keepalive and no entry takes long.
func (j *judge) stuck(s *server) {
	long := 100*j.w.Tick + 100*time.Millisecond                           // a member may need a snapshot first, and a second one
	if j.office.stretch < long || j.w.Rates[Delay] > 0 || j.w.garbled() { // what is late holds up what comes behind it
		return
	}
	if f := s.flight; f != nil && j.w.now-f.since > long {
		j.object(Late, "%s has an entry in flight for %v, and is in office", s.name, j.w.now-f.since)
	}
	var oldest lease.Handle
	for h, m := range s.pulses { // in any order: the lowest is taken
		if j.w.now-m.read > long && (oldest == 0 || h < oldest) {
			oldest = h
		}
	}
	if oldest != 0 {
		j.object(Late, "%s has had a keepalive for %v, and is in office", s.name, j.w.now-s.pulses[oldest].read)
	}
}

// snapshotWritten checks that a snapshot lies behind its commit index (D4).
func (j *judge) snapshotWritten(d *disk, index uint64) {
	if d.hard.GetCommit() < index {
		j.object(SnapshotBehind, "%s writes a snapshot of %d, and its durable commit index is %d", d.s.name, index, d.hard.GetCommit())
	}
}

// speaks checks that a server whose disk hangs says nothing (D2). It looks at its
// disk at each turn, of which one comes with each tick.
func (j *judge) speaks(s *server) {
	if len(s.outstanding) == 0 || s.time()-s.outstanding[0] <= 2*s.diskLimit() {
		s.spoke = 0
		return
	}
	if s.spoke = max(s.spoke, s.steady); s.spoke == s.steady {
		s.spoke = j.w.now // since then
	}
	if j.w.now-s.spoke > 4*j.w.Tick {
		j.object(Speaks, "%s sends, and a write has taken %v (D2)", s.name, s.time()-s.outstanding[0])
	}
}

// role notes who leads.
func (j *judge) role(s *server, r replica.Role) {
	if !r.Leads || s.leading {
		return
	}
	s.leadsSince, s.drained = j.w.now, j.w.now
	j.leadsEarly(s, r)
	for _, o := range j.w.servers {
		if o != s && o.up && o.leading && o.m.Role().Term != r.Term {
			j.meet(TwoLeaders)
		}
	}
}

// unknown notes what was in flight when leadership was lost.
func (j *judge) unknown(items []proposal) {
	j.meet(UnknownOutcome)
	for _, p := range items {
		switch p.cmd.(type) {
		case core.Expire:
			j.meet(DeposedWithExpiry)
		case core.Revoke:
			j.meet(DeposedWithRevoke)
		}
	}
}

// draining notes what lies unread when a drain begins.
func (j *judge) draining(s *server) {
	j.meet(DrainAfterStall)
	for _, m := range s.socket {
		if m.call == callKeepalive {
			j.meet(DrainFinds)
			return
		}
	}
}

// installed notes that a member took its state from another one.
func (j *judge) installed(s *server) {
	j.meet(SnapshotOverGap)
	j.hashed(s)
}

// serverDied notes that not all servers work.
func (j *judge) serverDied(*server) { j.office.whole = j.w.now }
