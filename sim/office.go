package sim

import (
	"time"

	"holdfast/server/core"
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
}

// watchOffice samples for ever.
func (j *judge) watchOffice() {
	j.sampleOffice()
	j.w.after(j.w.Tick, j.watchOffice)
}

func (j *judge) sampleOffice() {
	o, w := &j.office, j.w
	lead := w.leader()
	if lead == nil {
		o.leader, o.good, o.at = nil, false, w.now
		return
	}
	if term := lead.m.Role().Term; lead != o.leader || term != o.term {
		o.leader, o.term, o.since, o.good = lead, term, w.now, false
	}
	good := w.now-o.since > max(w.TTL/8, 4*w.Tick) && w.connected(lead)
	if good && o.good {
		o.served += w.now - o.at
	}
	o.good, o.at = good, w.now
}

// connected reports whether a server and a majority of the members work and
// reach each other.
func (w *world) connected(s *server) bool {
	members, _ := s.m.State().Members()
	voters, able := 0, 0
	for _, m := range members {
		if m.Learner {
			continue
		}
		voters++
		if o := w.serverOf(m.ID); o != nil && o.works() && w.joined(s, o) {
			able++
		}
	}
	return s.works() && 2*able > voters
}

// works reports whether nothing keeps a server from doing its work now.
func (s *server) works() bool {
	return s.up && s.still == 0 && !s.silent && !s.low && s.disk.hung == 0 && s.disk.slow == 0 && !s.disk.fail
}

// joined reports whether two servers reach each other at full speed.
func (w *world) joined(a, b *server) bool {
	if a == b {
		return true
	}
	there, back := w.net.line(&a.process, &b.process), w.net.line(&b.process, &a.process)
	return there.cuts+back.cuts == 0 && there.slow+back.slow == 0
}

// heard notes that a server read a call that keeps a session.
func (j *judge) heard(id core.SessionID) {
	j.sampleOffice()
	j.last[id] = j.office.served
}

// outlived checks, when a silent session has not ended or just ended, that it
// was not kept for longer than B7 allows. Where many messages are late or lost
// a leader may be in office and get nothing committed: nothing is said there.
func (j *judge) outlived(id core.SessionID) {
	if j.w.Rates[Drop]+j.w.Rates[Delay] > 2000 {
		return
	}
	j.sampleOffice()
	at, ok := j.last[id]
	limit := 2*j.w.TTL + j.w.TTL*time.Duration(2*j.w.Skew)/1_000_000 + j.w.TTL/4 + 10*j.w.Tick
	if age := j.office.served - at; ok && age > limit {
		j.object(Immortal, "session %d was last heard %v of a leader's time ago, and 2 × TTL is %v", j.short(id), age, 2*j.w.TTL)
	}
}
