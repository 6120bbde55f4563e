package lease

import (
	"slices"
	"time"

	"holdfast/server/core"
)

// Instant is a reading of CLOCK_MONOTONIC since any fixed start: a duration
// that means nothing outside this process. It must be positive.
type Instant = time.Duration

// Handle names one keepalive between [Machine.Keepalive] and its [Answer]. The
// caller chooses it.
type Handle uint64

// Config is what a Machine must know about its surroundings.
type Config struct {
	// Tick is raft's tick; 0 is 100 ms. A gap above max(2 × Tick, 100 ms)
	// between two turns is a stall (B9).
	Tick time.Duration
}

// Status is the answer to a keepalive.
type Status uint8

// The statuses.
const (
	// Alive: the session lives, and its deadline has moved.
	Alive Status = iota + 1
	// Lost: there is no such session (any more). This is final.
	Lost
	// NotLeader: says nothing about the session; ask the leader.
	NotLeader
)

// String returns the status as a word.
func (s Status) String() string {
	switch s {
	case Alive:
		return "alive"
	case Lost:
		return "lost"
	case NotLeader:
		return "not-leader"
	}
	return "unknown"
}

// An Answer is the answer to one keepalive. What else the client is told
// (revoked grants, contended grants) the caller reads from the applied state at
// the moment it takes the answer from Turn, not earlier and not later (B11).
type Answer struct {
	Handle Handle
	Status Status
}

// Effects is what a turn wants done.
type Effects struct {
	// Propose are commands for the log, in order. What raft refuses to append
	// comes back through [Machine.Dropped].
	Propose []core.Command
	// Confirm asks for a leadership confirmation that covers everything that
	// arrived at or before this turn; see [Machine.Confirmed]. It is asked
	// anew when no answer comes within an election timeout (10 ticks).
	Confirm bool
	// Drain asks that every connection is read until it would block, the
	// keepalives handed over, and then [Machine.Drained] called.
	Drain bool
	// Answers are to be sent now.
	Answers []Answer
	// Wake is the instant of the next turn at the latest; 0 is "only when
	// something happens".
	Wake Instant
	// Transfer asks that leadership moves to another node: this process was
	// stalled for more than half of the last 10 s.
	Transfer bool
}

// A Machine is the deadline machine of one node. It is not safe for concurrent
// use.
type Machine struct {
	tick    time.Duration
	weak    Weakening
	leading bool
	term    uint64
	time    timeline

	// What the log says, as far as time matters, mirrored from the state.
	sessions map[core.SessionID]*session
	grants   map[uint64]*grant
	closings map[string]*closing

	silence   timerHeap // unsuspected sessions, by the clock of their suspicion
	expiry    timerHeap // suspected sessions, by since + T
	suspectsT timerHeap // suspected sessions, by T
	ends      timerHeap // grants by EndsAt, closed locks by OpensAt
	frees     timerHeap // revoked grants, by RevokedAt + T

	inbox     []wait        // keepalives not yet looked at
	pending   []wait        // keepalives that wait for a confirmation
	toClear   []*session    // sessions for which a clear is to be proposed
	revokes   []markPending // polite revokes in flight, oldest first
	revokeSeq uint64
	answers   []Answer

	logged   core.Clock // the highest clock that is in the log, or on its way
	ticking  bool       // a tick is in flight
	moreWork bool       // this turn's proposals were cut short

	confirmedUpTo Instant
	pendingUpTo   Instant // the latest arrival that ever was pending
	unsettled     bool    // something changed that may settle a pending keepalive
	askedAt       Instant // when the outstanding confirmation was asked for
	asked         bool

	hold       hold
	drainAsked bool
	drainAgain bool
	drainedAt  Instant
}

// New returns a machine that does not lead.
func New(cfg Config) *Machine { return NewWeakened(cfg, Weakening{}) }

// Lead starts this leader's office: the first entry of its own term was
// applied, and st is the state after it (B3). st is read, not kept.
func (m *Machine) Lead(now Instant, term uint64, st *core.State) {
	kept := m.sessions
	m.StepDown()
	m.leading, m.term = true, term
	base := m.weak.startClock(now, st)
	m.time = timeline{
		threshold: max(2*m.tick, 100*time.Millisecond),
		start:     now, base: base,
		turned: now, clock: base,
	}
	m.logged = base
	m.load(st)
	if m.weak.KeepMemory {
		m.recall(kept)
	}
}

// load mirrors the timed parts of st.
func (m *Machine) load(st *core.State) {
	m.sessions = map[core.SessionID]*session{}
	m.grants = map[uint64]*grant{}
	m.closings = map[string]*closing{}
	st.EachSessionTiming(func(t core.SessionTiming) bool {
		s := newSession(t)
		m.sessions[t.ID] = s
		m.place(s)
		return true
	})
	st.EachTimedGrant(func(t core.GrantTiming) bool {
		m.trackGrant(t)
		return true
	})
	st.EachClosing(func(t core.ClosingTiming) bool {
		m.trackClosing(t)
		return true
	})
}

// StepDown ends this leader's office and drops its memory (B3): deadlines, who
// was heard, what is in flight. Keepalives without an answer are answered
// NotLeader by the next turn.
func (m *Machine) StepDown() {
	if !m.leading {
		return
	}
	open := slices.Concat(m.pending, m.inbox)
	for _, s := range m.sessions { // the order does not matter: sorted below
		open = append(open, s.waits...)
	}
	slices.SortFunc(open, func(a, b wait) int {
		if a.handle < b.handle {
			return -1
		}
		return 1
	})
	answers := m.answers
	for _, w := range open {
		answers = append(answers, Answer{w.handle, NotLeader})
	}
	memory := m.sessions
	*m = Machine{tick: m.tick, weak: m.weak, answers: answers}
	if m.weak.KeepMemory {
		m.sessions = memory
	}
}

// Turn looks at everything that came in since the last turn and at what has
// become due, and says what is to be done.
func (m *Machine) Turn(now Instant) Effects {
	if !m.leading {
		for _, w := range m.inbox {
			m.answers = append(m.answers, Answer{w.handle, NotLeader})
		}
		m.inbox = nil
		return Effects{Answers: m.takeAnswers()}
	}
	var eff Effects
	if m.time.advance(now, m.weak.CountStalls) {
		m.stalled()
		eff.Transfer = m.time.stalledMostly()
	}
	m.takeInbox()
	m.settle()
	m.moreWork = false
	m.proposeClears(&eff)
	m.proposeSuspicions(&eff)
	m.proposeEnds(&eff)
	m.proposeExpiries(&eff)
	m.proposeTick(&eff)
	if m.hold == holdDrain && !m.drainAsked {
		eff.Drain, m.drainAsked = true, true
	}
	eff.Confirm = m.wantConfirm(now)
	eff.Answers = m.takeAnswers()
	eff.Wake = m.wake(now)
	return eff
}

func (m *Machine) takeAnswers() []Answer {
	a := m.answers
	m.answers = nil
	return a
}

// wake is the instant of the next turn at the latest. While anything is timed
// a turn must come well within the stall threshold, or the machine would take
// its own sleep for a stall.
func (m *Machine) wake(now Instant) Instant {
	if m.moreWork {
		return now
	}
	if len(m.sessions)+len(m.grants)+len(m.closings)+len(m.pending) == 0 {
		m.time.idle = true
		return 0
	}
	next := m.time.clock + core.Clock(m.time.threshold/2)
	for _, h := range [...]*timerHeap{&m.silence, &m.ends} {
		if t := h.top(); t != nil {
			next = min(next, t.at)
		}
	}
	if m.hold == holdNone {
		for _, h := range [...]*timerHeap{&m.expiry, &m.frees} {
			if t := h.top(); t != nil {
				next = min(next, t.at)
			}
		}
	}
	if every := m.tickEvery(); every > 0 && !m.ticking {
		next = min(next, m.logged+core.Clock(every))
	}
	return now + max(0, time.Duration(next-m.time.clock))
}
