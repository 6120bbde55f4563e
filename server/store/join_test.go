package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// TestJoin: a member that joins has no snapshot until it has received one, and
// may vote before; each state survives a restart.
func TestJoin(t *testing.T) {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "data")}
	w.open()
	if err := w.s.Join(77); err != nil {
		t.Fatal(err)
	}
	defer func() { w.s.Close() }()
	again := func(what string, snapshot, commit uint64, entries int, term uint64) {
		t.Helper()
		w.close()
		w.open()
		r := w.s.Recovered()
		if m := w.s.Meta(); !m.Member || !m.Joined || m.Incarnation != 77 {
			t.Fatalf("%s: meta is %+v", what, m)
		}
		if (r.Snapshot != nil) != (snapshot > 0) || r.Snapshot.GetMetadata().GetIndex() != snapshot || r.HardState.GetCommit() != commit || len(r.Entries) != entries || r.HardState.GetTerm() != term {
			t.Fatalf("%s: found snapshot %v, hard state %v and %d entries", what, r.Snapshot.GetMetadata(), r.HardState, len(r.Entries))
		}
	}
	again("joined", 0, 0, 0, 0)
	if err := w.s.Append(hardState(5, 3, 0), nil, nil); err != nil {
		t.Fatal(err)
	}
	again("voted", 0, 0, 0, 5)
	if err := w.s.Append(hardState(5, 3, 20), nil, snapshotAt(20, 4, "all")); err != nil {
		t.Fatal(err)
	}
	again("received", 20, 20, 0, 5)
	if err := w.s.Append(hardState(5, 3, 21), []*raftpb.Entry{entry(21, 5, "next")}, nil); err != nil {
		t.Fatal(err)
	}
	again("one more", 20, 21, 1, 5)
	if err := w.s.SaveSnapshot(snapshotAt(21, 5, "own")); err != nil {
		t.Fatal(err)
	}
	again("own snapshot", 21, 21, 0, 5)
}

// TestJoinedWithoutItsSnapshot: a member that had a snapshot is not taken for
// one that never received any.
func TestJoinedWithoutItsSnapshot(t *testing.T) {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "data")}
	w.open()
	if err := w.s.Join(77); err != nil {
		t.Fatal(err)
	}
	if err := w.s.Append(hardState(5, 3, 20), nil, snapshotAt(20, 4, "all")); err != nil {
		t.Fatal(err)
	}
	w.close()
	if err := os.RemoveAll(filepath.Join(w.dir, "group-0000000000000001", "snap")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(w.dir, "group-0000000000000001", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: w.dir, Logger: quiet}); err == nil {
		t.Error("opened without the snapshot")
	} else if _, ok := errors.AsType[*CorruptError](err); !ok {
		t.Errorf("opened: %v", err)
	}
}

// TestJoinFailsAtEachStep: a join that is cut short leaves a directory that is
// still new.
func TestJoinFailsAtEachStep(t *testing.T) {
	for _, at := range []string{"snapshot file", "meta"} {
		dir := filepath.Join(t.TempDir(), "data")
		s, err := Open(Options{Dir: dir, Logger: quiet, Fault: func(step string) error {
			if step == at {
				return errors.New("injected")
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		id := s.Meta().NodeID
		if err := s.Join(77); err == nil {
			t.Fatalf("%s: no error", at)
		}
		s.Close()
		s, err = Open(Options{Dir: dir, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if m := s.Meta(); m.Member || m.NodeID != id {
			t.Errorf("%s: meta is %+v", at, m)
		}
		if err := s.Join(77); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}
