package watchdog

// A CallID names one call to the service; 0 is none.
type CallID uint64

// A CallKind says what to call.
type CallKind uint8

// The calls.
const (
	CallKeepalive CallKind = iota + 1
	CallAcquire            // Request
	CallCancel             // Request
	CallRelease            // Grant, Failed
	CallEnd
)

// A Verdict is what became of a call, as far as the machine must know.
type Verdict uint8

// The verdicts. The zero Verdict claims nothing.
const (
	// Retry: unknown, or a "no" that only this attempt got. The same call is
	// made again under the same name.
	Retry Verdict = iota
	// Done: yes.
	Done
	// Refused: a final no to this call; the session is as it was.
	Refused
	// SessionLost: the service has no such session.
	SessionLost
)

// A Reply is the answer to a call.
type Reply struct {
	Verdict Verdict
	// Grant is, for a Done acquire, the ID of the grant.
	Grant string
	// Revoked and Contended are, for a Done keepalive, what it said.
	Revoked   []Revocation
	Contended []string
}

// A Revocation says that a grant was taken back.
type Revocation struct {
	Grant string
	Cause Cause // Revoked or MaxHold
	By    string
	Gone  bool // no longer held at the service
}

// An ActionKind says what the shell must do.
type ActionKind uint8

// The actions.
const (
	// Send: make the call Send, named Call, with a context of its own.
	Send ActionKind = iota + 1
	// Abort: end the context of call Call. Its answer is settled all the same.
	Abort
	// Granted: Request got Grant; hand it out.
	Granted
	// Declined: Request got a final no, by the reply just settled.
	Declined
	// GaveUp: attempts at Request failed for a whole TTL; it is being
	// cancelled, and its owner must be told now.
	GaveUp
	// Settled: Request was cancelled; nothing is held or queued by it.
	Settled
	// GrantLost: Grant is lost, with Cause and By.
	GrantLost
	// GrantContended: somebody waits for Grant.
	GrantContended
	// GrantReleased: the service confirmed that Grant is not held.
	GrantReleased
	// SessionOver: Cause. Requests without a final answer have failed.
	SessionOver
	// Finished: the machine wants nothing any more; drop it.
	Finished
)

// An Action is one thing that the shell must do, in order.
type Action struct {
	Kind    ActionKind
	Call    CallID
	Send    CallKind
	Request Request
	Try     bool // CallAcquire
	Grant   string
	Failed  bool // CallRelease: the guarded work failed
	Cause   Cause
	By      string
}

// call is a call in flight.
type call struct {
	id      CallID
	kind    CallKind
	sent    Instant
	request Request
	grant   string
}

// send starts a call.
func (m *Machine) send(now Moment, a Action, acts []Action) (CallID, []Action) {
	m.lastCall++
	a.Kind, a.Call = Send, m.lastCall
	m.calls[a.Call] = call{id: a.Call, kind: a.Send, sent: now.At, request: a.Request, grant: a.Grant}
	return a.Call, append(acts, a)
}
