package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
)

// memStorage is a disk in memory. What was handed over and not yet synced is
// lost in a crash.
type memStorage struct {
	hs      *raftpb.HardState
	entries []*raftpb.Entry // behind snap
	snap    *raftpb.Snapshot
	failed  error
}

var _ Storage = (*memStorage)(nil)

func (s *memStorage) Append(hs *raftpb.HardState, entries []*raftpb.Entry, received *raftpb.Snapshot) error {
	if s.failed != nil {
		return s.failed
	}
	if received != nil {
		s.snap, s.entries = received, nil
	}
	base := s.snap.GetMetadata().GetIndex()
	for _, e := range entries {
		if e.GetIndex() <= base {
			continue
		}
		if at := e.GetIndex() - base - 1; at > uint64(len(s.entries)) {
			s.failed = fmt.Errorf("entry %d leaves a gap", e.GetIndex())
			return s.failed
		} else {
			s.entries = append(s.entries[:at:at], e)
		}
	}
	if hs != nil {
		s.hs = hs
	}
	return nil
}

func (s *memStorage) StageSnapshot(*raftpb.Snapshot) error { return s.failed }

func (s *memStorage) SaveSnapshot(snap *raftpb.Snapshot) error {
	i := snap.GetMetadata().GetIndex()
	if s.hs.GetCommit() < i {
		s.failed = fmt.Errorf("snapshot %d above the commit index %d", i, s.hs.GetCommit())
		return s.failed
	}
	s.entries = s.entries[i-s.snap.GetMetadata().GetIndex():]
	s.snap = snap
	return nil
}

func (s *memStorage) Probe() error                   { return s.failed }
func (s *memStorage) Space() (uint64, uint64, error) { return 1 << 40, 1, nil }
func (s *memStorage) Close() error                   { return nil }

// member is one replica of the rig, with its disk and what it told.
type member struct {
	rig     *rig
	id      uint64
	disk    *memStorage
	m       *Machine // nil: down
	pending []Append // handed over, not synced
	role    Role
	applied []Applied
	reads   []Handle
	unknown []Handle
	results map[Handle]core.Applied
	log     *strings.Builder // effects as text, for transcripts; may be nil
}

// rig is a group in one thread: a message or a write happens when the test
// says so.
type rig struct {
	t       *testing.T
	members []*member
	net     []Message
	cut     map[[2]uint64]bool // from, to
	handle  Handle
}

func newRig(t *testing.T, n int) *rig {
	t.Helper()
	r := &rig{t: t, cut: map[[2]uint64]bool{}}
	var voters []uint64
	var members []core.Member
	for id := range n {
		voters = append(voters, uint64(id)+1)
		members = append(members, named(uint64(id)+1))
	}
	first, err := Bootstrap(core.New(core.Config{Domain: [16]byte{1}, Incarnation: 9, Members: members}), voters)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range voters {
		d := &memStorage{snap: first, hs: &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))}}
		mb := &member{rig: r, id: id, disk: d, results: map[Handle]core.Applied{}}
		r.members = append(r.members, mb)
		mb.start()
	}
	return r
}

func (mb *member) start() {
	mb.rig.t.Helper()
	m, err := New(Config{
		Group: 1, ID: mb.id, TrailingEntries: 5,
		Snapshot: mb.disk.snap, HardState: mb.disk.hs, Entries: slices.Clone(mb.disk.entries),
	})
	if err != nil {
		mb.rig.t.Fatal(err)
	}
	mb.m, mb.pending, mb.role, mb.applied = m, nil, Role{}, nil
}

// crash loses what was not synced.
func (mb *member) crash() { mb.m, mb.pending = nil, nil }

func (mb *member) say(format string, args ...any) {
	if mb.log != nil {
		fmt.Fprintf(mb.log, format+"\n", args...)
	}
}

// Append, Send, Applied, Role, Read and Unknown implement Effects.
func (mb *member) Append(a Append) {
	mb.pending = append(mb.pending, a)
	mb.say("append %s", describe(a))
}

func (mb *member) Send(msg Message) { mb.rig.net = append(mb.rig.net, msg) }

func (mb *member) Applied(a Applied) {
	mb.applied = append(mb.applied, a)
	if a.Proposal != 0 {
		mb.results[a.Proposal] = a.Did
	}
	mb.say("applied %d of term %d, proposal %d, %d results", a.Entry.Index, a.Entry.Term, a.Proposal, len(a.Did.Results))
	if err := mb.m.State().Check(); err != nil {
		mb.rig.t.Fatal(err)
	}
}

func (mb *member) Role(r Role) {
	mb.role = r
	mb.say("role: term %d, leader %d, elected %v, leads %v", r.Term, r.Leader, r.Elected, r.Leads)
}

func (mb *member) Read(h Handle) {
	mb.reads = append(mb.reads, h)
	mb.say("read %d at %d", h, mb.m.State().Index())
}

func (mb *member) Unknown(h Handle) {
	mb.unknown = append(mb.unknown, h)
	mb.say("unknown %d", h)
}

func describe(a Append) string {
	var parts []string
	if a.HardState != nil {
		parts = append(parts, fmt.Sprintf("term %d vote %d commit %d", a.HardState.GetTerm(), a.HardState.GetVote(), a.HardState.GetCommit()))
	}
	for _, e := range a.Entries {
		parts = append(parts, fmt.Sprintf("entry %d/%d", e.GetIndex(), e.GetTerm()))
	}
	if a.Snapshot != nil {
		parts = append(parts, fmt.Sprintf("snapshot %d", a.Snapshot.GetMetadata().GetIndex()))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d responses", len(a.responses))), ", ")
}

func (mb *member) advance() {
	mb.rig.t.Helper()
	if mb.m == nil {
		return
	}
	if err := mb.m.Advance(mb); err != nil {
		mb.rig.t.Fatalf("member %d: %v", mb.id, err)
	}
}

// sync makes the oldest pending batch durable.
func (mb *member) sync() bool {
	mb.rig.t.Helper()
	if mb.m == nil || len(mb.pending) == 0 {
		return false
	}
	a := mb.pending[0]
	mb.pending = mb.pending[1:]
	if err := mb.disk.Append(a.HardState, a.Entries, a.Snapshot); err != nil {
		mb.rig.t.Fatal(err)
	}
	if mb.id%2 == 0 {
		a.Decode() // or else StorageDone does
	}
	if err := mb.m.StorageDone(a, mb); err != nil {
		mb.rig.t.Fatalf("member %d: %v", mb.id, err)
	}
	mb.advance()
	return true
}

// deliver takes one message off the net.
func (r *rig) deliver() bool {
	if len(r.net) == 0 {
		return false
	}
	msg := r.net[0]
	r.net = r.net[1:]
	to := r.members[msg.GetTo()-1]
	if to.m == nil || r.cut[[2]uint64{msg.GetFrom(), msg.GetTo()}] {
		r.report(msg, false)
		return true
	}
	to.m.Step(msg)
	to.advance()
	r.report(msg, true)
	return true
}

// report ends the transfer of a snapshot, as every one must (D6).
func (r *rig) report(msg Message, ok bool) {
	from := r.members[msg.GetFrom()-1]
	if msg.GetType() == raftpb.MsgSnap && from.m != nil {
		from.m.SnapshotSent(msg.GetTo(), ok)
		from.advance()
	}
}

// settle lets everything happen until nothing is left to do.
func (r *rig) settle() {
	r.t.Helper()
	for range 10_000 {
		busy := r.deliver()
		for _, mb := range r.members {
			busy = mb.sync() || busy
			if mb.m != nil && mb.m.SnapshotWanted() {
				mb.snapshot()
			}
		}
		if !busy {
			return
		}
	}
	r.t.Fatal("it never comes to rest")
}

func (r *rig) tick(n int) {
	r.t.Helper()
	for range n {
		for _, mb := range r.members {
			if mb.m != nil {
				mb.m.Tick()
				mb.advance()
			}
		}
		r.settle()
	}
}

// elect makes a member the leader.
func (r *rig) elect(id uint64) *member {
	r.t.Helper()
	mb := r.members[id-1]
	mb.m.Campaign()
	mb.advance()
	r.settle()
	if !mb.role.Leads {
		r.t.Fatalf("member %d was not elected: %+v", id, mb.role)
	}
	return mb
}

// leader waits, by ticks, until somebody leads.
func (r *rig) leader() *member {
	r.t.Helper()
	for range 100 {
		var found *member
		for _, mb := range r.members {
			if mb.m != nil && mb.role.Leads && (found == nil || mb.role.Term > found.role.Term) {
				found = mb
			}
		}
		if found != nil {
			return found
		}
		r.tick(1)
	}
	r.t.Fatal("nobody leads")
	return nil
}

// propose appends commands at a member.
func (mb *member) propose(cmds ...core.Command) (Handle, error) {
	mb.rig.handle++
	h := mb.rig.handle
	err := mb.m.Propose(h, core.Header{Clock: core.Clock(h) * core.Clock(time.Millisecond)}, cmds)
	mb.advance()
	return h, err
}

func (mb *member) mustPropose(cmds ...core.Command) Handle {
	mb.rig.t.Helper()
	h, err := mb.propose(cmds...)
	if err != nil {
		mb.rig.t.Fatal(err)
	}
	return h
}

// checkEqual compares the state hashes of all members that are up.
func (r *rig) checkEqual() {
	r.t.Helper()
	var first *member
	for _, mb := range r.members {
		if mb.m == nil {
			continue
		}
		if first == nil {
			first = mb
		}
		if mb.m.State().Index() != first.m.State().Index() || mb.m.State().Hash() != first.m.State().Hash() {
			r.t.Fatalf("member %d is at %d, member %d at %d; hashes %x and %x", first.id, first.m.State().Index(), mb.id, mb.m.State().Index(), first.m.State().Hash(), mb.m.State().Hash())
		}
	}
}

func open(id uint64) core.Open {
	return core.Open{ID: core.SessionID(id), SecretHash: [32]byte{byte(id), byte(id >> 8)}, TTL: 10 * time.Second}
}

func acquire(id uint64, n uint64, lock string) core.Acquire {
	return core.Acquire{Session: core.SessionID(id), Request: core.Request{Lane: 0, N: n}, Lock: lock}
}

// work proposes a command at random.
func (mb *member) work(rng *rand.Rand, n *uint64) (Handle, error) {
	*n++
	switch rng.IntN(4) {
	case 0:
		return mb.propose(open(1 + *n%5))
	case 1:
		return mb.propose(acquire(1+rng.Uint64N(5), *n, fmt.Sprint("lock", rng.IntN(3))), core.Tick{})
	case 2:
		return mb.propose(core.Put{Lock: "v", Value: fmt.Append(nil, *n)})
	}
	return mb.propose(core.Release{Session: core.SessionID(1 + rng.Uint64N(5)), Grant: 1 + rng.Uint64N(max(1, mb.m.State().LastNumber()))})
}
