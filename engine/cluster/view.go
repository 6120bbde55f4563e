package cluster

import (
	"time"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// ReadInfo says how fresh an answer is.
type ReadInfo struct {
	// Stale: it was allowed to be stale, and no quorum confirmed it.
	Stale bool
	// Index is the log entry as of which it was read.
	Index uint64
	// Age is the time since the node last heard a leader; 0 if not Stale.
	Age time.Duration
	// Revision is the state's, from which [Client.Watch] goes on without a
	// gap.
	Revision uint64
}

// Lock is what the service says of one lock.
type Lock struct {
	Name           string
	CreateRevision uint64
	ModifyRevision uint64 // of the value, for compare-and-set; 0: no value yet
	HasValue       bool
	Value          []byte
	// ValueSession is the session that the value is bound to; 0 for none.
	ValueSession uint64
	Limit        uint32 // permits; 0 for a plain lock
	Holders      []Holder
	Waiters      int
	Queue        []Waiter // in order, as far as it was asked for
	Closed       bool
	// Sealed says that the shared run was revoked from: nobody joins it, who
	// comes waits until its last holder has gone.
	Sealed      bool
	ClosedCause string        // "lock-delay" or "once-per"
	OpensIn     time.Duration // how long it stays closed
	Read        ReadInfo
}

// Holder is one holder of a lock.
type Holder struct {
	Grant     uint64      // the grant's own number, for [Client.Revoke]
	Token     fence.Token // the number in it is the generation's
	SessionID uint64
	Label     string
	Host      string
	Held      time.Duration // since the grant
	Revoked   bool          // told to stop, still held
	RevokeBy  string
	RevokeWhy string         // "operator" or "max-hold"
	LastHeard *time.Duration // ago; nil if the server has not heard it
	TTLLeft   time.Duration  // 0 … TTL, as the leader sees it
	Shared    bool
}

// Waiter is one place in a lock's queue.
type Waiter struct {
	SessionID uint64
	Label     string
	Host      string
	Shared    bool
	Place     int // 1 is the head
	Waited    time.Duration
}

// Session is what the service says of one session.
type Session struct {
	ID        uint64
	Label     string
	Host      string
	TTL       time.Duration
	TTLLeft   time.Duration
	LastHeard *time.Duration // ago; nil if the server has not heard it
	Suspected bool           // silent for so long that its end is near
	Age       time.Duration
	Holds     []string // names of locks
	WaitsFor  []string
	Attached  bool // a stream is its voice
	Read      ReadInfo
}

// Status is what one server says of itself.
type Status struct {
	Server       string // its address, as this client knows it
	Version      string
	Domain       fence.Domain
	Incarnation  string
	Role         string // leader, follower, …
	Term         uint64
	AppliedIndex uint64
	NodeID       uint64
	LeaderID     uint64
	Epoch        uint32
	LastNumber   uint64 // the highest token number ever minted
	Revision     uint64
	Clock        time.Duration // the log's clock
	Ready        bool
	NotReady     string // why not
	Sessions     uint64
	Locks        uint64
	StateHash    string
}

// decoder turns wire messages into the types above, and keeps the first thing
// that makes no sense.
type decoder struct{ err error }

func (d *decoder) token(text string) fence.Token {
	if text == "" {
		return fence.Token{}
	}
	t, err := fence.ParseToken(text)
	if err != nil && d.err == nil {
		d.err = err
	}
	return t
}

// result is nil, or says that the service's answer makes no sense.
func (d *decoder) result() error {
	if d.err == nil {
		return nil
	}
	return &driver.Error{Kind: driver.Internal, Outcome: driver.No, Msg: "the service's answer makes no sense: " + d.err.Error(), Err: d.err}
}

func readInfo(r *holdfastv1.ReadInfo) ReadInfo {
	return ReadInfo{Stale: r.GetStale(), Index: r.GetIndex(), Age: wire.FromMillis(r.GetAgeMs()), Revision: r.GetRevision()}
}

func (d *decoder) lock(m *holdfastv1.Lock, r *holdfastv1.ReadInfo) Lock {
	l := Lock{
		Name: m.GetName(), CreateRevision: m.GetCreateRevision(), ModifyRevision: m.GetModifyRevision(),
		HasValue: m != nil && m.Value != nil, Value: m.GetValue(), ValueSession: m.GetValueSession(),
		Limit: m.GetLimit(), Waiters: int(m.GetWaiters()),
		Sealed: m.GetSealed(), Closed: m.GetClosed(), ClosedCause: m.GetClosedCause(), OpensIn: wire.FromMillis(m.GetOpensInMs()),
		Read: readInfo(r),
	}
	for _, h := range m.GetHolders() {
		l.Holders = append(l.Holders, Holder{
			Grant: h.GetGrant(), Token: d.token(h.GetToken()), SessionID: h.GetSessionId(),
			Label: h.GetLabel(), Host: h.GetHost(), Held: wire.FromMillis(h.GetHeldMs()),
			Revoked: h.GetRevoked(), RevokeBy: h.GetRevokeBy(), RevokeWhy: h.GetRevokeCause(),
			LastHeard: ago(h.LastHeardMs), TTLLeft: wire.FromMillis(h.GetTtlLeftMs()), Shared: h.GetShared(),
		})
	}
	for _, w := range m.GetQueue() {
		l.Queue = append(l.Queue, Waiter{
			SessionID: w.GetSessionId(), Label: w.GetLabel(), Host: w.GetHost(), Shared: w.GetShared(),
			Place: int(w.GetPlace()), Waited: wire.FromMillis(w.GetWaitedMs()),
		})
	}
	return l
}

func sessionInfo(m *holdfastv1.SessionInfo, r *holdfastv1.ReadInfo) Session {
	return Session{
		ID: m.GetId(), Label: m.GetLabel(), Host: m.GetHost(),
		TTL: wire.FromMillis(m.GetTtlMs()), TTLLeft: wire.FromMillis(m.GetTtlLeftMs()), LastHeard: ago(m.LastHeardMs),
		Suspected: m.GetSuspected(), Age: wire.FromMillis(m.GetAgeMs()),
		Holds: m.GetHolds(), WaitsFor: m.GetWaitsFor(), Attached: m.GetAttached(), Read: readInfo(r),
	}
}

func ago(ms *uint64) *time.Duration {
	if ms == nil {
		return nil
	}
	return new(wire.FromMillis(*ms))
}
