package store

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// batch is what one call of Append is given.
type batch struct {
	hs       *raftpb.HardState
	entries  []*raftpb.Entry
	received *raftpb.Snapshot
}

// cutBehind makes the calls, tears the log behind the last entry of the last
// batch, so that its hard state is lost, and opens what is left. The mark is as
// old as before that batch.
func cutBehind(t *testing.T, w *world, calls ...batch) *Store {
	t.Helper()
	for i, c := range calls {
		if i == len(calls)-1 {
			w.copyTo(filepath.Join(w.dir, "..", "before"))
		}
		if err := w.s.Append(c.hs, c.entries, c.received); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(w.dir, "..", "cut")
	w.copyTo(dir)
	mark, err := os.ReadFile(filepath.Join(w.dir, "..", "before", group1, "mark"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, group1, "mark"), mark, 0o600); err != nil {
		t.Fatal(err)
	}
	path, _ := lastSegment(t, dir)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := calls[len(calls)-1].entries
	data := last[len(last)-1].GetData()
	clear(b[(bytes.LastIndex(b, data)+len(data)+7)/8*8:])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, dir)
	if err := s.Close(); err != nil { // and once more, with what the first start wrote
		t.Fatal(err)
	}
	return reopen(t, dir)
}

func reopen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Options{Dir: dir, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestEntriesWithoutTheirTerm: a crash that leaves a new leader's entries, and
// not the hard state of the same batch.
func TestEntriesWithoutTheirTerm(t *testing.T) {
	w := newWorld(t)
	w.append(3, 10) // 2 … 4
	s := cutBehind(t, w, batch{hs: hardState(7, 0, 4), entries: []*raftpb.Entry{entry(5, 7, "of term seven")}})
	r := s.Recovered()
	if hs := r.HardState; len(r.Entries) != 4 || hs.GetTerm() != 7 || hs.GetVote() != 0 || hs.GetCommit() != 4 {
		t.Errorf("found %d entries and %v", len(r.Entries), hs)
	}
}

// TestEntriesBehindAReceivedSnapshot: a crash that leaves a snapshot and the
// entry behind it, and not the hard state of the same batch.
func TestEntriesBehindAReceivedSnapshot(t *testing.T) {
	w := newWorld(t)
	w.append(3, 10)
	s := cutBehind(t, w, batch{hardState(3, 0, 50), []*raftpb.Entry{entry(51, 3, "behind it")}, snapshotAt(50, 3, "received")})
	r := s.Recovered()
	if hs := r.HardState; len(r.Entries) != 1 || string(r.Snapshot.GetData()) != "received" || hs.GetTerm() != 3 || hs.GetCommit() != 50 {
		t.Errorf("found %d entries behind %q, and %v", len(r.Entries), r.Snapshot.GetData(), hs)
	}
}

// TestSnapshotOfAReplacingEntry: the entries behind the one that a snapshot is
// of were replaced with it, and are not found again.
func TestSnapshotOfAReplacingEntry(t *testing.T) {
	w := newWorld(t)
	w.append(3, 10) // 2 … 4
	for _, b := range []batch{
		{nil, []*raftpb.Entry{entry(5, 1, "old"), entry(6, 1, "old"), entry(7, 1, "old")}, nil},
		{hardState(2, 0, 4), []*raftpb.Entry{entry(5, 2, "new")}, nil},
		{hardState(2, 0, 5), nil, nil},
	} {
		if err := w.s.Append(b.hs, b.entries, b.received); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.s.SaveSnapshot(snapshotAt(5, 2, "s")); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	if n := len(w.s.Recovered().Entries); n != 0 {
		t.Errorf("found %d entries behind the snapshot", n)
	}
	if err := w.s.Append(nil, []*raftpb.Entry{entry(6, 2, "newer")}, nil); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	if r := w.s.Recovered(); len(r.Entries) != 1 || string(r.Entries[0].GetData()) != "newer" {
		t.Errorf("found %v", r.Entries)
	}
}

// TestReplacedBeforeTheFirstSegment: entries that were not committed stand on
// both sides of a segment's end, are replaced from before it, and the first
// segment goes.
func TestReplacedBeforeTheFirstSegment(t *testing.T) {
	w := newWorld(t)
	w.append(3, 10)
	// Two batches that fill the segment, so that its last entries are in the
	// next one and are not committed.
	add := func(term uint64, n int) {
		for range n {
			w.last++
			e := entry(w.last, term, strings.Repeat("x", 900))
			w.entries[w.last] = string(e.GetData())
			if err := w.s.Append(nil, []*raftpb.Entry{e}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(1, testSegment/900+3)
	segs, err := segments(w.s.walDir())
	if err != nil || len(segs) != 2 {
		t.Fatalf("%d segments, %v", len(segs), err)
	}
	w.last = segs[1].index - 3
	if err := w.s.Append(hardState(2, 0, w.last), nil, nil); err != nil {
		t.Fatal(err)
	}
	add(2, 6)
	for range 2 {
		if err := w.s.Append(hardState(2, 0, w.last-1), nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.s.SaveSnapshot(snapshotAt(w.last-1, 2, "s")); err != nil {
			t.Fatal(err)
		}
		add(2, 1)
	}
	if segs, err = segments(w.s.walDir()); err != nil || segs[0].seq == 0 {
		t.Fatalf("the first segment is there: %v, %v", segs, err)
	}
	w.close()
	w.open()
	w.check(w.s)
}
