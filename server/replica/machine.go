package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
)

// Error implements error.
func (e *HaltError) Error() string {
	if e.Index == 0 {
		return fmt.Sprintf("replica halted: %v", e.Err)
	}
	return fmt.Sprintf("replica halted at entry %d: %v", e.Index, e.Err)
}

// Unwrap returns the cause below.
func (e *HaltError) Unwrap() error { return e.Err }

// Config is what a replica starts from: what its storage held.
type Config struct {
	Group uint64 // raft group, 1 or more
	ID    uint64 // of this member, 1 or more
	// ElectionTicks is the election timeout in ticks, 0 is 10. A heartbeat
	// is one tick.
	ElectionTicks int
	// Snapshot, HardState and Entries are what the storage recovered.
	Snapshot  *raftpb.Snapshot
	HardState *raftpb.HardState
	Entries   []*raftpb.Entry
	// TrailingEntries is how many entries below a snapshot stay in memory for
	// peers that lag; 0 is 1,000.
	TrailingEntries uint64
	// Supports, if not 0, is the newest cluster version that the replica
	// pretends to apply, in tests of upgrades.
	Supports uint32
}

// Limits of what raft keeps in flight (DESIGN §4: no frame exceeds 4 MiB).
const (
	maxAppendBytes      = 1 << 20
	maxInflightAppends  = 64
	maxInflightBytes    = 16 << 20
	maxUncommittedBytes = 64 << 20
	maxApplyBytes       = 4 << 20
)

// Machine is one replica. It is not safe for concurrent use.
type Machine struct {
	cfg  Config
	node *raft.RawNode
	// log is raft's view of what is durable: entries come in here when
	// StorageDone says so, and leave after a snapshot.
	log   *raft.MemoryStorage
	state *core.State
	conf  *raftpb.ConfState
	role  Role

	appliedTerm uint64 // of the last applied entry
	// Proposals of this term: in the order of their appending until raft
	// shows their entries, then by index.
	unplaced []Handle
	placed   map[uint64]Handle
	// reads that raft confirmed, in rising order of index, until it is applied.
	reads []confirmedRead

	// ticks counts raft's time; heard says when each peer was last heard.
	ticks uint64
	heard map[uint64]uint64

	// changedAt is the index of the last applied change of membership, 0 if it
	// is in the snapshot; wanted: see SnapshotWanted.
	changedAt uint64
	wanted    bool

	// What was logged since the newest snapshot.
	snapIndex   uint64
	bytesLogged uint64
	snapBytes   int // size of the newest snapshot's state
	halted      error
}

type confirmedRead struct {
	index  uint64
	handle Handle
}

// Bootstrap returns the first snapshot of a new group: the state at index 1,
// with its voters. Every member of a new group starts from the same (D7).
func Bootstrap(state *core.State, voters []uint64) (*raftpb.Snapshot, error) {
	if _, err := state.Apply(core.Entry{Index: 1, Term: 1}); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := state.Encode(&b); err != nil {
		return nil, err
	}
	return &raftpb.Snapshot{Data: b.Bytes(), Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: voters},
	}}, nil
}

// New returns the replica that the storage held. Its log above the snapshot is
// applied by Advance as soon as it is known to be committed.
func New(cfg Config) (m *Machine, err error) {
	defer recovered(&err)
	if cfg.ElectionTicks == 0 {
		cfg.ElectionTicks = 10
	}
	if cfg.TrailingEntries == 0 {
		cfg.TrailingEntries = 1000
	}
	if cfg.Group == 0 || cfg.ID == 0 || cfg.ElectionTicks < 2 {
		return nil, fmt.Errorf("replica: group %d, member %d and election timeout %d: want 1, 1 and 2 or more", cfg.Group, cfg.ID, cfg.ElectionTicks)
	}
	m = &Machine{cfg: cfg, log: raft.NewMemoryStorage(), placed: map[uint64]Handle{}, heard: map[uint64]uint64{}}
	first := Append{Snapshot: cfg.Snapshot, supports: cfg.Supports}
	if err := m.restore(first); err != nil {
		return nil, err
	}
	for i, e := range cfg.Entries {
		if want := m.snapIndex + 1 + uint64(i); e.GetIndex() != want {
			return nil, &HaltError{Index: want, Err: fmt.Errorf("the log has entry %d in its place", e.GetIndex())}
		}
	}
	if err := m.log.Append(cfg.Entries); err != nil {
		return nil, err
	}
	m.countBytes(cfg.Entries)
	if !raft.IsEmptyHardState(cfg.HardState) {
		if err := m.log.SetHardState(cfg.HardState); err != nil {
			return nil, err
		}
		m.role.Term = cfg.HardState.GetTerm()
	}
	m.node, err = raft.NewRawNode(&raft.Config{
		ID:                        cfg.ID,
		ElectionTick:              cfg.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   forPeers{m.log, m},
		Applied:                   m.snapIndex,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxAppendBytes,
		MaxCommittedSizePerReady:  maxApplyBytes,
		MaxUncommittedEntriesSize: maxUncommittedBytes,
		MaxInflightMsgs:           maxInflightAppends,
		MaxInflightBytes:          maxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    quiet{},
	})
	return m, err
}

// restore takes state and membership from a batch's snapshot.
func (m *Machine) restore(a Append) error {
	snap, md := a.Snapshot, a.Snapshot.GetMetadata()
	if a.Decode(); a.decoded == nil {
		return &HaltError{Err: errors.New("there is no snapshot")}
	}
	state, err := a.decoded.state, a.decoded.err
	if err != nil {
		return &HaltError{Index: md.GetIndex(), Err: fmt.Errorf("decoding the snapshot: %w", err)}
	}
	if state.Index() != md.GetIndex() {
		return &HaltError{Index: md.GetIndex(), Err: fmt.Errorf("the snapshot holds the state of entry %d", state.Index())}
	}
	if md.GetIndex() > 0 { // else a new member's, see Blank
		if err := m.log.ApplySnapshot(snap); err != nil {
			return &HaltError{Index: md.GetIndex(), Err: err}
		}
	}
	m.state, m.conf = state, md.GetConfState()
	m.snapIndex, m.appliedTerm, m.bytesLogged, m.snapBytes = md.GetIndex(), md.GetTerm(), 0, len(snap.GetData())
	m.changedAt, m.wanted = 0, false
	return nil
}

// State is the applied state. It is the machine's: read it between calls, or
// Clone it.
func (m *Machine) State() *core.State { return m.state }

// Role is the role as of the last Advance.
func (m *Machine) Role() Role { return m.role }

// Alone reports whether this replica is the only voter.
func (m *Machine) Alone() bool {
	return len(m.conf.GetVoters()) == 1 && m.conf.GetVoters()[0] == m.cfg.ID && len(m.conf.GetVotersOutgoing()) == 0
}

// Tick lets one unit of raft's time pass.
func (m *Machine) Tick() {
	m.ticks++
	m.guard(m.node.Tick)
}

// Campaign stands for election at once instead of after the timeout.
func (m *Machine) Campaign() { m.guard(func() { _ = m.node.Campaign() }) }

// TransferTo hands leadership over to another voter.
func (m *Machine) TransferTo(id uint64) { m.guard(func() { m.node.TransferLeader(id) }) }

// Step takes a message from a peer. Messages of other groups and of removed
// members, what raft keeps to itself, and proposals, which no peer forwards, are
// ignored.
func (m *Machine) Step(msg Message) {
	if msg.Message == nil || msg.Group != m.cfg.Group || raft.IsLocalMsg(msg.GetType()) || msg.GetType() == raftpb.MsgProp || m.state.WasRemoved(msg.GetFrom()) {
		return
	}
	m.heard[msg.GetFrom()] = m.ticks
	m.guard(func() { _ = m.node.Step(msg.Message) })
}

// Unreachable tells that a message to a peer was lost.
func (m *Machine) Unreachable(id uint64) { m.guard(func() { m.node.ReportUnreachable(id) }) }

// SnapshotSent ends the transfer of a snapshot to a peer (D6).
func (m *Machine) SnapshotSent(id uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	m.guard(func() { m.node.ReportSnapshot(id, status) })
}

// Propose appends one entry with commands to the log. Its fate comes out of
// Advance as Applied or Unknown with the handle, exactly once; after an error
// (ErrNotLeader, ErrDropped, or one of the encoding) nothing was appended.
func (m *Machine) Propose(h Handle, header core.Header, cmds []core.Command) error {
	if m.halted != nil {
		return m.halted
	}
	if !m.elected() {
		return ErrNotLeader
	}
	data, err := core.EncodeEntry(header, cmds)
	if err != nil {
		return err
	}
	m.guard(func() { err = m.node.Propose(data) })
	switch {
	case m.halted != nil:
		return m.halted
	case errors.Is(err, raft.ErrProposalDropped):
		return ErrDropped
	case err != nil:
		return err
	}
	m.unplaced = append(m.unplaced, h)
	return nil
}

func (m *Machine) elected() bool {
	return m.node.BasicStatus().RaftState == raft.StateLeader
}

// ReadIndex asks for a confirmation that this replica leads (or, on a
// follower, for the leader's commit index). Raft may drop it in silence: the
// shell asks anew, with a new handle, after an election timeout (C4).
func (m *Machine) ReadIndex(h Handle) {
	m.guard(func() { m.node.ReadIndex(binary.BigEndian.AppendUint64(nil, uint64(h))) })
}

// StorageDone tells that a batch is durable. Batches come back in the order in
// which they came out. Messages that waited for it go out through eff.
func (m *Machine) StorageDone(a Append, eff Effects) error {
	m.guard(func() { m.storageDone(a, eff) })
	return m.halted
}

func (m *Machine) storageDone(a Append, eff Effects) {
	if a.Snapshot != nil {
		m.halt(m.restore(a))
	}
	if m.halted != nil {
		return
	}
	if err := m.log.Append(a.Entries); err != nil {
		m.halt(&HaltError{Err: err})
	}
	if a.HardState != nil {
		if err := m.log.SetHardState(a.HardState); err != nil {
			m.halt(&HaltError{Err: err})
		}
	}
	m.countBytes(a.Entries)
	for _, r := range a.responses {
		if r.GetTo() == m.cfg.ID {
			_ = m.node.Step(r)
		} else {
			eff.Send(Message{m.cfg.Group, r})
		}
	}
}

func (m *Machine) countBytes(entries []*raftpb.Entry) {
	for _, e := range entries {
		m.bytesLogged += uint64(len(e.GetData()))
	}
}

func (m *Machine) halt(err error) {
	if err != nil && m.halted == nil {
		m.halted = err
	}
}

// guard runs one call of raft. A panic there is a broken invariant: it halts
// the replica.
func (m *Machine) guard(call func()) {
	if m.halted != nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			m.halt(&HaltError{Err: fmt.Errorf("raft: %v", p)})
		}
	}()
	call()
}

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = &HaltError{Err: fmt.Errorf("raft: %v", p)}
	}
}
