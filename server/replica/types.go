package replica

import (
	"bytes"
	"cmp"
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
)

// Storage is the durable half of a replica: its log, hard state and
// snapshots. The shell calls it from one goroutine, in the order in which
// [Effects] said so; only StageSnapshot may be called beside that. After an error every further call returns an error, and
// the replica must not answer anything any more (D3).
type Storage interface {
	// Append makes a batch durable: entries and hard state, and before them a
	// snapshot received from a peer. Each may be nil. When it returns nil all
	// is synced, except that a batch which only raises the commit index need
	// not be.
	Append(hs *raftpb.HardState, entries []*raftpb.Entry, received *raftpb.Snapshot) error
	// StageSnapshot writes a snapshot of this replica's own state to where it
	// does not count yet, so that SaveSnapshot of the same one is quick.
	StageSnapshot(snap *raftpb.Snapshot) error
	// SaveSnapshot makes a snapshot of this replica's own state durable and
	// drops the log that it makes needless. A batch with a commit index at or
	// above the snapshot's has been appended before (D4).
	SaveSnapshot(snap *raftpb.Snapshot) error
	// Probe writes something and syncs it.
	Probe() error
	// Space returns the free bytes of the file system, and below how many
	// the log must not be let (D3).
	Space() (free, reserve uint64, err error)
	// Close flushes and closes the storage.
	Close() error
}

// Append is one batch for [Storage.Append]. When it is durable it goes back
// to [Machine.StorageDone]. Batches are written in the order in which they
// came out; several may be written at once.
type Append struct {
	HardState *raftpb.HardState // nil: unchanged
	Entries   []*raftpb.Entry
	Snapshot  *raftpb.Snapshot // received from a peer; nil: none
	// responses may be delivered only when the batch is durable (D1).
	responses []*raftpb.Message
	supports  uint32 // as Config's
	decoded   *decoded
}

// decoded is the state in a received snapshot, or why there is none.
type decoded struct {
	state *core.State
	err   error
}

// Decode decodes the received snapshot, if there is one, so that StorageDone
// need not: a large one takes seconds, in which the replica would do nothing
// else. It touches nothing but the batch, and may be called by any goroutine
// before that; what is wrong with the snapshot is told by StorageDone.
func (a *Append) Decode() {
	if a.Snapshot == nil || a.decoded != nil {
		return
	}
	d := &decoded{}
	d.state, d.err = core.DecodeAs(bytes.NewReader(a.Snapshot.GetData()), cmp.Or(a.supports, core.SupportedVersion))
	a.decoded = d
}

// Message is a raft message to or from a peer.
type Message struct {
	Group uint64
	*raftpb.Message
}

// Handle names a proposal or a read between the shell and the machine. The
// shell chooses it; 0 is none.
type Handle uint64

// Applied is one entry that was applied.
type Applied struct {
	Entry core.Entry
	// Did is what the entry did. It is empty for raft's own entries (D9).
	Did core.Applied
	// Proposal is the handle of this replica's own proposal, else 0.
	Proposal Handle
}

// Role is what the replica is in its group.
type Role struct {
	Term   uint64
	Leader uint64 // ID; 0: none known
	// Leads: this replica leads, and the first entry of its own term is
	// applied. Before that it answers nothing (B3).
	Leads bool
	// Elected: raft elected this replica; it may propose.
	Elected bool
}

// Effects is what [Machine.Advance] asks of its shell, in order. The methods
// must not call the machine, except [Machine.State] in Applied, Role and Read.
type Effects interface {
	// Append hands a batch to the disk.
	Append(Append)
	// Send hands a message to the network. It may be lost.
	Send(Message)
	// Applied tells of one applied entry; the machine's state is the one
	// right after it.
	Applied(Applied)
	// Role tells that the role changed. When Leads becomes true, the state
	// is the one right after the first entry of the term.
	Role(Role)
	// Read tells that a read index was confirmed and is applied.
	Read(Handle)
	// Unknown tells that a proposal was appended and leadership was lost
	// before it was applied (C4). No Applied of it carries the handle.
	Unknown(Handle)
}

// The reasons why a proposal is refused. Nothing of it was appended: the
// outcome is no (C4).
var (
	// ErrNotLeader: this replica was not elected.
	ErrNotLeader = errors.New("not the leader")
	// ErrDropped: raft does not take proposals at the moment: too much is
	// uncommitted, or leadership is being handed over.
	ErrDropped = errors.New("proposal dropped")
)

// HaltError ends a replica: its log has something that this binary cannot
// apply, or an invariant broke. It must not go on (invariant 9).
type HaltError struct {
	Index uint64 // of the entry; 0 if none is to blame
	Err   error
}
