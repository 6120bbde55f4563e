package holdfast

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/driver"
	"holdfast/internal/watchdog"
)

// Sentinels for errors.Is, grouped by the moment at which they occur. What
// calls return is an [*Error] with the operation and the lock around them.
var (
	// Before anything is sent:

	// ErrInvalid: an argument or setting breaks a rule; the text says which
	// and what is allowed.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported: the engine or the service does not know this request.
	ErrUnsupported = errors.New("not supported")
	// ErrDenied: the caller may not do this.
	ErrDenied = errors.New("denied")
	// ErrLockerClosed: Close was called on this locker.
	ErrLockerClosed = errors.New("locker is closed")

	// While a service is looked for:

	// ErrUnavailable: no service that can answer was reached in time.
	ErrUnavailable = errors.New("lock service not reachable")
	// ErrOverloaded: the service refuses new work for now; try later.
	ErrOverloaded = errors.New("lock service is overloaded")

	// While a lock is asked for:

	// ErrBusy: held, and the call was not to wait.
	ErrBusy = errors.New("lock is busy")
	// ErrHeldByYou: held by this very locker; there is no re-entrance.
	ErrHeldByYou = errors.New("lock is held by you")
	// ErrClosed: the lock is closed for a while, by once-per or lock-delay.
	ErrClosed = errors.New("lock is closed")
	// ErrLimit: a limit is reached, or the lock is in use with another
	// number of permits.
	ErrLimit = errors.New("limit reached")
	// ErrSuperseded: a gate has already seen a newer token, so the grant was
	// released; somebody else has been granted the lock since.
	ErrSuperseded = errors.New("superseded by a newer grant")
	// ErrArm is wrapped by every [*ArmError].
	ErrArm = errors.New("gate not armed")

	// While a lock is held or waited for:

	// ErrLost is wrapped by every [*Lost]: a grant was lost before it was
	// released.
	ErrLost = errors.New("lock lost")
	// ErrSessionLost: the session ended, and with it all that it held and
	// waited for.
	ErrSessionLost = errors.New("session lost")

	// When a lock is given back:

	// ErrReleased is the cause of a grant's context after its release.
	ErrReleased = errors.New("lock was released")
	// ErrReleasePending: the service did not confirm the release in time.
	// The grant is no longer renewed; the release is tried again until it is
	// confirmed or the lease has run out. Calling Release again is right.
	ErrReleasePending = errors.New("release not confirmed")
)

// An Error is what every call of a locker or grant returns when it fails.
type Error struct {
	Op   string // "acquire", "try", "release", "run", "close"
	Lock string // name of the lock; "" for the locker as a whole
	// Holder says who holds the lock, if the service told; Waiters is how
	// many wait for it.
	Holder  *driver.Holder
	Waiters int
	// OpensIn is how long a closed lock stays closed; 0 if not known.
	OpensIn time.Duration
	// Kind is one of the sentinels of this package, or nil.
	Kind error
	// Err is the cause below: a context's error, an [*ArmError], a [*Lost],
	// or what the engine said.
	Err error
}

// Error names operation and lock, says what happened, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("holdfast: ")
	b.WriteString(e.Op)
	if e.Lock != "" {
		fmt.Fprintf(&b, " %q", e.Lock)
	}
	text := ""
	if e.Err != nil {
		text = e.Err.Error()
	}
	if d, ok := errors.AsType[*driver.Error](e.Err); ok && d.Holder != nil && (e.Kind == ErrBusy || e.Kind == ErrHeldByYou) {
		c := *d
		c.Msg = e.Kind.Error() // the kind says it all
		text = c.Error()
	}
	if e.Kind != nil && !strings.HasPrefix(text, e.Kind.Error()) {
		b.WriteString(": ")
		b.WriteString(e.Kind.Error())
	}
	if text != "" {
		b.WriteString(": ")
		b.WriteString(text)
	}
	if e.OpensIn > 0 {
		fmt.Fprintf(&b, "; it opens in %v", e.OpensIn.Round(time.Millisecond))
	}
	if advice := advise(e.Op, e.Kind); advice != "" {
		b.WriteString("; ")
		b.WriteString(advice)
	}
	return b.String()
}

// Unwrap returns Kind and Err, as far as they are set.
func (e *Error) Unwrap() []error {
	var below []error
	if e.Kind != nil {
		below = append(below, e.Kind)
	}
	if e.Err != nil {
		below = append(below, e.Err)
	}
	return below
}

// advise says what a person can do about an error of this kind.
func advise(op string, kind error) string {
	if op == "close" && kind == ErrReleasePending {
		return "what was held is free at the latest when its lease has run out"
	}
	switch kind {
	case ErrUnavailable:
		return "check the address and that the service runs, then try again"
	case ErrOverloaded:
		return "try again later"
	case ErrBusy:
		return "wait with Acquire, or try again later"
	case ErrHeldByYou:
		return "release it first: there is no re-entrance"
	case ErrSuperseded:
		return "acquire again"
	case ErrSessionLost:
		return "stop what the locks guarded, and acquire again"
	case ErrReleasePending:
		return "call Release again, or leave it: the lock is free at the latest when its lease has run out"
	case ErrLockerClosed:
		return "make a new locker"
	}
	return ""
}

// kindOf maps the kinds that engines know to sentinels of this package.
func kindOf(err error) error {
	switch driver.KindOf(err) {
	case driver.Invalid:
		return ErrInvalid
	case driver.Unsupported:
		return ErrUnsupported
	case driver.Denied:
		return ErrDenied
	case driver.Unavailable:
		return ErrUnavailable
	case driver.Overloaded:
		return ErrOverloaded
	case driver.Busy:
		return ErrBusy
	case driver.HeldByYou:
		return ErrHeldByYou
	case driver.Closed:
		return ErrClosed
	case driver.Limit:
		return ErrLimit
	case driver.SessionLost:
		return ErrSessionLost
	case driver.NotHeld: // granted, and taken back before the answer came
		return ErrLost
	}
	return nil
}

// wrap puts operation and lock around what a call ran into: once, here.
func wrap(op, lock string, kind, err error) *Error {
	e := &Error{Op: op, Lock: lock, Kind: kind, Err: err}
	if d, ok := errors.AsType[*driver.Error](err); ok {
		e.Holder, e.Waiters, e.OpensIn = d.Holder, d.Waiters, d.OpensIn
	}
	return e
}

// A Cause says why a grant was lost.
type Cause uint8

// The causes of a loss.
const (
	// CauseExpired: the lease ran out while this process, or its machine,
	// did not run.
	CauseExpired = Cause(watchdog.Expired)
	// CauseUnreachable: the lease ran out while the service did not answer.
	CauseUnreachable = Cause(watchdog.Unreachable)
	// CauseSessionEnded: the service says that the session has ended: it
	// expired there, or an operator ended it.
	CauseSessionEnded = Cause(watchdog.SessionEnded)
	// CauseRevoked: somebody took the grant back; By names who.
	CauseRevoked = Cause(watchdog.Revoked)
	// CauseMaxHold: the maximum hold that the acquire asked for is over.
	CauseMaxHold = Cause(watchdog.MaxHold)
	// CauseLiveness: the liveness callback failed too often.
	CauseLiveness = Cause(watchdog.Liveness)
	// CauseDropped: the program dropped its last reference to the grant
	// without releasing it.
	CauseDropped = Cause(watchdog.Dropped)
	// CauseClosed: the locker was closed while the lock was held.
	CauseClosed = Cause(watchdog.Closed)
)

// String returns the cause as a word.
func (c Cause) String() string { return watchdog.Cause(c).String() }

// words says for a person what happened.
func (c Cause) words() string {
	switch c {
	case CauseExpired:
		return "the lease ran out while this process did not run"
	case CauseUnreachable:
		return "the lease ran out while the service did not answer"
	case CauseSessionEnded:
		return "the service says that the session has ended"
	case CauseMaxHold:
		return "the maximum hold is over"
	case CauseLiveness:
		return "the liveness callback failed"
	case CauseDropped:
		return "the grant was dropped without a release"
	case CauseClosed:
		return "the locker was closed"
	}
	return c.String()
}

// A Lost says why a grant was lost. It is final: no late answer revives a
// grant. It is the cause of the grant's context, and wraps [ErrLost] (and
// [ErrSessionLost], if the whole session is gone).
type Lost struct {
	Lock  string
	Cause Cause
	By    string // who revoked, for people; may be empty
	Err   error  // what the service or the callback last said, or nil
}

// Error says why, and what to do.
func (l *Lost) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock lost: %q: ", l.Lock)
	b.WriteString(l.Cause.words())
	if l.Cause == CauseRevoked && l.By != "" {
		fmt.Fprintf(&b, " by %q", l.By)
	}
	if l.Err != nil {
		fmt.Fprintf(&b, " (%v)", l.Err)
	}
	b.WriteString("; stop the guarded work, and acquire again")
	return b.String()
}

// Unwrap returns [ErrLost], with [ErrSessionLost] if the session is gone, and
// what lies below.
func (l *Lost) Unwrap() []error {
	below := []error{ErrLost}
	switch l.Cause {
	case CauseExpired, CauseUnreachable, CauseSessionEnded, CauseClosed:
		below = append(below, ErrSessionLost)
	}
	if l.Err != nil {
		below = append(below, l.Err)
	}
	return below
}

// An ArmError says which gate could not be armed, so that the grant was
// released. Gates armed before it keep the raised mark: only dead numbers lie
// below it (E3).
type ArmError struct {
	// Gate is the gate that failed, and Index its place among those given,
	// from 0.
	Gate  Gate
	Index int
	Err   error
}

// Error names the gate.
func (e *ArmError) Error() string {
	name := fmt.Sprintf("%T", e.Gate)
	switch g := e.Gate.(type) {
	case fmt.Stringer:
		name = g.String()
	case interface{ Name() string }:
		name = g.Name()
	}
	return fmt.Sprintf("gate not armed: %s (gate %d of those given): %v", name, e.Index+1, e.Err)
}

// Unwrap returns [ErrArm] and what the gate said.
func (e *ArmError) Unwrap() []error { return []error{ErrArm, e.Err} }
