package watchdog

import "fmt"

// A State is what the client knows about one grant, by its own clock.
type State uint8

// The states. See the promises at [Machine] for how they follow each other.
const (
	// Held: the lease is good and the last keepalive was answered.
	Held State = iota + 1
	// Jeopardy: the lease is good, but a keepalive that was due failed or
	// has not been answered.
	Jeopardy
	// Lost is final.
	Lost
	// Releasing: the owner gave it back; the service has not confirmed.
	Releasing
	// Released is final: confirmed by the service, or the session is over.
	Released
)

// String returns the state as a word.
func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case Jeopardy:
		return "jeopardy"
	case Lost:
		return "lost"
	case Releasing:
		return "releasing"
	case Released:
		return "released"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// A Cause says why a grant, or a whole session, was lost.
type Cause uint8

// The causes.
const (
	// Expired: the deadline passed with no keepalive refused or unanswered:
	// this process, or its machine, did not run.
	Expired Cause = iota + 1
	// Unreachable: the deadline passed while keepalives got no answer.
	Unreachable
	// SessionEnded: the service says that there is no such session.
	SessionEnded
	// Revoked: taken back by somebody.
	Revoked
	// MaxHold: taken back because its maximum hold is over.
	MaxHold
	// Liveness: the owner's liveness callback failed.
	Liveness
	// Dropped: the owner dropped the handle without releasing it.
	Dropped
	// Closed: the owner closed the session.
	Closed
	// Retired: the session was ended because nothing needed it. No grant
	// is ever lost by it.
	Retired
)

var causeNames = [...]string{
	Expired: "expired", Unreachable: "unreachable", SessionEnded: "session-ended", Revoked: "revoked",
	MaxHold: "max-hold", Liveness: "liveness", Dropped: "dropped", Closed: "closed", Retired: "retired",
}

// String returns the cause as a word.
func (c Cause) String() string {
	if c != 0 && int(c) < len(causeNames) {
		return causeNames[c]
	}
	return fmt.Sprintf("cause(%d)", uint8(c))
}
