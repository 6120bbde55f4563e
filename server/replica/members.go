package replica

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"holdfast/server/core"
)

// ChangeKind says what a change of membership does.
type ChangeKind uint8

// The changes of membership. A new member is a learner first: it gets the log
// and has no vote, so that it cannot hold up a quorum before it can serve in
// one. Each change alters at most one vote, so the old and the new quorum
// always share a member.
const (
	AddLearner ChangeKind = iota + 1
	Promote               // a learner that has caught up becomes a voter
	Remove                // for good: the ID never comes back (D7)
	Readdress             // name and addresses of a member change
)

// A Change is one change of membership. Promote and Remove look at the
// member's ID only.
type Change struct {
	Kind   ChangeKind
	Member core.Member
}

// The reasons why a change of membership is refused; errors of
// [Machine.ProposeChange] wrap one and say more. Nothing of it was appended.
var (
	// ErrChangePending: another change is under way, or this leader has not
	// yet applied all that came before it.
	ErrChangePending = errors.New("another change of membership is under way")
	// ErrBadMember: the member's ID, name or addresses cannot be used.
	ErrBadMember = errors.New("bad member")
	// ErrMemberExists: the ID, the name or the address is a member's.
	ErrMemberExists = errors.New("member exists")
	// ErrRemovedID: the ID was removed and never comes back.
	ErrRemovedID = errors.New("removed for good")
	// ErrNoMember: nobody has this ID.
	ErrNoMember = errors.New("no such member")
	// ErrLagging: the learner has not caught up, or another one has not yet.
	ErrLagging = errors.New("not caught up")
	// ErrLosesQuorum: too few voters would be left that can be reached.
	ErrLosesQuorum = errors.New("the quorum would be lost")
)

// maxPromoteLag is how many entries a learner may be behind when it gets a
// vote: with one batch in flight it is always a little behind.
const maxPromoteLag = 64

// ProposeChange appends a change of membership to the log; header is as for
// Propose. What became of it comes out of Advance as for Propose; its Applied
// holds the [core.Members] that the change left. The checks are exact: raft
// takes no change before all earlier ones are applied.
func (m *Machine) ProposeChange(h Handle, header core.Header, c Change) error {
	if m.halted != nil {
		return m.halted
	}
	if !m.elected() {
		return ErrNotLeader
	}
	cc, err := m.allowed(header, c)
	if err != nil {
		return err
	}
	data, err := proto.Marshal(cc)
	if err != nil {
		return err
	}
	msg := &raftpb.Message{
		Type: raftpb.MsgProp.Enum(), From: new(m.cfg.ID),
		Entries: []*raftpb.Entry{{Type: raftpb.EntryConfChangeV2.Enum(), Data: data}},
	}
	m.guard(func() { err = m.node.Step(msg) })
	switch {
	case m.halted != nil:
		return m.halted
	case errors.Is(err, raft.ErrProposalDropped):
		return ErrDropped
	case err != nil:
		return err
	case msg.GetEntries()[0].GetType() == raftpb.EntryNormal:
		// Raft appended an empty entry in its place (D9).
		return fmt.Errorf("%w: try again in a moment", ErrChangePending)
	}
	m.unplaced = append(m.unplaced, h)
	return nil
}

// allowed checks a change against the applied membership, and gives it the
// form that raft takes. Its context is an entry with what changes in the list
// of members (D8).
func (m *Machine) allowed(header core.Header, c Change) (*raftpb.ConfChangeV2, error) {
	kind := raftpb.ConfChangeAddNode
	list := core.Members{Members: []core.Member{c.Member}}
	var err error
	switch c.Kind {
	case AddLearner:
		kind, list.Members[0].Learner = raftpb.ConfChangeAddLearnerNode, true
		err = m.mayAdd(c.Member)
	case Promote:
		list.Members[0], err = m.mayPromote(c.Member.ID)
	case Remove:
		kind, list.Members = raftpb.ConfChangeRemoveNode, nil
		err = m.mayRemove(c.Member.ID)
	case Readdress:
		var old core.Member
		if old, err = m.member(c.Member.ID); err == nil {
			err = m.fits(c.Member)
		}
		if list.Members[0].Learner = old.Learner; old.Learner {
			kind = raftpb.ConfChangeAddLearnerNode
		}
	default:
		err = fmt.Errorf("%w: unknown change %d", ErrBadMember, c.Kind)
	}
	if err != nil {
		return nil, err
	}
	context, err := core.EncodeEntry(header, []core.Command{list})
	if err != nil {
		return nil, err
	}
	return &raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: kind.Enum(), NodeId: new(c.Member.ID)}},
		Context: context,
	}, nil
}

func (m *Machine) mayAdd(n core.Member) error {
	members, _ := m.state.Members()
	for _, old := range members {
		if old.ID == n.ID {
			return fmt.Errorf("%w: %s has the ID %016x", ErrMemberExists, Called(old), n.ID)
		}
		if old.Learner {
			return fmt.Errorf("%w: %s is being added: wait until it has a vote, or remove it first", ErrLagging, Called(old))
		}
	}
	return m.fits(n)
}

// fits checks ID, name and addresses of a member against those of others.
func (m *Machine) fits(n core.Member) error {
	if n.ID == 0 || n.ID>>63 != 0 {
		return fmt.Errorf("%w: ID %d: want 1 … 2^63−1", ErrBadMember, n.ID)
	}
	if err := core.ValidateMemberName(n.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrBadMember, err)
	}
	if n.PeerAddr == "" || len(n.PeerAddr) > 512 || len(n.ClientAddr) > 512 {
		return fmt.Errorf("%w: addresses %q and %q: want at most 512 bytes, and one for peers", ErrBadMember, n.PeerAddr, n.ClientAddr)
	}
	members, removed := m.state.Members()
	if slices.Contains(removed, n.ID) {
		return fmt.Errorf("%w: the member with ID %016x was removed, and an ID is never used again: start it with an empty data directory, which gives it a new one", ErrRemovedID, n.ID)
	}
	for _, old := range members {
		switch {
		case old.ID == n.ID:
		case old.Name == n.Name:
			return fmt.Errorf("%w: the name %s is that of member %016x: choose another, or remove that member first", ErrMemberExists, n.Name, old.ID)
		case old.PeerAddr == n.PeerAddr:
			return fmt.Errorf("%w: the peer address %s is that of %s: choose another, or remove that member first", ErrMemberExists, n.PeerAddr, Called(old))
		}
	}
	return nil
}

func (m *Machine) mayPromote(id uint64) (core.Member, error) {
	n, err := m.member(id)
	if err != nil {
		return n, err
	}
	if !n.Learner {
		return n, fmt.Errorf("%w: %s has a vote already", ErrMemberExists, Called(n))
	}
	st := m.node.Status()
	p, commit := st.Progress[id], st.GetCommit()
	switch {
	case !m.active(id):
		return n, fmt.Errorf("%w: %s has not been heard for an election timeout: see that it runs and can be reached at %s", ErrLagging, Called(n), n.PeerAddr)
	case p.State != tracker.StateReplicate || p.Match+maxPromoteLag < commit:
		return n, fmt.Errorf("%w: %s has the log up to entry %d of %d: wait until it has caught up", ErrLagging, Called(n), p.Match, commit)
	}
	n.Learner = false
	return n, nil
}

// mayRemove refuses a removal after which, or for which, too few voters can be
// reached.
func (m *Machine) mayRemove(id uint64) error {
	n, err := m.member(id)
	if err != nil {
		return err
	}
	if n.Learner {
		return nil
	}
	now, _ := m.voters(0)
	left, reached := m.voters(id)
	switch {
	case len(left) == 0:
		return fmt.Errorf("%w: %s is the only voter: add another member first", ErrLosesQuorum, Called(n))
	case reached < len(left)/2+1:
		return fmt.Errorf("%w: of the %d voters that would be left %d can be reached: bring one back, or remove one that cannot be reached first", ErrLosesQuorum, len(left), reached)
	case id == m.cfg.ID && len(now) == 2:
		// The other one may never learn that it is alone, and then waits for
		// this one's vote for ever.
		return fmt.Errorf("%w: %s leads, and the one voter that would be left could not tell: transfer leadership to it first", ErrLosesQuorum, Called(n))
	}
	return nil
}

// voters returns the voters but one, and how many of them were heard lately.
func (m *Machine) voters(but uint64) (ids []uint64, reached int) {
	for _, id := range m.conf.GetVoters() {
		if id == but {
			continue
		}
		if ids = append(ids, id); m.active(id) {
			reached++
		}
	}
	return ids, reached
}

func (m *Machine) member(id uint64) (core.Member, error) {
	members, removed := m.state.Members()
	for _, n := range members {
		if n.ID == id {
			return n, nil
		}
	}
	if slices.Contains(removed, id) {
		return core.Member{}, fmt.Errorf("%w: %016x was removed before", ErrNoMember, id)
	}
	return core.Member{}, fmt.Errorf("%w: nobody has the ID %016x", ErrNoMember, id)
}

// Called is how people are told of a member.
func Called(n core.Member) string {
	if n.Name == "" {
		return fmt.Sprintf("member %016x", n.ID)
	}
	return fmt.Sprintf("%s (%016x)", n.Name, n.ID)
}

// changeMembers applies a change of membership to raft, and derives from it
// the list of members for the state (D8): who is in it, and with a vote, is
// what raft says, so that the two never differ.
func (m *Machine) changeMembers(e *raftpb.Entry) (core.Entry, error) {
	out := core.Entry{Index: e.GetIndex(), Term: e.GetTerm()}
	cc, err := unpackChange(e)
	if err != nil {
		return out, err
	}
	m.conf, m.changedAt = m.node.ApplyConfChange(cc), e.GetIndex()
	if len(cc.GetChanges()) == 0 {
		return out, nil // raft's automatic leave of a joint membership (D9)
	}
	told := map[uint64]core.Member{}
	if len(cc.GetContext()) > 0 {
		inner, err := core.DecodeEntry(e.GetIndex(), e.GetTerm(), cc.GetContext())
		if err != nil {
			return out, err
		}
		out.Header = inner.Header
		for _, c := range inner.Commands {
			list, _ := c.(core.Members)
			for _, n := range list.Members {
				told[n.ID] = n
			}
		}
	}
	out.Commands = []core.Command{m.memberList(cc.GetChanges(), told)}
	return out, nil
}

func unpackChange(e *raftpb.Entry) (*raftpb.ConfChangeV2, error) {
	cc := &raftpb.ConfChangeV2{}
	if e.GetType() == raftpb.EntryConfChange {
		old := &raftpb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), old); err != nil {
			return nil, fmt.Errorf("change of membership: %w", err)
		}
		return old.AsV2(), nil
	}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return nil, fmt.Errorf("change of membership: %w", err)
	}
	return cc, nil
}

// memberList is the list of members after changes.
func (m *Machine) memberList(changes []*raftpb.ConfChangeSingle, told map[uint64]core.Member) core.Members {
	members, removed := m.state.Members()
	list := map[uint64]core.Member{}
	for _, n := range members {
		list[n.ID] = n
	}
	for _, c := range changes {
		id := c.GetNodeId()
		if c.GetType() == raftpb.ConfChangeRemoveNode {
			delete(list, id)
			removed = append(removed, id)
			continue
		}
		n, ok := told[id]
		if !ok {
			n = list[id]
		}
		n.ID, n.Learner = id, c.GetType() == raftpb.ConfChangeAddLearnerNode
		list[id] = n
	}
	slices.Sort(removed)
	return core.Members{Members: slices.SortedFunc(maps.Values(list), func(a, b core.Member) int { return cmp.Compare(a.ID, b.ID) }), Removed: slices.Compact(removed)}
}

// Removed reports whether this replica was removed from its group: it must
// stop, and its ID never comes back.
func (m *Machine) Removed() bool { return m.state.WasRemoved(m.cfg.ID) }

// active reports whether a peer was heard within an election timeout.
func (m *Machine) active(id uint64) bool {
	at, ok := m.heard[id]
	return id == m.cfg.ID || ok && m.ticks-at <= uint64(m.cfg.ElectionTicks)
}

// forPeers is the log as raft sees it. A member takes no snapshot of a group
// that it is not in: one from before the last change of membership is not sent,
// and the shell is asked for a newer one.
type forPeers struct {
	*raft.MemoryStorage
	m *Machine
}

// Snapshot implements raft.Storage.
func (p forPeers) Snapshot() (*raftpb.Snapshot, error) {
	if p.m.snapIndex < p.m.changedAt {
		p.m.wanted = true
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return p.MemoryStorage.Snapshot()
}

// SnapshotWanted reports that a peer needs a snapshot newer than the last one:
// the shell takes one of [Machine.View], however little was logged.
func (m *Machine) SnapshotWanted() bool { return m.wanted }

// Progress is how far a member's log goes, as the leader knows it.
type Progress struct {
	Match uint64 // last entry that it is known to have
	// Active: it was heard within an election timeout.
	Active bool
	// Snapshot: it is being sent one.
	Snapshot bool
}

// Progress tells of all members, by ID, how far they are. Only the leader
// knows; elsewhere it is nil.
func (m *Machine) Progress() map[uint64]Progress {
	if m.halted != nil || !m.elected() {
		return nil
	}
	all := map[uint64]Progress{}
	for id, p := range m.node.Status().Progress { // into another map: the order does not matter
		all[id] = Progress{Match: p.Match, Active: m.active(id), Snapshot: p.State == tracker.StateSnapshot}
	}
	return all
}

// Commit is the index of the last entry that is known to be committed.
func (m *Machine) Commit() uint64 { return m.node.BasicStatus().GetCommit() }

// Blank returns what a new member of a running group starts from: the state at
// index 0. Who the members are says c, for the shell; raft knows nobody. The
// leader sends it a snapshot, because no log begins before the first snapshot
// of the group; until then it neither votes nor stands, so an old entry that
// names its ID has no say (C09 in the casebook).
func Blank(c core.Config) (*raftpb.Snapshot, error) {
	var b bytes.Buffer
	if err := core.New(c).Encode(&b); err != nil {
		return nil, err
	}
	return &raftpb.Snapshot{Data: b.Bytes(), Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(0)), Term: new(uint64(0)), ConfState: &raftpb.ConfState{},
	}}, nil
}
