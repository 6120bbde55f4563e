package sim

import (
	"testing"
	"testing/cryptotest"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// aDisk is the disk of a server that runs, in a world in which nothing happens.
func aDisk(t *testing.T) *disk {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	s := Draw(1)
	s.Servers, s.Rates = 1, Rates{}
	w := newWorld(s, nil)
	w.build()
	d := w.servers[0].disk
	d.s.up = true
	return d
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

func entries(from, to uint64) (out []*raftpb.Entry) {
	for i := from; i <= to; i++ {
		out = append(out, &raftpb.Entry{Term: new(uint64(1)), Index: new(i)})
	}
	return out
}

// do makes one call, which fails if it is of the kinds.
func do(d *disk, a replica.Append, fail callKinds) error {
	d.fail = fail
	d.jobs, d.busy = []job{{append: &a}}, true
	d.finish(d.s.life)
	j := d.done[len(d.done)-1]
	d.done = nil
	return j.err
}

// A commit index without a sync may be lost with the machine, and is not lost
// with the process; a vote never is.
func TestUnsyncedCommitIndex(t *testing.T) {
	lost := 0
	for range 50 {
		d := aDisk(t)
		d.rng = stream(uint64(lost), "test") // another one once it was lost
		for _, hs := range []*raftpb.HardState{hardState(2, 1, 1), hardState(2, 1, 5)} {
			if err := do(d, replica.Append{HardState: hs, Entries: entries(2, hs.GetCommit())}, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := do(d, replica.Append{HardState: hardState(2, 1, 6)}, 0); err != nil {
			t.Fatal(err)
		}
		if d.crash(false); d.soft.GetCommit() != 6 {
			t.Fatal("the commit index died with the process")
		}
		d.crash(true)
		if d.soft.GetTerm() != 2 || d.soft.GetVote() != 1 || d.soft.GetCommit() < 5 {
			t.Fatalf("what was synced is lost: %v", d.soft)
		}
		if d.soft.GetCommit() == 5 {
			lost++
		}
	}
	if lost == 0 {
		t.Error("it is never lost")
	}
}

// What a call that failed had written is read until the machine dies, unless a
// start made it durable (D3).
func TestWhatAFailedCallWrote(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		seen := false
		for n := range 40 {
			d := aDisk(t)
			d.rng = stream(uint64(n), "test")
			if err := do(d, replica.Append{HardState: hardState(2, 1, 1), Entries: entries(2, 4)}, 0); err != nil {
				t.Fatal(err)
			}
			if err := do(d, replica.Append{Entries: entries(5, 9)}, appends); err == nil || !d.broken {
				t.Fatal("the call did not fail")
			}
			if err := do(d, replica.Append{Entries: entries(5, 9)}, 0); err == nil {
				t.Fatal("a poisoned store took another call")
			}
			read := d.last()
			d.crash(false)
			if renewed {
				d.renew()
			}
			d.crash(true)
			switch left := d.last(); {
			case left < 4:
				t.Fatalf("entry 4 was acknowledged, and the last one is %d", left)
			case renewed && left != read, !renewed && left != 4:
				t.Fatalf("renewed %v: %d were read, and %d are left", renewed, read, left)
			}
			seen = seen || read > 4
		}
		if !seen {
			t.Error("a failed call never writes anything")
		}
	}
}

// Of what was under way when the machine died any prefix is left, in order.
func TestPrefixOfWhatWasUnderWay(t *testing.T) {
	left := map[uint64]bool{}
	for n := range 60 {
		d := aDisk(t)
		d.rng = stream(uint64(n), "test")
		for i := uint64(2); i < 8; i += 2 {
			d.jobs = append(d.jobs, job{append: &replica.Append{Entries: entries(i, i+1)}})
		}
		d.crash(true)
		left[d.last()] = true
		for i, e := range d.entries {
			if e.GetIndex() != uint64(i)+2 {
				t.Fatalf("entry %d stands at %d", e.GetIndex(), i+2)
			}
		}
	}
	for i := uint64(1); i < 8; i++ {
		if !left[i] {
			t.Errorf("the log never ends with %d", i)
		}
	}
}

// An entry holds no more than it may; what frees comes before what grows.
func TestBoundsOfAnEntry(t *testing.T) {
	d := aDisk(t)
	s := d.s
	s.up = false
	s.w.EntryCommands, s.w.EntryEnds = 3, 10
	s.boot()
	of := func(cmds ...core.Command) (out []proposal) {
		for _, c := range cmds {
			out = append(out, proposal{cmd: c, quiet: true})
		}
		return out
	}
	s.first = of(core.Tick{})
	s.urgent = of(core.Release{}, core.Release{})
	s.ordinary = of(core.Open{}, core.Open{})
	got := s.gather()
	if len(got) != 3 || len(s.ordinary) != 2 || len(s.urgent) != 0 {
		t.Errorf("%d in the entry, %d urgent and %d ordinary left", len(got), len(s.urgent), len(s.ordinary))
	}
	if got = s.gather(); len(got) != 2 || len(s.ordinary) != 0 {
		t.Errorf("%d in the next entry, %d ordinary left", len(got), len(s.ordinary))
	}
	first := message{call: callCommand, cmd: core.Release{}}
	if !first.urgent() || (message{call: callOpen, cmd: core.Open{}}).urgent() || !(message{call: callKeepalive}).urgent() {
		t.Error("urgent is what frees or keeps alive, and nothing else")
	}
}
