package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Outcome says what became of a call that changes state.
type Outcome uint8

// The outcomes. The zero Outcome is Unknown, so that an error that nobody
// classified claims nothing.
const (
	// Unknown: it may have happened, may happen later, or never.
	Unknown Outcome = iota
	// No: it did not happen and will not.
	No
	// Yes: it happened, yet an error is returned (there is more to say).
	Yes
)

// String returns the outcome as a word.
func (o Outcome) String() string {
	switch o {
	case No:
		return "no"
	case Yes:
		return "yes"
	}
	return "unknown"
}

// Kind classifies an error: what the caller can do about it.
type Kind uint8

// The kinds of errors, grouped by the moment at which they occur.
const (
	// Internal: a defect, or an answer that makes no sense.
	Internal Kind = iota

	// Before anything is done:

	// Invalid: the request breaks a rule; the text says which.
	Invalid
	// Unsupported: the service does not know this request (yet).
	Unsupported
	// Denied: the caller may not do this.
	Denied

	// While a service is looked for:

	// Unavailable: no server that can answer was reached in time.
	Unavailable
	// Overloaded: the service refuses new work for now; try later.
	Overloaded

	// While a lock is asked for:

	// Busy: held, and the request was not to wait.
	Busy
	// HeldByYou: held by the same session; there is no re-entrance.
	HeldByYou
	// Closed: the lock is closed for a while (once-per), also for waiters.
	Closed
	// Cancelled: the request was cancelled by its own session.
	Cancelled
	// Limit: the lock is in use with another limit, or a limit is reached.
	Limit

	// While something is held:

	// SessionLost: the session ended; all that it held and waited for is gone.
	SessionLost
	// NotHeld: the named grant is no longer held.
	NotHeld

	// About a lock's value:

	// NotFound: no such lock, session or value.
	NotFound
	// Conflict: a compare-and-set found another revision.
	Conflict
	// Stale: the token that came with the call is not the current one.
	Stale
)

var kindNames = [...]string{
	Internal: "internal", Invalid: "invalid", Unsupported: "unsupported", Denied: "denied",
	Unavailable: "unavailable", Overloaded: "overloaded",
	Busy: "busy", HeldByYou: "held-by-you", Closed: "closed", Cancelled: "cancelled", Limit: "limit",
	SessionLost: "session-lost", NotHeld: "not-held",
	NotFound: "not-found", Conflict: "conflict", Stale: "stale",
}

// String returns the kind's name as it stands on the wire and in logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind is the inverse of [Kind.String]; an unknown name is Internal.
func ParseKind(s string) Kind {
	for k, name := range kindNames {
		if name == s {
			return Kind(k)
		}
	}
	return Internal
}

// An Error is what every call of a [Session] returns when it fails. The
// engine classifies; package holdfast wraps once, with operation and lock.
type Error struct {
	Kind    Kind
	Outcome Outcome
	// Lock is the lock's name, if the error is about one.
	Lock string
	// Msg says what went wrong and what to do, for a person; without it
	// Err's text is used.
	Msg string
	// Holder says who holds the lock, for Busy, HeldByYou, NotHeld and Limit.
	Holder *Holder
	// Waiters is how many wait for the lock.
	Waiters int
	// OpensIn is how long a Closed lock stays closed; 0 if not known.
	OpensIn time.Duration
	// Err is the cause below, or nil.
	Err error
}

// A Holder says who holds a lock, for people and for error texts.
type Holder struct {
	Label       string
	Host        string
	Session     string
	GrantNumber uint64
	Token       string // text form, "" if the engine has none
	Held        time.Duration
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Msg != "":
		b.WriteString(e.Msg)
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	default:
		b.WriteString(e.Kind.String())
	}
	if h := e.Holder; h != nil {
		fmt.Fprintf(&b, "; held by %s for %s (grant %d)", h.who(), h.Held.Round(time.Millisecond), h.GrantNumber)
		fmt.Fprintf(&b, ", %d waiting", e.Waiters)
	}
	return b.String()
}

func (h *Holder) who() string {
	switch {
	case h.Label != "" && h.Host != "":
		return fmt.Sprintf("%q on %s", h.Label, h.Host)
	case h.Label != "":
		return fmt.Sprintf("%q", h.Label)
	case h.Host != "":
		return "a client on " + h.Host
	}
	return "session " + h.Session
}

// Unwrap returns the cause below.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of err, or Internal if no [*Error] is in its chain.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// OutcomeOf returns the outcome that err claims; Unknown if no [*Error] is in
// its chain.
func OutcomeOf(err error) Outcome {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Outcome
	}
	return Unknown
}
