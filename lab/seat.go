package lab

import (
	"time"

	"holdfast/lab/stage"
)

// A standing is what a worker believes of itself.
type standing string

// The standings of a worker.
const (
	idle    standing = "idle"
	asking  standing = "asking"  // it asked for the lock; no answer yet
	waiting standing = "waiting" // it is in the queue
	holds   standing = "holds"
	lost    standing = "lost" // it knows that it lost the lock
)

// A seat is one of the two workers as its world knows it. Only the world's
// goroutine touches it.
type seat struct {
	name  string
	value string // what the visitor wants it to write

	worker   stage.Worker // nil: no process runs
	told     string       // the value that the worker was told
	standing standing
	token    uint64 // what it holds, or believes to hold; 0 for none
	stopped  bool
	// poised: it stands before a write with that ticket, behind its look.
	poised    bool
	ticket    uint64
	stoppedAt time.Time
	// vain: its last look found the lock lost, and its complaint about that
	// is still to come.
	vain    bool
	hearing bool   // the service is being asked how long it waits for it
	ended   string // its last words, if it ended by itself
	errand  *errand
}

// An errand is an action that is under way.
type errand struct {
	do       string
	reply    chan<- outcome
	answered bool // the visitor was answered; the errand goes on
	timer    *time.Timer
}

// An outcome is what became of an action.
type outcome struct {
	seq uint64
	err error
}

// answer tells the visitor once.
func (e *errand) answer(o outcome) {
	if !e.answered {
		e.answered = true
		e.timer.Stop()
		e.reply <- o
	}
}

// refuses says why the worker cannot do that now; nil if it can.
func (s *seat) refuses(do string) error {
	if s.errand != nil && (do != doKill || !s.errand.answered) {
		return notNowf("%s is still about to %s: wait for it", s.name, s.errand.do)
	}
	if do == doValue {
		return nil
	}
	if do == doStart {
		if s.worker != nil {
			return notNowf("%s is running", s.name)
		}
		return nil
	}
	if s.worker == nil {
		return notNowf("%s is dead: start it first", s.name)
	}
	switch {
	case do == doKill:
		return nil
	case do == doWake && !s.stopped:
		return notNowf("%s is not stopped", s.name)
	case do == doPause && s.stopped:
		return notNowf("%s is stopped already", s.name)
	case do == doWake, do == doPause:
		return nil
	case s.stopped:
		return notNowf("%s is stopped: wake it first", s.name)
	}
	return s.refusesStanding(do)
}

// refusesStanding is the part that depends on the lock.
func (s *seat) refusesStanding(do string) error {
	waits := s.standing == asking || s.standing == waiting
	switch {
	case do == doAcquire && s.standing == holds:
		return notNowf("%s holds %d already", s.name, s.token)
	case do == doAcquire && waits:
		return notNowf("%s is waiting already", s.name)
	case do == doAcquire, s.standing == holds, do == doRelease && waits:
		return nil
	case do == doRelease:
		return notNowf("%s holds nothing", s.name)
	case s.standing == lost:
		return notNowf("%s knows that it lost its lease: acquire again", s.name)
	}
	return notNowf("%s holds no ticket: acquire first", s.name)
}
