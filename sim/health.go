package sim

import (
	"time"

	"holdfast/internal/planted"
	"holdfast/server/core"
	"holdfast/server/replica"
)

// How often the free space is looked at, and how often while there is too
// little: the real server's five seconds and half a second, in the measure of
// these worlds.
const (
	spaceEvery    = time.Second
	spaceEveryLow = 100 * time.Millisecond
)

func (s *server) push(j job) {
	j.since = s.time()
	s.outstanding = append(s.outstanding, j.since)
	s.disk.push(j)
}

// askSpace looks at the free space now and then.
func (s *server) askSpace() {
	every := spaceEvery
	if s.low {
		every = spaceEveryLow
	}
	if now := s.time(); (s.spaceAsked == 0 || now-s.spaceAsked >= every) && !s.stopping {
		s.spaceAsked = now
		s.push(job{space: true})
	}
}

// collectDisk looks at what the disk has done.
func (s *server) collectDisk() {
	done := s.disk.done
	s.disk.done = nil
	for _, j := range done {
		s.outstanding = s.outstanding[1+j.merged:]
		if j.space {
			if s.low, s.starved = j.full >= lowSpace, j.full >= noGrowth; s.low {
				s.handOver("too little disk space")
			}
			continue
		}
		if j.err != nil {
			s.fail(j.err) // poisoned (D3)
		}
		if s.failed != nil {
			continue
		}
		switch {
		case j.nothing:
		case j.append != nil:
			s.fail(s.m.StorageDone(*j.append, s))
			if j.append.Snapshot != nil {
				s.say("has the state of %d from another member", s.m.State().Index())
				s.w.judge.installed(s)
				s.checkRemoved()
				s.refreshMembers()
			}
		case j.snapshot != nil:
			s.snapshotting = false
			s.fail(s.m.SnapshotSaved(j.snapshot))
		case j.probe:
			s.silent, s.probed = false, false
		}
	}
}

// checkDisk looks at how long the oldest call takes (D2).
func (s *server) checkDisk() {
	s.slow = false
	if len(s.outstanding) == 0 {
		if s.silent && !s.probed {
			s.probed = true
			s.push(job{probe: true})
		}
		return
	}
	age, limit := s.time()-s.outstanding[0], s.diskLimit()
	if age <= limit {
		return
	}
	s.slow = true
	s.handOver("a write to the disk hangs")
	if age > 2*limit && !s.silent && !planted.On("D2-speaks-on") {
		s.silent = true
		s.say("is silent: a write hangs")
		s.w.judge.meet(SilentNode)
	}
}

// diskLimit is how long a call may take: more while it is a large one.
func (s *server) diskLimit() time.Duration {
	limit := electionTicks * s.w.Tick
	if s.m.State().SessionCount() > 0 {
		limit = min(limit, s.w.TTL/4)
	}
	if s.snapshotting || s.m.State().Index() < s.received {
		limit *= 10
	}
	return limit
}

// takeSnapshot takes one when enough was logged. Its bytes are written beside
// the log's calls, under a name that no start looks at; then it waits its turn.
func (s *server) takeSnapshot() {
	entries, _ := s.m.Logged()
	due := entries > 0 && entries >= s.w.SnapshotEvery || s.m.SnapshotWanted()
	if s.failed != nil || s.stopping || s.snapshotting || !due {
		return
	}
	s.snapshotting = true
	view := s.m.View()
	s.in(between(s.rng, time.Millisecond, 20*time.Millisecond)+s.disk.slow, func() { s.stage(view) })
}

// stage hands an encoded snapshot to the disk, unless a received one overtook
// it.
func (s *server) stage(view replica.View) {
	if s.disk.hung > 0 { // look again later
		s.in(5*time.Millisecond, func() { s.stage(view) })
		return
	}
	snap, err := view.Encode()
	switch {
	case err != nil:
		s.fail(&replica.HaltError{Err: err})
	case s.disk.full.level() == noSpace:
		s.fail(errSpace)
	case snap.GetMetadata().GetIndex() <= s.received:
		s.snapshotting = false
	case s.failed == nil && !s.stopping:
		s.say("snapshot of %d", snap.GetMetadata().GetIndex())
		s.push(job{snapshot: snap})
	}
}

// handOver moves leadership to the most caught-up member that is reached and
// fit to lead. It reports whether that was begun, now or lately.
func (s *server) handOver(why string) bool {
	now := s.time()
	if !s.m.Role().Elected || s.m.Alone() {
		return false
	}
	if s.handing(now) {
		return true
	}
	best := s.successor()
	if best == 0 {
		return false
	}
	s.say("hands over to %d: %s", best, why)
	s.handed, s.moved = now, true
	s.m.TransferTo(best)
	return true
}

// successor is the voter who could lead in this one's place; 0: nobody.
func (s *server) successor() (best uint64) {
	progress := s.m.Progress()
	for _, m := range s.members {
		p := progress[m.ID]
		if m.ID == s.id || m.Learner || !p.Active || s.said[m.ID].unfit {
			continue
		}
		if best == 0 || p.Match > progress[best].Match {
			best = m.ID
		}
	}
	return best
}

func (s *server) handing(now time.Duration) bool {
	return s.handed != 0 && now-s.handed < electionTicks*s.w.Tick
}

// unfit reports whether the server should not lead now; it tells the others.
func (s *server) unfit() bool { return s.low || s.slow || s.silent || s.stopping || s.leaving }

// refreshMembers follows the list of members in the state.
func (s *server) refreshMembers() { s.members, _ = s.m.State().Members() }

// changesMembers reports whether an entry changes the list of members.
func changesMembers(cmds []core.Command) bool {
	for _, c := range cmds {
		if _, ok := c.(core.Members); ok {
			return true
		}
	}
	return false
}
