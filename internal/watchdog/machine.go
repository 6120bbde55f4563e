package watchdog

import (
	"errors"
	"maps"
	"slices"
	"time"

	"holdfast/internal/planted"
)

// An Instant is a time on the client's clock, which counts suspend: a duration
// since any fixed start.
type Instant = time.Duration

// A Moment is what a shell tells with every input: the instant, and a random
// number that spreads retries.
type Moment struct {
	At     Instant
	Jitter uint16
}

// A Request names an acquire within the session (C1).
type Request struct {
	Lane uint32
	N    uint64
}

// MaxLanes is how many acquires of one session may be unsettled at a time.
const MaxLanes = 10_000

// What [Machine.Begin] refuses.
var (
	// ErrOver: the session is over or ending; open a new one.
	ErrOver = errors.New("session is over")
	// ErrTooMany: MaxLanes acquires are unsettled.
	ErrTooMany = errors.New("10000 acquires of this session are unsettled, which is the most")
)

// A Machine is the client side of one session, from the answer to its open on.
// It is a value without pointers into itself; [Machine.Clone] copies it. It is
// not safe for use by several goroutines.
//
// What it promises:
//
//  1. good never falls, and is the instant before a call left that the service
//     answered; the deadline is good + TTL − margin (B10).
//  2. At or after the deadline the session is over, whatever arrives at the
//     same moment or later. Over is final.
//  3. A grant that was lost is never held again.
//  4. A lane carries one unsettled request; its next number is used only after
//     the final answer to the last one (C1). Once a cancel was sent, only the
//     cancel's answer settles the request (C2).
//  5. A grant is forgotten only when the service confirmed its release, or the
//     session is over.
//  6. Keepalives are sent only while something is held or waited for.
//
// An input costs the logarithm of what is unsettled, and what is due: nothing
// looks through all requests or grants, except the end of the session.
type Machine struct {
	set  Settings
	good Instant // promise 1

	// lanes and grants have fixed places, and are changed by changeRequest
	// and changeGrant only, which keep the due times and the counts in step.
	lanes       []lane         // by number
	freeLanes   agenda         // those that are not busy, all at 0
	dueRequests agenda         // by lane: when to do something about its request
	grants      []grant        // by slot
	freeSlots   agenda         // those without a grant, all at 0
	dueGrants   agenda         // by slot: when to do something about its grant
	slots       map[string]int // the slots of the grants, by ID; never ranged over
	needing     int            // requests and grants that keepalives are sent for
	out         int            // grants that their owners have not given back

	calls    map[CallID]call // in flight, given-up ones too
	lastCall CallID

	pulse pulse
	told  CallID       // the keepalive that said last who is contended
	early []Revocation // told before the grant itself was; by grant

	idle      bool // promise 6: nothing is held or waited for
	idleSince Instant

	over      bool
	finished  bool
	cause     Cause
	overAt    Instant
	endAt     Instant // when to end the session at the service
	endCall   CallID
	endCallAt Instant
	endTries  int
}

// lane is one lane of C1.
type lane struct {
	n       uint64 // last number used
	busy    bool
	request request // without meaning unless busy
}

// request is an acquire without a final answer.
type request struct {
	id         Request
	try        bool
	cancelling bool
	call       CallID // in flight since callAt, or 0
	callAt     Instant
	retryAt    Instant
	failures   int
	failing    bool // attempts have failed since failingAt
	failingAt  Instant
}

// grant is what the service granted and the client has not settled.
type grant struct {
	known     bool // else the slot is free
	id        string
	lost      Cause // 0: not lost
	lostAt    Instant
	lingers   bool // lost and not asked, yet held at the service until its owner has stopped
	asked     bool // its owner asked for the release
	failed    bool
	release   bool   // a release is to be sent at retryAt, or in flight
	call      CallID // in flight since callAt, or 0
	callAt    Instant
	retryAt   Instant
	failures  int
	contended CallID // the keepalive that said last that somebody waits for it
}

// pulse is the state of the keepalives.
type pulse struct {
	call     CallID // the one that counts now, sent at callAt, or 0
	callAt   Instant
	next     Instant
	failures int // in a row
}

// New returns the machine of a session that the service opened with TTL
// set.TTL, by a call that left after the instant sent. The settings must be
// valid.
func New(set Settings, sent Instant) *Machine {
	return &Machine{
		set: set, good: sent, pulse: pulse{next: sent + set.Interval}, // idle from its first input on
		slots: make(map[string]int), calls: make(map[CallID]call),
	}
}

// Clone returns a copy that shares nothing with m.
func (m *Machine) Clone() *Machine {
	c := *m
	c.lanes, c.freeLanes, c.dueRequests = slices.Clone(m.lanes), m.freeLanes.clone(), m.dueRequests.clone()
	c.grants, c.freeSlots, c.dueGrants = slices.Clone(m.grants), m.freeSlots.clone(), m.dueGrants.clone()
	c.slots, c.calls = maps.Clone(m.slots), maps.Clone(m.calls)
	c.early = slices.Clone(m.early)
	return &c
}

// Deadline is the instant at which the session is over unless a keepalive is
// answered before (B10).
func (m *Machine) Deadline() Instant {
	if planted.On("B10-no-margin") {
		return m.good + m.set.TTL
	}
	return m.good + m.set.TTL - m.set.Margin
}

// Good is the instant before the last answered call left.
func (m *Machine) Good() Instant { return m.good }

// Failures is how many keepalives failed in a row.
func (m *Machine) Failures() int { return m.pulse.failures }

// Over reports whether the session is over, and why.
func (m *Machine) Over() (Cause, bool) { return m.cause, m.over }

// Finished reports that the machine wants nothing any more.
func (m *Machine) Finished() bool { return m.finished }

// State returns what is known about a grant at an instant. A grant that the
// machine has forgotten is Released.
func (m *Machine) State(at Instant, id string) State {
	i, known := m.slots[id]
	switch {
	case !known:
		return Released
	case m.grants[i].lost != 0:
		return Lost
	case m.grants[i].asked:
		return Releasing
	case at >= m.Deadline():
		return Lost
	case m.pulse.failures > 0 || at >= m.good+m.set.Interval+m.set.CallTimeout:
		return Jeopardy
	}
	return Held
}

// Begin starts an acquire on the lowest free lane.
func (m *Machine) Begin(now Moment, try bool) (Request, []Action, error) {
	acts := m.expire(now, nil)
	if m.over {
		return Request{}, m.turn(now, acts), ErrOver
	}
	free, ok := m.freeLanes.first()
	if !ok {
		if len(m.lanes) == MaxLanes {
			return Request{}, m.turn(now, acts), ErrTooMany
		}
		free.n = len(m.lanes)
		m.lanes = append(m.lanes, lane{})
	}
	m.freeLanes.remove(free.n)
	l := &m.lanes[free.n]
	l.n++
	id := Request{Lane: uint32(free.n), N: l.n}
	m.changeRequest(free.n, func(q *request) {
		*q, l.busy = request{id: id, try: try, retryAt: now.At}, true
	})
	return id, m.turn(now, acts), nil
}

// Abandon says that nobody wants a request's grant any more. It is cancelled
// at the service; [Settled] tells when that is done. After that the request
// yields neither Granted nor Refused.
func (m *Machine) Abandon(now Moment, id Request) []Action {
	acts := m.expire(now, nil)
	if m.isOpen(id) {
		acts = m.cancel(now, int(id.Lane), acts)
	}
	return m.turn(now, acts)
}

// Release gives a grant back, or tries again at once if that is pending. A
// grant that is not known is left alone. failed goes to the service.
func (m *Machine) Release(now Moment, id string, failed bool) []Action {
	acts := m.expire(now, nil)
	if i, known := m.slots[id]; known {
		m.changeGrant(i, func(g *grant) {
			if !g.asked {
				g.asked, g.failed, g.lingers = true, failed, false
			}
			if g.call == 0 {
				g.release, g.retryAt = true, now.At
			}
		})
	}
	return m.turn(now, acts)
}

// Fail says that a grant has no living owner, as far as the client can tell
// (cause Liveness or Dropped). It is lost at once, no longer a reason for
// keepalives, and released when its lease of now would have run out.
func (m *Machine) Fail(now Moment, id string, cause Cause) []Action {
	acts := m.expire(now, nil)
	if i, known := m.slots[id]; known && !m.over && m.grants[i].lost == 0 && !m.grants[i].asked {
		acts = m.lose(now.At, i, cause, "", acts)
		m.changeGrant(i, func(g *grant) { g.release, g.retryAt = true, m.good+m.set.TTL })
	}
	return m.turn(now, acts)
}

// Hurry asks for a keepalive at once: the client met a new leader (B6).
func (m *Machine) Hurry(now Moment) []Action {
	acts := m.expire(now, nil)
	m.pulse.next = min(m.pulse.next, now.At)
	return m.turn(now, acts)
}

// Close ends the session at the wish of its owner.
func (m *Machine) Close(now Moment) []Action {
	acts := m.expire(now, nil)
	if !m.over {
		acts = m.finish(now.At, Closed, acts)
	}
	m.endAt = min(m.endAt, now.At)
	return m.turn(now, acts)
}

// Tick does what is due at an instant. The shell calls it at [Machine.Wake],
// and may call it at any time.
func (m *Machine) Tick(now Moment) []Action {
	return m.turn(now, m.expire(now, nil))
}

// Settle tells what became of a call. The shell tells it once for each call,
// also for one that was given up. Calls that are not known are ignored.
func (m *Machine) Settle(now Moment, id CallID, r Reply) []Action {
	acts := m.expire(now, nil)
	c, known := m.calls[id]
	if !known {
		return m.turn(now, acts)
	}
	delete(m.calls, id)
	return m.turn(now, m.settle(now, c, r, acts))
}

// backoff is how long to wait before try number failures + 1: it doubles from
// an eighth of the interval (at most 100 ms) to half of it, and is spread over
// its upper half.
func (m *Machine) backoff(now Moment, failures int) time.Duration {
	most := max(m.set.Interval/2, 1)
	d := min(max(m.set.Interval/8, 1), 100*time.Millisecond)
	for ; failures > 1 && d < most; failures-- {
		d *= 2
	}
	d = min(d, most)
	return d/2 + time.Duration(uint64(d/2)*uint64(now.Jitter)>>16)
}
