package sim

import (
	"time"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// An office is how long the service was led by somebody whose office counts
// (B7): in office for long enough, running, with a disk that works, and
// connected to a majority that does too. It is sampled.
type office struct {
	served time.Duration // how long, in all
	leader *server
	term   uint64
	since  time.Duration
	good   bool // at the latest sample
	at     time.Duration
	// stretch is how long it has been good without a break, and whole since
	// when all servers have worked and reached each other.
	stretch time.Duration
	whole   time.Duration
	// offices is how many there were.
	offices int
	// counted is as B7 counts: an office that lasts for long enough counts
	// from its beginning; run is how long this one has lasted.
	counted, run time.Duration
	ran          bool // at the latest sample
}

// heardAt is when a session was last heard, in the time of offices.
type heardAt struct{ served, counted time.Duration }

// watchOffice samples for ever.
func (j *judge) watchOffice() {
	j.sampleOffice()
	j.ticks()
	if !j.w.messy() && !j.w.allWork() {
		j.office.whole = j.w.now
	}
	j.w.after(j.w.Tick, j.watchOffice)
}

func (j *judge) sampleOffice() {
	o, w := &j.office, j.w
	lead := w.leader()
	if lead == nil {
		o.leader, o.good, o.at, o.stretch, o.run, o.ran = nil, false, w.now, 0, 0, false
		return
	}
	if term := lead.m.Role().Term; lead != o.leader || term != o.term {
		o.leader, o.term, o.since, o.good, o.run, o.ran = lead, term, w.now, false, 0, false
		o.offices++
	}
	runs := w.connected(lead) && !lead.slow && !lead.handing(lead.time())
	o.count(w, runs)
	good := runs && w.now-o.since > max(w.TTL/8, 4*w.Tick)
	if good && o.good {
		o.served += w.now - o.at
		o.stretch += w.now - o.at
	} else {
		o.stretch = 0
	}
	o.good, o.at = good, w.now
	j.stuck(lead)
}

// count adds to what counts since the latest sample.
func (o *office) count(w *world, runs bool) {
	least := max(w.TTL/8, 4*max(w.TTL/32, 100*time.Millisecond))
	switch was := o.run; {
	case !runs || !o.ran:
		o.run = 0
	default:
		o.run += w.now - o.at
		if was > least {
			o.counted += o.run - was
		} else if o.run > least {
			o.counted += o.run
		}
	}
	o.ran = runs
}

// connected reports whether a server and a majority of the members work and
// reach each other.
func (w *world) connected(s *server) bool {
	members, _ := s.m.State().Members()
	voters, able := 0, 0
	progress := s.m.Progress()
	for _, m := range members {
		if m.Learner {
			continue
		}
		voters++
		if o := w.serverOf(m.ID); o != nil && o.works() && w.joined(s, o) && w.follows(s, o, progress[m.ID]) {
			able++
		}
	}
	return s.works() && 2*able > voters
}

// follows reports whether a member has what its leader has applied, nearly: one
// that was away for long gets that first, perhaps by a snapshot.
func (w *world) follows(lead, o *server, p replica.Progress) bool {
	const few = 30 // entries
	return o == lead || !p.Snapshot && o.m.State().Index()+few >= lead.m.State().Index()
}

// allWork reports whether all servers work and reach each other.
func (w *world) allWork() bool {
	for _, a := range w.servers {
		if !a.works() {
			return false
		}
		for _, b := range w.servers {
			if !w.joined(a, b) {
				return false
			}
		}
	}
	return true
}

// works reports whether nothing keeps a server from doing its work now.
func (s *server) works() bool {
	return s.up && s.still == 0 && !s.silent && !s.low && s.disk.hung == 0 && s.disk.slow == 0 && !s.disk.lags && s.disk.fail == 0
}

// joined reports whether two servers reach each other at full speed.
func (w *world) joined(a, b *server) bool {
	if a == b {
		return true
	}
	there, back := w.net.line(&a.process, &b.process), w.net.line(&b.process, &a.process)
	late := max(there.last, back.last)-w.now > 20*time.Millisecond // something on its way holds up the rest
	return there.cuts+back.cuts == 0 && there.slow+back.slow == 0 && !late
}

// heard notes that a server read a call that keeps a session.
func (j *judge) heard(id core.SessionID) {
	j.sampleOffice()
	j.last[id] = heardAt{j.office.served, j.office.counted}
}

// outlived checks, when a silent session has not ended or just ended, that it
// was not kept for longer than B7 allows. Where many messages are late or lost
// a leader may be in office and get nothing committed: nothing is said there.
func (j *judge) outlived(id core.SessionID) {
	if j.w.garbled() {
		return
	}
	j.sampleOffice()
	at, ok := j.last[id]
	within := 3 * j.w.TTL / 2
	limit := within + j.w.late(within)
	if age := j.office.served - at.served; ok && age > limit {
		j.object(Immortal, "session %d was last heard %v of a leader's time ago, and 2 × TTL is %v", j.short(id), age, 2*j.w.TTL)
	}
	limit = 2*j.w.TTL + j.w.late(2*j.w.TTL) + j.w.TTL/16
	if age := j.office.counted - at.counted; ok && age > limit {
		j.object(Immortal, "session %d was last heard %v ago, as B7 counts, and 2 × TTL is %v", j.short(id), age, 2*j.w.TTL)
	}
}
