package core

import "time"

// Status is the state of one request, or the answer to any command.
type Status uint8

// The statuses. Waiting is the only one that changes later; it becomes one of
// the others, told by a [Notice].
const (
	// Done: the command took effect, or had taken effect before.
	Done Status = iota + 1
	// Waiting: the acquire stands in the queue at Place (1 is the head).
	Waiting
	// Granted: see Grant.
	Granted
	// Refused: see Refusal.
	Refused
	// Cancelled: by the session's own cancel.
	Cancelled
	// Settled: the request's number is lower than the lane's last; no effect.
	Settled
)

// Result is the answer to one command, and what a lane remembers.
type Result struct {
	Status  Status
	Place   int      // Waiting: 1 is the head, 0 not counted; not remembered
	Grant   *Grant   // Granted; never changed once made
	Ended   bool     // Granted, to one more copy of the request: Grant is not held any more
	Refusal *Refusal // Refused

	// Last is, for Settled, the lane's last number.
	Last uint64
	// Session is the answer to Open: the ID that counts, which is another
	// one than proposed if the same secret had opened it before.
	Session SessionID
	// Lost lists, for Clear, the sessions that do not exist.
	Lost []SessionID
	// Revision is, for Put, Delete, Revoke and Reopen, that of the change.
	Revision Revision
	// Number is, for Revoke, the number that was burnt.
	Number uint64
}

// Grant is what a holder got. Its fencing token is (domain, incarnation, lock,
// slot, mode, Generation).
type Grant struct {
	Number      uint64
	Generation  uint64
	Incarnation uint64 // of the state at the grant
	Session     SessionID
	Lock        string
	Slot        uint32
	Shared      bool
	Since       Clock
	// EndsAt is the clock at which the grant is politely revoked; 0 if never.
	EndsAt Clock
}

// Reason says why a request was refused. It travels on the wire.
type Reason uint8

// The reasons.
const (
	// Busy: held by another session and Try was set. Has Holder.
	Busy Reason = iota + 1
	// HeldByYou: the same session holds it and Try was set. Has Holder.
	HeldByYou
	// Closed: closed by once-per. Has OpensAt.
	Closed
	// SessionLost: no such session (any more).
	SessionLost
	// LimitMismatch: in use with another limit. Has Holder if held.
	LimitMismatch
	// TooMany: a limit of DESIGN §3 is reached; Msg names it.
	TooMany
	// NotHeld: the named grant is not held. Has Holder if somebody holds it.
	NotHeld
	// NoSuchGrant: the number was never given out.
	NoSuchGrant
	// NotFound: no such lock or value.
	NotFound
	// Conflict: compare-and-set found Revision instead.
	Conflict
	// Stale: the token is not the current one.
	Stale
	// InUse: delete of a lock that is held or queued.
	InUse
	// CounterFull: no number is left in this epoch (A2).
	CounterFull
	// Malformed: a field breaks a rule; Msg names it and what is allowed.
	Malformed
	// TooNew: the command is above the cluster version.
	TooNew
)

// Refusal is why, and what a person needs to know about it.
type Refusal struct {
	Reason   Reason
	Msg      string
	Lock     string
	Holder   *Holder
	Waiters  int
	OpensAt  Clock
	Revision Revision
}

// Holder says who holds a lock.
type Holder struct {
	Grant
	Label string
	Host  string
}

// Notice tells that a request that was Waiting has got its final result, by a
// command of somebody else.
type Notice struct {
	Session SessionID
	Request Request
	Result  Result
}

// EventKind says what an event tells.
type EventKind uint8

// The kinds of events.
const (
	EventOpened   EventKind = iota + 1 // session opened
	EventEnded                         // session ended: Cause
	EventQueued                        // a request joined the queue
	EventLeft                          // a request left the queue without a grant: Cause
	EventGranted                       // Grant
	EventReleased                      // Grant ended: Cause
	EventRevoked                       // Grant marked revoked; it is still held
	EventClosed                        // lock closed until OpensAt: Cause
	EventReopened                      //
	EventPut                           // value set
	EventDeleted                       // value removed: Cause
	EventEpoch                         // epoch raised; every session ended
	EventVersion                       // cluster version raised
	EventAudit                         // an operator's call: Audit
)

// Cause says why something ended or closed.
type Cause uint8

// The causes.
const (
	CauseReleased  Cause = iota + 1 // by its holder
	CauseExpired                    // session silent too long
	CauseEnded                      // session ended by its owner
	CauseOperator                   // session ended, or grant revoked, by an operator
	CauseMaxHold                    // maximum hold reached
	CauseCancelled                  // request cancelled
	CauseClosed                     // refused because the lock closed
	CauseLockDelay                  // closing: after an unconfirmed end
	CauseOncePer                    // closing: once per period
	CauseDeleted                    // by a delete
	CauseEpoch                      // epoch raised
)

// Event is one change, as watchers see it. Events with one Revision belong
// together.
type Event struct {
	Revision Revision
	Clock    Clock
	Kind     EventKind
	Cause    Cause
	Lock     string
	Session  SessionID
	Label    string // of the session
	Host     string
	// Grant is the grant's own number, Token the generation's.
	Grant   uint64
	Token   uint64
	Slot    uint32
	Shared  bool
	Burnt   uint64     // EventRevoked: the revocation token's number
	Value   []byte     // EventPut, EventGranted; shared, read only
	OpensAt Clock      // EventClosed
	By      string     // operator's name, for the audit
	Audit   *AuditCall // EventAudit; shared, read only
}

// Applied is all that one entry did.
type Applied struct {
	Results []Result // one a command
	Notices []Notice
	Events  []Event
	// What the lease machine must look at again: sessions that were opened,
	// ended, suspected or cleared; grants that were made, marked or ended
	// and have an end or a mark; locks that were closed or reopened.
	Sessions []SessionID
	Grants   []uint64
	Locks    []string
}

// SessionView is what the state says of a session.
type SessionView struct {
	ID         SessionID
	SecretHash [32]byte
	Instance   [16]byte
	TTL        time.Duration
	Label      string
	Host       string
	Opened     Clock
	Suspected  bool
	Since      Clock // of the suspicion
	Grants     []Grant
	Waits      []WaitView
	Tombstones []Tombstone
}

// Tombstone is a grant that was taken from its session, which has not yet
// acknowledged it.
type Tombstone struct {
	Grant uint64
	Lock  string
	Cause RevokeCause
	By    string
}

// WaitView is one place in a queue.
type WaitView struct {
	Session SessionID
	Request Request
	Lock    string
	Shared  bool
	Place   int // 1 is the head
	Since   Clock
	Label   string
	Host    string
}

// HolderView is one holder of a lock.
type HolderView struct {
	Holder
	Revoked   bool
	RevokedAt Clock
	Cause     RevokeCause
	By        string
}

// LockView is what the state says of a lock.
type LockView struct {
	Name     string
	Created  Revision
	Modified Revision // of the value
	HasValue bool
	Value    []byte // shared, read only
	// ValueGrant or ValueSession is what the value belongs to; 0 for none.
	ValueGrant   uint64
	ValueSession SessionID
	Limit        uint32
	Sealed       bool // nobody may join the shared holders any more
	HolderCount  int
	Holders      []HolderView // the first, at most MaxHoldersShown
	Waiters      int
	Queue        []WaitView // only from [State.Lock], at most the asked number
	Closed       bool
	ClosedCause  Cause
	Closing      Revision
	OpensAt      Clock
}
