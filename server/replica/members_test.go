package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
)

// join starts a new, empty member with the next ID. It belongs to nobody yet.
func (r *rig) join() *member {
	r.t.Helper()
	blank, err := Blank(core.Config{Domain: [16]byte{1}, Incarnation: 9})
	if err != nil {
		r.t.Fatal(err)
	}
	mb := &member{rig: r, id: uint64(len(r.members)) + 1, disk: &memStorage{snap: blank}, results: map[Handle]core.Applied{}}
	r.members = append(r.members, mb)
	mb.start()
	return mb
}

func named(id uint64) core.Member {
	return core.Member{ID: id, Name: fmt.Sprint("n", id), ClientAddr: fmt.Sprint("client:", id), PeerAddr: fmt.Sprint("peer:", id)}
}

// change proposes a change of membership at mb.
func (mb *member) change(kind ChangeKind, id uint64) (Handle, error) {
	mb.rig.handle++
	h := mb.rig.handle
	c := Change{Kind: kind, Member: core.Member{ID: id}}
	if kind == AddLearner || kind == Readdress {
		c.Member = named(id)
	}
	err := mb.m.ProposeChange(h, core.Header{Clock: core.Clock(h)}, c)
	mb.advance()
	return h, err
}

func (mb *member) mustChange(kind ChangeKind, id uint64) {
	mb.rig.t.Helper()
	h, err := mb.change(kind, id)
	if err != nil {
		mb.rig.t.Fatal(err)
	}
	mb.rig.settle()
	if did, ok := mb.results[h]; !ok || len(did.Results) != 1 || did.Results[0].Status != core.Done {
		mb.rig.t.Fatalf("change %d of %d: applied %v, results %+v", kind, id, ok, did.Results)
	}
}

// list is the membership as a member's state has it, such as "1 2 3L -4".
func (mb *member) list() string {
	text := ""
	members, removed := mb.m.State().Members()
	for _, n := range members {
		text += fmt.Sprintf(" %d", n.ID)
		if n.Learner {
			text += "L"
		}
	}
	for _, id := range removed {
		text += fmt.Sprintf(" -%d", id)
	}
	return text[min(1, len(text)):]
}

func refusedAs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestMemberJoinsAndLeaves plays the life of a member: learner, voter, removed.
func TestMemberJoinsAndLeaves(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	l.mustPropose(open(1), acquire(1, 1, "l"))
	four := r.join()
	l.mustChange(AddLearner, 4)
	if got := l.list(); got != "1 2 3 4L" {
		t.Fatalf("members are %q", got)
	}
	r.tick(3)
	r.checkEqual()
	members, _ := four.m.State().Members()
	if want := named(4); members[3].Name != want.Name || members[3].ClientAddr != want.ClientAddr || members[3].PeerAddr != want.PeerAddr {
		t.Errorf("the state has %+v, want %+v", members[3], want)
	}
	four.m.Campaign()
	four.advance()
	r.settle()
	if !l.role.Leads {
		t.Error("a learner unseated the leader")
	}
	l.mustChange(Promote, 4)
	l.mustChange(Remove, 2)
	if got := l.list(); got != "1 3 4 -2" || !r.members[1].m.Removed() || four.m.Removed() {
		t.Errorf("members are %q; removed: %v", got, r.members[1].m.Removed())
	}
	r.checkEqual()

	// The new one may lead, and a snapshot carries all of it.
	l.m.TransferTo(4)
	l.advance()
	r.settle()
	if !four.role.Leads {
		t.Fatalf("member 4 is %+v after a transfer to it", four.role)
	}
	view, err := four.m.View().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if cs := view.GetMetadata().GetConfState(); len(cs.GetVoters()) != 3 || slices.Contains(cs.GetVoters(), 2) {
		t.Errorf("the snapshot's voters are %v", cs.GetVoters())
	}
	got, err := New(Config{Group: 1, ID: 2, Snapshot: view})
	if err != nil || !got.Removed() {
		t.Errorf("member 2 that starts from it: %v, removed %v", err, err == nil && got.Removed())
	}
	r.members[2].start() // from disk alone: snapshot and log
	r.tick(3)
	if got := r.members[2].list(); got != "1 3 4 -2" {
		t.Errorf("after a restart members are %q", got)
	}
}

func TestRefusedChanges(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	try := func(what string, want error, c Change) {
		t.Helper()
		before := l.m.State().Index()
		err := l.m.ProposeChange(99, core.Header{}, c)
		l.advance()
		r.settle()
		refusedAs(t, what, err, want)
		if l.m.State().Index() != before || l.list() != "1 2 3 4L" {
			t.Errorf("%s: something was appended: %s", what, l.list())
		}
	}
	four := r.join()
	four.m = nil // it never starts
	l.mustChange(AddLearner, 4)
	_, err := r.members[1].change(Remove, 3)
	refusedAs(t, "at a follower", err, ErrNotLeader)
	add := func(id uint64, name, peer string) Change {
		return Change{Kind: AddLearner, Member: core.Member{ID: id, Name: name, PeerAddr: peer}}
	}
	try("twice", ErrMemberExists, Change{Kind: AddLearner, Member: named(4)})
	try("a second learner", ErrLagging, Change{Kind: AddLearner, Member: named(5)})
	try("promote of a silent learner", ErrLagging, Change{Kind: Promote, Member: named(4)})
	try("promote of a voter", ErrMemberExists, Change{Kind: Promote, Member: named(2)})
	try("promote of nobody", ErrNoMember, Change{Kind: Promote, Member: named(7)})
	try("remove of nobody", ErrNoMember, Change{Kind: Remove, Member: named(7)})
	try("readdress of nobody", ErrNoMember, Change{Kind: Readdress, Member: named(7)})
	try("no kind", ErrBadMember, Change{Member: named(7)})
	try("readdress to another's address", ErrMemberExists, Change{Kind: Readdress, Member: core.Member{ID: 1, Name: "n1", PeerAddr: "peer:4"}})
	l.mustChange(Remove, 4)
	try = func(what string, want error, c Change) {
		t.Helper()
		err := l.m.ProposeChange(99, core.Header{}, c)
		refusedAs(t, what, err, want)
	}
	l.mustChange(Readdress, 2)
	try("ID 0", ErrBadMember, add(0, "a", "p"))
	try("long ID", ErrBadMember, add(1<<63, "a", "p"))
	try("no name", ErrBadMember, add(5, "", "p"))
	try("bad name", ErrBadMember, add(5, "A", "p"))
	try("no address", ErrBadMember, add(5, "a", ""))
	try("taken name", ErrMemberExists, add(5, "n2", "p"))
	try("taken address", ErrMemberExists, add(5, "a", "peer:2"))
	try("removed ID", ErrRemovedID, add(4, "a", "p"))
	try("removed twice", ErrNoMember, Change{Kind: Remove, Member: core.Member{ID: 4}})
	r.checkEqual()
}

// TestOneChangeAtATime: what raft turns into an empty entry is refused, not
// lost, and no later proposal takes its place.
func TestOneChangeAtATime(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	first, err := l.change(Readdress, 2)
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.change(Remove, 3)
	refusedAs(t, "a second change", err, ErrChangePending)
	third := l.mustPropose(open(1))
	r.settle()
	if len(l.results[first].Results) != 1 || l.results[third].Results[0].Status != core.Done || len(l.unknown) != 0 {
		t.Errorf("first %+v, third %+v, unknown %v", l.results[first], l.results[third], l.unknown)
	}
	if l.list() != "1 2 3" {
		t.Errorf("members are %s", l.list())
	}
}

// TestChangeOfANewLeader: a leader that has not yet applied what lay in its log
// when it was elected, which may be a change, takes none.
func TestChangeOfANewLeader(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	two, three := r.members[1], r.members[2]
	if _, err := l.change(Readdress, 3); err != nil {
		t.Fatal(err)
	}
	l.sync()
	for r.deliver() {
	}
	two.sync()
	three.sync()
	l.crash() // both have the entry, and do not know that it is committed
	r.net = nil
	three.crash()
	three.start() // and so has no leader
	two.m.Campaign()
	two.advance()
	for !two.m.elected() {
		if !r.deliver() && !two.sync() && !three.sync() {
			t.Fatal("member 2 was not elected")
		}
	}
	_, err := two.change(Remove, 3)
	refusedAs(t, "before the log is applied", err, ErrChangePending)
	r.settle()
	if two.list() != "1 2 3" || !two.role.Leads {
		t.Errorf("members are %s, the role %+v", two.list(), two.role)
	}
	l.start()
	r.tick(5)
	two.mustChange(Remove, 3)
	r.checkEqual()
}

// TestLaggingLearner: a learner gets no vote before it has the log.
func TestLaggingLearner(t *testing.T) {
	r := newRig(t, 1)
	l := r.elect(1)
	r.join()
	l.mustChange(AddLearner, 2)
	r.tick(3)
	r.cut[[2]uint64{1, 2}] = true // it is heard and hears nothing
	for range maxPromoteLag + 2 {
		l.mustPropose(core.Tick{})
		r.settle()
	}
	l.m.Step(Message{1, &raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(l.role.Term)}})
	_, err := l.change(Promote, 2)
	refusedAs(t, "a learner that lags", err, ErrLagging)
	r.cut = map[[2]uint64]bool{}
	r.tick(3)
	l.mustChange(Promote, 2)
	if l.m.Alone() {
		t.Error("with two voters member 1 says that it is alone")
	}
	r.checkEqual()
}

// TestQuorumIsKept: a removal that leaves too few voters in reach is refused.
func TestQuorumIsKept(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	r.members[2].crash()
	r.tick(12)
	if p := l.m.Progress(); p[3].Active || !p[2].Active || p[2].Match < l.m.Commit() || r.members[1].m.Progress() != nil {
		t.Errorf("progress is %+v at commit %d", p, l.m.Commit())
	}
	_, err := l.change(Remove, 2)
	refusedAs(t, "the reachable one", err, ErrLosesQuorum)
	l.mustChange(Remove, 3)
	_, err = l.change(Remove, 1)
	refusedAs(t, "the leader of two", err, ErrLosesQuorum)
	l.m.TransferTo(2)
	l.advance()
	r.settle()
	two := r.members[1]
	if !two.role.Leads {
		t.Fatalf("member 2 is %+v after the transfer", two.role)
	}
	two.mustChange(Remove, 1)
	_, err = two.change(Remove, 2)
	refusedAs(t, "the last one", err, ErrLosesQuorum)
	if !two.m.Alone() || two.list() != "2 -1 -3" {
		t.Errorf("members are %s", two.list())
	}
}

// TestRemovedLeader: a leader that removes itself tells so, steps down, and the
// others go on.
func TestRemovedLeader(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	late, err := l.change(Remove, 1)
	if err != nil {
		t.Fatal(err)
	}
	behind := l.mustPropose(open(7))
	r.settle()
	if !l.m.Removed() || l.role.Elected || len(l.results[late].Results) != 1 {
		t.Fatalf("removed %v, role %+v, results %+v", l.m.Removed(), l.role, l.results[late])
	}
	if _, applied := l.results[behind]; !applied && !slices.Contains(l.unknown, behind) {
		t.Error("a proposal behind the removal has no fate")
	}
	_, err = l.propose(core.Tick{})
	refusedAs(t, "a proposal afterwards", err, ErrNotLeader)
	r.tick(30)
	next := r.leader()
	if next == l || next.list() != "2 3 -1" {
		t.Errorf("member %d leads %s", next.id, next.list())
	}
	// What it still says is not heard.
	before := next.role.Term
	next.m.Step(Message{1, &raftpb.Message{Type: raftpb.MsgVote.Enum(), From: new(uint64(1)), To: new(next.id), Term: new(before + 5), Index: new(uint64(1000)), LogTerm: new(before + 4), Context: []byte("CampaignTransfer")}})
	next.advance()
	r.settle()
	if next.role.Term != before {
		t.Error("a removed member raised the term")
	}
}

// TestCasebookC09_RemovedMembersIDOnAnEmptyMachine: a machine that comes with
// the ID of a removed member and no data is not let in, and what it says has
// no effect, though the old log says that this ID has a vote.
func TestCasebookC09_RemovedMembersIDOnAnEmptyMachine(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	l.mustPropose(open(1), acquire(1, 1, "l"))
	r.settle()
	l.mustChange(Remove, 3)
	r.members[2].crash()
	r.members = r.members[:2]
	three := r.join() // an empty disk, the old ID
	if three.id != 3 {
		t.Fatal("not the old ID")
	}
	_, err := l.change(AddLearner, 3)
	refusedAs(t, "the old ID", err, ErrRemovedID)
	// It stands for election, and claims all there is.
	three.m.Campaign()
	three.advance()
	r.tick(25)
	if three.role.Leader != 0 || three.m.State().Index() != 0 || three.m.elected() {
		t.Errorf("the empty machine is %+v with %d entries", three.role, three.m.State().Index())
	}
	if !l.role.Leads || l.list() != "1 2 -3" {
		t.Errorf("member 1 is %+v of %s", l.role, l.list())
	}
	// With one member down the other must not make a quorum with it.
	r.members[1].crash()
	r.tick(25)
	if l.role.Elected {
		t.Error("member 1 leads with the help of a removed ID")
	}
}
