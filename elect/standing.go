package elect

import (
	"errors"
	"fmt"
	"time"

	"holdfast"
	"holdfast/fence"
)

// A State says what a candidate does just now.
type State uint8

// The states. In Queued and InOffice the candidate stands.
const (
	// Stopped: Run was not called, or has returned. It does not stand again.
	Stopped State = iota
	// Asking: the lock was asked for, and the service has not said that the
	// request stands in the queue.
	Asking
	// Queued: the service has put the request in the queue.
	Queued
	// InOffice: this is the primary, and its function runs.
	InOffice
	// Leaving: the function was told to end, and has not returned; or the
	// lock is on its way back.
	Leaving
	// Pausing: between two tries, or at rest.
	Pausing
)

var stateWords = [...]string{"stopped", "asking", "queued", "in office", "leaving", "pausing"}

// String returns the state as a word.
func (s State) String() string {
	if int(s) >= len(stateWords) {
		return fmt.Sprintf("state %d", uint8(s))
	}
	return stateWords[s]
}

// A Standing says how a candidate stands.
type Standing struct {
	State State
	// For is how long the state has lasted.
	For time.Duration
	// Out is how long the candidate has been neither in office nor in the
	// queue; 0 while it is.
	Out time.Duration
	// Why says why it does not stand; nil while it does.
	Why error
	// Token is the fencing token of the present time in office, or the zero
	// Token.
	Token fence.Token
	// Offices counts the times in office so far.
	Offices uint64

	ever bool // it stood at some time
}

// Stands reports whether the candidate is in office or in the queue.
func (s Standing) Stands() bool { return s.State == InOffice || s.State == Queued }

// Reasons for not standing.
var (
	errNotRunning = errors.New("Run was not called")
	errFirst      = errors.New("the lock was asked for, and the service has not answered yet")
	errReturned   = errors.New("the function has returned, and the lock is on its way back")
	errAborted    = errors.New("the function ended its goroutine, by a panic or runtime.Goexit")
	errPassed     = errors.New("the office was passed on to a preferred candidate")
)

// position is what an Elector knows of its own standing; it is guarded by the
// Elector's mu.
type position struct {
	state   State
	since   time.Time // of the state
	out     time.Time // when it last stood, or was made
	ever    bool      // it stood at some time
	why     error
	offices uint64
}

// move changes the state. A reason that is nil keeps the last one. mu is held.
func (p *position) move(to State, why error) {
	now := time.Now()
	if was := p.state; was == InOffice || was == Queued {
		p.out = now
	}
	if p.state != to {
		p.since = now
	}
	p.ever = p.ever || to == InOffice || to == Queued
	p.state = to
	if why != nil {
		p.why = why
	}
}

// Standing says how this candidate stands, by its own knowledge: it asks the
// clock whether a lease has run out, and no service.
func (e *Elector) Standing() Standing {
	e.mu.Lock()
	office := e.mu.office
	e.mu.Unlock()
	var lost *holdfast.Lost
	if office != nil {
		lost = office.grant.Cause() // not with mu held: it may end the office
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.mu.position
	s := Standing{State: p.state, For: time.Since(p.since), Offices: p.offices, ever: p.ever}
	if lost != nil && e.mu.office == office && s.State == InOffice {
		s.State, s.For, s.Why = Leaving, 0, lost // the news is on its way
		return s
	}
	if e.mu.office != nil {
		s.Token = e.mu.office.grant.Token()
	}
	if !s.Stands() {
		s.Out, s.Why = time.Since(p.out), p.why
	}
	return s
}

// Check is for a readiness probe: it returns nil while the candidate stands,
// and an error that says why not once it has been out of office and out of the
// queue for longer than Options.Tolerance. It fails at once if the candidate
// has never stood yet, or will not stand again because Run has returned.
func (e *Elector) Check() error {
	s := e.Standing()
	if s.Stands() || s.ever && s.State != Stopped && s.Out <= e.o.Tolerance {
		return nil
	}
	return e.fail(&notStanding{s})
}

// notStanding is the error of Check.
type notStanding struct{ s Standing }

func (n *notStanding) Error() string {
	return fmt.Sprintf("%v for %v (%v): %v", ErrNotStanding, n.s.Out.Round(time.Millisecond), n.s.State, n.s.Why)
}

func (n *notStanding) Unwrap() []error { return []error{ErrNotStanding, n.s.Why} }
