package core

import "time"

// SessionID names a session. The leader draws it before it proposes the
// session (PROTOCOL B12); 0 is never a session.
type SessionID uint64

// Clock is the log's own clock: a duration that only grows, carried in every
// entry's header. It is no wall time, and core never decides by it (B2).
type Clock time.Duration

// Revision counts the commands that emitted events.
type Revision uint64

// Request names one state-changing call of a session (PROTOCOL C1): lane and
// a number that rises by one on the lane.
type Request struct {
	Lane uint32
	N    uint64
}

// Header is what the proposing leader says with every entry.
type Header struct {
	Clock Clock
}

// Entry is one raft entry's content: a header and the commands in order.
type Entry struct {
	Index  uint64 // raft index
	Term   uint64 // term of the entry, not of the node
	Header Header
	// Commands are applied in order; each is one step.
	Commands []Command
}

// A Command is one of the types in this file. The set is closed: a replica
// that meets any other halts (invariant 9).
type Command interface{ command() }

// Open starts a session. If a live session has the same secret hash it is the
// answer, unchanged (idempotent by the secret's hash, B12).
type Open struct {
	ID         SessionID
	SecretHash [32]byte
	Instance   [16]byte // the client process that opened it
	TTL        time.Duration
	Label      string
	Host       string
}

// End ends a session at the wish of its owner, or of an operator.
type End struct {
	ID SessionID
	// Operator marks an end that the holder did not ask for: lock-delay
	// applies. By names the operator for the audit.
	Operator bool
	By       string
}

// Suspect notes that sessions were last heard at clock Since (B4, B6). A
// session that is unknown or already suspected is left as it is.
type Suspect struct {
	Since    Clock
	Sessions []SessionID
}

// Clear voids the suspicion of sessions; unknown ones answer as lost (B5).
type Clear struct{ Sessions []SessionID }

// Expire ends a session if it is suspected with exactly this Since (B4).
type Expire struct {
	ID    SessionID
	Since Clock
}

// Acquire asks for a lock. Its result is Waiting, Granted or Refused.
type Acquire struct {
	Session SessionID
	Request Request
	Lock    string
	Shared  bool
	Try     bool
	// Limit is the number of permits: 0 or 1 is a plain lock, n > 1 gives n
	// slots. It excludes Shared, and is fixed while the lock is held or
	// queued (A5).
	Limit uint32
	// Value is published with the grant and removed when it ends (A6); nil
	// for none.
	Value []byte
	// LockDelay closes the lock for this long after an end that the holder
	// did not confirm (B8).
	LockDelay time.Duration
	// OncePer closes the lock for 0.9 × OncePer from the grant (B13); with
	// RetryFailed only when a release reports success.
	OncePer     time.Duration
	RetryFailed bool
	// MaxHold sets the clock at which the grant is politely revoked (B8).
	MaxHold time.Duration
}

// Cancel settles a request of the session, seen or not yet seen (C2).
type Cancel struct {
	Session SessionID
	Request Request
}

// Release gives a grant back. Idempotent; a number above the counter is an
// error (C3). It also clears the tombstone of a grant that was revoked.
type Release struct {
	Session SessionID
	Grant   uint64
	// Failed says that the guarded work failed; only OncePer with
	// RetryFailed cares.
	Failed bool
}

// Revoke takes a grant back (B11). Polite (Now and Free false): the grant is
// marked and a number burnt. Free is the leader's own later freeing of a
// marked grant; Now frees at once. Both leave a tombstone for the holder.
type Revoke struct {
	Lock  string
	Grant uint64
	Now   bool
	Free  bool
	Cause RevokeCause
	By    string
}

// Reopen opens a closed lock, if its closing has exactly this revision (B8).
type Reopen struct {
	Lock    string
	Closing Revision
}

// Put sets a lock's value.
type Put struct {
	// Session is 0, or the caller's session; Request then makes it one
	// request (C1).
	Session SessionID
	Request Request
	Lock    string
	Value   []byte
	// IfRevision, if Conditional, must be the lock's modify revision (0: no
	// value yet).
	Conditional bool
	IfRevision  Revision
	// Bind removes the value when Session ends (presence).
	Bind bool
	// Token, if not 0, must be the number of the lock's current token (A6).
	Token uint64
}

// Delete removes a lock's value, and with it the lock. Refused while the lock
// is held or queued (A6).
type Delete struct {
	Session     SessionID
	Request     Request
	Lock        string
	Conditional bool
	IfRevision  Revision
	Token       uint64
}

// Tick carries nothing but its entry's clock (B6).
type Tick struct{}

// RaiseEpoch sets the epoch, which must be higher than before (A4). Every
// session ends; the incarnation changes; revisions go on above the epoch's
// first number, and the events before are gone, so that every watcher reloads.
type RaiseEpoch struct {
	Epoch       uint16
	Incarnation uint64
	// NewDomain, if not zero, replaces the domain.
	NewDomain [16]byte
}

// SetVersion raises the cluster version (invariant 9). Lowering is refused.
type SetVersion struct{ Version uint32 }

// Members replaces the replicated list of members. The replica derives it
// from raft's membership changes, so that snapshots carry it (D8).
type Members struct {
	Members []Member
	Removed []uint64
}

// A Member of the cluster, as the state knows it.
type Member struct {
	ID         uint64
	Name       string
	ClientAddr string
	PeerAddr   string
	Learner    bool
}

// RevokeCause says who wanted a grant back.
type RevokeCause uint8

// The causes of a revoke.
const (
	ByOperator RevokeCause = iota + 1
	ByMaxHold
)

func (Open) command()       {}
func (End) command()        {}
func (Suspect) command()    {}
func (Clear) command()      {}
func (Expire) command()     {}
func (Acquire) command()    {}
func (Cancel) command()     {}
func (Release) command()    {}
func (Revoke) command()     {}
func (Reopen) command()     {}
func (Put) command()        {}
func (Delete) command()     {}
func (Tick) command()       {}
func (RaiseEpoch) command() {}
func (SetVersion) command() {}
func (Members) command()    {}
