package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
)

// TestTranscripts plays the life of a lone voter: each command is one input,
// the output is what the machine asks of its shell.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		r := newRig(t, 1)
		mb := r.members[0]
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			mb.log = &strings.Builder{}
			if err := play(mb, d); err != nil {
				mb.say("error: %v", err)
			}
			if mb.log.Len() == 0 {
				return "nothing\n"
			}
			return mb.log.String()
		})
	})
}

func play(mb *member, d *datadriven.TestData) error {
	switch d.Cmd {
	case "campaign":
		mb.m.Campaign()
	case "tick":
		mb.m.Tick()
	case "propose":
		var cmds []core.Command
		for _, a := range d.CmdArgs {
			cmds = append(cmds, parseCommand(a))
		}
		h, err := mb.propose(cmds...)
		if err == nil {
			mb.say("proposed %d", h)
		}
		return err
	case "read":
		mb.rig.handle++
		mb.m.ReadIndex(mb.rig.handle)
	case "sync":
		if !mb.sync() {
			mb.say("nothing to sync")
		}
	case "crash":
		mb.crash()
		mb.start()
	case "snapshot":
		snap, err := mb.m.View().Encode()
		if err == nil {
			err = mb.disk.SaveSnapshot(snap)
		}
		if err == nil {
			err = mb.m.SnapshotSaved(snap)
		}
		entries, bytes := mb.m.Logged()
		mb.say("snapshot of %d, %d entries and %d bytes since", snap.GetMetadata().GetIndex(), entries, bytes)
		return err
	case "state":
		mb.say("index %d, %d sessions, last number %d, alone %v", mb.m.State().Index(), mb.m.State().SessionCount(), mb.m.State().LastNumber(), mb.m.Alone())
		return nil
	default:
		return fmt.Errorf("unknown input %s", d.Cmd)
	}
	mb.advance()
	return nil
}

func parseCommand(a datadriven.CmdArg) core.Command {
	id, _ := strconv.ParseUint(a.Vals[0], 10, 64)
	switch a.Key {
	case "open":
		return open(id)
	case "acquire":
		n, _ := strconv.ParseUint(a.Vals[1], 10, 64)
		return acquire(id, n, a.Vals[2])
	}
	return core.Tick{}
}

func TestThreeReplicate(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	h := l.mustPropose(open(1), acquire(1, 1, "l"))
	r.settle()
	did, ok := l.results[h]
	if !ok || did.Results[1].Status != core.Granted {
		t.Fatalf("result is %+v", did)
	}
	r.tick(2) // the commit index reaches the others
	r.checkEqual()
	for _, mb := range r.members[1:] {
		if _, err := mb.propose(core.Tick{}); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower takes a proposal: %v", err)
		}
		if mb.role.Leader != 1 || mb.role.Leads {
			t.Errorf("member %d thinks %+v", mb.id, mb.role)
		}
		for _, a := range mb.applied {
			if a.Proposal != 0 {
				t.Errorf("a follower applied entry %d as its own proposal", a.Entry.Index)
			}
		}
	}
}

// TestLostLeader: what was appended and not applied is unknown at the old
// leader, exactly once, whether it is lost or not (C4).
func TestLostLeader(t *testing.T) {
	for _, reaches := range []bool{false, true} {
		t.Run(fmt.Sprint("reaches=", reaches), func(t *testing.T) {
			r := newRig(t, 3)
			old := r.elect(1)
			done := old.mustPropose(open(1))
			r.settle()
			for _, to := range []uint64{2, 3} {
				r.cut[[2]uint64{1, to}] = !reaches
				r.cut[[2]uint64{to, 1}] = true
			}
			h1, h2 := old.mustPropose(acquire(1, 1, "a")), old.mustPropose(acquire(1, 2, "b"))
			r.settle()
			if len(old.unknown) != 0 {
				t.Fatal("unknown before leadership was lost")
			}
			clear(r.cut)
			r.cut[[2]uint64{1, 2}], r.cut[[2]uint64{1, 3}] = true, true
			r.members[1].m.Tick()
			for range 25 { // beyond the time in which 2 and 3 protect their leader
				r.members[1].m.Tick()
				r.members[2].m.Tick()
				r.members[1].advance()
				r.members[2].advance()
				r.settle()
			}
			clear(r.cut)
			leader := r.leader()
			for leader == old {
				r.tick(1)
				leader = r.leader()
			}
			r.tick(3)
			if !slices.Equal(old.unknown, []Handle{h1, h2}) {
				t.Errorf("unknown are %v: want %v", old.unknown, []Handle{h1, h2})
			}
			if _, ok := old.results[done]; !ok {
				t.Error("the settled proposal has no result")
			}
			for _, h := range []Handle{h1, h2} {
				if _, ok := old.results[h]; ok {
					t.Errorf("proposal %d is unknown and has a result", h)
				}
			}
			r.checkEqual()
			if got := leader.m.State().LastNumber(); (got == 2) != reaches {
				t.Errorf("the last number is %d", got)
			}
		})
	}
}

// A leader that was cut off answers no read.
func TestCasebookC08_CutOffLeaderConfirmsNoRead(t *testing.T) {
	r := newRig(t, 3)
	old := r.elect(1)
	old.m.ReadIndex(100)
	old.advance()
	r.settle()
	if !slices.Equal(old.reads, []Handle{100}) {
		t.Fatalf("reads are %v", old.reads)
	}
	for _, to := range []uint64{2, 3} {
		r.cut[[2]uint64{1, to}], r.cut[[2]uint64{to, 1}] = true, true
	}
	old.m.ReadIndex(101)
	old.advance()
	r.tick(25)
	if len(old.reads) != 1 {
		t.Errorf("a leader without a quorum confirmed a read: %v", old.reads)
	}
	if old.role.Elected {
		t.Error("a leader without a quorum did not step down")
	}
}

// A vote and an acknowledgement leave only after their sync (D1).
func TestCasebookC06_VoteAndAckOnlyAfterSync(t *testing.T) {
	r := newRig(t, 3)
	one, two := r.members[0], r.members[1]
	one.m.Campaign()
	one.advance()
	for one.sync() {
	}
	for r.deliver() { // pre-votes are asked for
	}
	answers := func() (n int) {
		for _, m := range r.net {
			if m.GetFrom() == two.id {
				n++
			}
		}
		return n
	}
	if len(two.pending) == 0 || answers() != 0 {
		t.Fatalf("%d batches wait at the voter, %d answers went out", len(two.pending), answers())
	}
	two.sync()
	if answers() != 1 {
		t.Errorf("%d answers went out after the sync", answers())
	}
	// A crash before the sync of an append: no acknowledgement was sent.
	r.settle()
	l := r.elect(1)
	l.mustPropose(open(1))
	for r.deliver() {
	}
	if len(two.pending) == 0 {
		t.Fatal("the follower writes nothing")
	}
	if answers() != 0 {
		t.Error("the follower acknowledged what it did not sync")
	}
	two.crash()
	two.start()
	r.settle()
	r.tick(3)
	r.checkEqual()
}

// TestSnapshotToLaggard: a member that was away too long is sent a snapshot.
func TestSnapshotToLaggard(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	r.members[2].crash()
	for i := range uint64(40) {
		l.mustPropose(open(i + 1))
		r.settle()
	}
	snap, err := l.m.View().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.disk.SaveSnapshot(snap); err != nil {
		t.Fatal(err)
	}
	if err := l.m.SnapshotSaved(snap); err != nil {
		t.Fatal(err)
	}
	if entries, bytes := l.m.Logged(); entries != 0 || bytes != 0 {
		t.Errorf("%d entries and %d bytes since the snapshot", entries, bytes)
	}
	r.members[2].start()
	r.tick(5)
	if got := r.members[2].disk.snap.GetMetadata().GetIndex(); got != snap.GetMetadata().GetIndex() {
		t.Errorf("the laggard has snapshot %d: want %d", got, snap.GetMetadata().GetIndex())
	}
	l.mustPropose(core.Tick{})
	r.tick(2)
	r.checkEqual()
}

// TestHalt: what a replica does not understand halts it by name, and it stays
// halted (invariant 9).
func TestHalt(t *testing.T) {
	r := newRig(t, 1)
	mb := r.elect(1)
	mb.m.guard(func() { _ = mb.m.node.Propose([]byte("from the future")) })
	if err := mb.m.Advance(mb); err != nil {
		t.Fatal(err)
	}
	a := mb.pending[0]
	if err := mb.m.StorageDone(a, mb); err != nil {
		t.Fatal(err)
	}
	before := mb.m.State().Index()
	err := mb.m.Advance(mb)
	he, ok := errors.AsType[*HaltError](err)
	if !ok || he.Index != before+1 {
		t.Fatalf("Advance says %v", err)
	}
	if mb.m.State().Index() != before {
		t.Error("the index moved past an unknown command")
	}
	if _, again := mb.propose2(); !errors.Is(again, err) {
		t.Errorf("a halted replica takes a proposal: %v", again)
	}
	if again := mb.m.Advance(mb); again != err {
		t.Errorf("the second Advance says %v", again)
	}
}

func (mb *member) propose2() (Handle, error) {
	return 0, mb.m.Propose(1, core.Header{}, []core.Command{core.Tick{}})
}

func TestBadStarts(t *testing.T) {
	r := newRig(t, 1)
	good := r.members[0].disk
	cases := map[string]Config{
		"no group":     {ID: 1, Snapshot: good.snap, HardState: good.hs},
		"no id":        {Group: 1, Snapshot: good.snap, HardState: good.hs},
		"no snapshot":  {Group: 1, ID: 1},
		"lost entries": {Group: 1, ID: 1, Snapshot: good.snap, HardState: &raftpb.HardState{Term: new(uint64(3)), Commit: new(uint64(9))}},
		"a gap":        {Group: 1, ID: 1, Snapshot: good.snap, HardState: good.hs, Entries: []*raftpb.Entry{{Index: new(uint64(5)), Term: new(uint64(1))}}},
		"other bytes":  {Group: 1, ID: 1, Snapshot: &raftpb.Snapshot{Data: []byte("x"), Metadata: good.snap.GetMetadata()}, HardState: good.hs},
	}
	for name, c := range cases {
		if _, err := New(c); err == nil {
			t.Errorf("%s: New says nothing", name)
		}
	}
}

// TestForeignMessages: what does not belong here changes nothing.
func TestForeignMessages(t *testing.T) {
	r := newRig(t, 3)
	l := r.elect(1)
	for _, m := range []Message{
		{Group: 1},
		{Group: 2, Message: &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(99))}},
		{Group: 1, Message: &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Entries: []*raftpb.Entry{{Data: []byte("x")}}}},
		{Group: 1, Message: &raftpb.Message{Type: raftpb.MsgHup.Enum(), From: new(uint64(2)), To: new(uint64(1))}},
		{Group: 1, Message: &raftpb.Message{Type: raftpb.MsgStorageAppendResp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Index: new(uint64(5))}},
	} {
		l.m.Step(m)
		l.advance()
	}
	r.settle()
	if !l.role.Leads {
		t.Errorf("role is %+v", l.role)
	}
	r.checkEqual()
}

// TestRandomWorlds lets three members crash, lose messages and un-synced
// writes, and take snapshots; at the end they are equal, no acknowledged
// result is missing, and none was told twice.
func TestRandomWorlds(t *testing.T) {
	acked, unknown := 0, 0
	for world := range 30 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			t.Logf("seed %d", seed)
			a, u := runWorld(t, rand.New(rand.NewPCG(seed, 0)))
			acked, unknown = acked+a, unknown+u
		})
	}
	t.Logf("%d proposals were applied, %d became unknown", acked, unknown)
	if acked < 1000 || unknown < 10 {
		t.Errorf("only %d proposals were applied and %d became unknown: the worlds are too quiet", acked, unknown)
	}
}

func runWorld(t *testing.T, rng *rand.Rand) (applied, unknown int) {
	r := newRig(t, 3)
	var n uint64
	acked := map[uint64]Handle{} // by index
	for range 4000 {
		mb := r.members[rng.IntN(3)]
		if mb.m != nil && mb.role.Leader == 0 && rng.IntN(10) == 0 {
			mb.m.Campaign()
			mb.advance()
		}
		switch k := rng.IntN(200); {
		case mb.m == nil:
			if k < 40 {
				mb.start()
				mb.advance()
			}
		case k < 1:
			noteAcked(t, mb, acked)
			mb.crash()
		case k < 4:
			if snap, err := mb.m.View().Encode(); err == nil && snap.GetMetadata().GetIndex() > mb.disk.snap.GetMetadata().GetIndex() && mb.disk.hs.GetCommit() >= snap.GetMetadata().GetIndex() {
				if err := mb.disk.SaveSnapshot(snap); err != nil {
					t.Fatal(err)
				}
				if err := mb.m.SnapshotSaved(snap); err != nil {
					t.Fatal(err)
				}
			}
		case k < 10:
			mb.m.Tick()
			mb.advance()
		case k < 13 && len(r.net) > 0:
			at := rng.IntN(len(r.net))
			lost := r.net[at]
			r.net = slices.Delete(r.net, at, at+1)
			r.report(lost, false)
		case k < 50:
			_, _ = mb.work(rng, &n)
		case k < 120:
			mb.sync()
		default:
			if len(r.net) > 1 && rng.IntN(4) == 0 {
				r.net = append(r.net[1:], r.net[0]) // reordered
			}
			r.deliver()
		}
	}
	for _, mb := range r.members {
		if mb.m == nil {
			mb.start()
		}
		noteAcked(t, mb, acked)
	}
	r.tick(3)
	r.leader().mustPropose(core.Tick{})
	r.tick(5)
	r.checkEqual()
	checkAcked(t, r, acked)
	for _, mb := range r.members {
		unknown += len(mb.unknown)
	}
	return len(acked), unknown
}

// noteAcked collects at which index each own proposal of a member was applied.
func noteAcked(t *testing.T, mb *member, acked map[uint64]Handle) {
	for _, a := range mb.applied {
		if a.Proposal == 0 {
			continue
		}
		if other, ok := acked[a.Entry.Index]; ok && other != a.Proposal {
			t.Fatalf("entry %d was applied as proposal %d and as %d", a.Entry.Index, other, a.Proposal)
		}
		acked[a.Entry.Index] = a.Proposal
	}
}

func checkAcked(t *testing.T, r *rig, acked map[uint64]Handle) {
	seen := map[Handle]uint64{}
	for i, h := range acked {
		if before, ok := seen[h]; ok {
			t.Errorf("proposal %d was applied at %d and at %d", h, before, i)
		}
		seen[h] = i
		if i > r.members[0].m.State().Index() {
			t.Errorf("entry %d was acknowledged and is lost: the log ends at %d", i, r.members[0].m.State().Index())
		}
	}
	for _, mb := range r.members {
		for _, h := range mb.unknown {
			if at, ok := seen[h]; ok {
				t.Errorf("proposal %d is unknown and was applied at %d", h, at)
			}
		}
	}
}
