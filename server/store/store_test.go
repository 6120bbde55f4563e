package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
)

const testSegment = 16 << 10

func TestMain(m *testing.M) {
	SetSegmentBytes(testSegment)
	// Memory, if there is some to write to: the tests play lost writes
	// themselves, and a real disk would only make them slow.
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() && os.Getenv("TMPDIR") == "" {
		os.Setenv("TMPDIR", "/dev/shm")
	}
	// A poisoned log is never closed, so what prepares its next segment stays.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.etcd.io/etcd/server/v3/storage/wal.(*filePipeline).run"))
}

var quiet = slog.New(slog.DiscardHandler)

func snapshotAt(index, term uint64, data string) *raftpb.Snapshot {
	return &raftpb.Snapshot{
		Data: []byte(data),
		Metadata: &raftpb.SnapshotMetadata{
			Index: new(index), Term: new(term), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
		},
	}
}

func entry(index, term uint64, data string) *raftpb.Entry {
	return &raftpb.Entry{Index: new(index), Term: new(term), Type: raftpb.EntryNormal.Enum(), Data: []byte(data)}
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

// world is a store with a memory of what it acknowledged.
type world struct {
	t       *testing.T
	dir     string
	s       *Store
	term    uint64
	entries map[uint64]string // acknowledged
	last    uint64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "data"), entries: map[uint64]string{}, last: 1, term: 1}
	w.open()
	if w.s.Meta().Member {
		t.Fatal("a new store is a member")
	}
	if err := w.s.Bootstrap(77, snapshotAt(1, 1, "first")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if w.s != nil {
			w.s.Close()
		}
	})
	return w
}

func (w *world) open() {
	w.t.Helper()
	s, err := Open(Options{Dir: w.dir, Logger: quiet})
	if err != nil {
		w.t.Fatal(err)
	}
	w.s = s
}

func (w *world) close() {
	w.t.Helper()
	if err := w.s.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.s = nil
}

// append writes n entries of size bytes in one batch, commits them in a later
// one, as a replica does.
func (w *world) append(n, size int) {
	w.t.Helper()
	var batch []*raftpb.Entry
	for range n {
		w.last++
		data := fmt.Sprintf("%d:%s", w.last, strings.Repeat("x", size))
		batch = append(batch, entry(w.last, w.term, data))
	}
	if err := w.s.Append(nil, batch, nil); err != nil {
		w.t.Fatal(err)
	}
	for _, e := range batch {
		w.entries[e.GetIndex()] = string(e.GetData())
	}
	if err := w.s.Append(hardState(w.term, 1, w.last), nil, nil); err != nil {
		w.t.Fatal(err)
	}
}

// check compares a store's content with what was acknowledged.
func (w *world) check(s *Store) {
	w.t.Helper()
	r := s.Recovered()
	at := r.Snapshot.GetMetadata().GetIndex()
	for _, e := range r.Entries {
		at++
		want, acked := w.entries[at]
		if e.GetIndex() != at || (acked && want != string(e.GetData())) {
			w.t.Fatalf("entry %d is %.20q: want %.20q at %d", e.GetIndex(), e.GetData(), want, at)
		}
	}
	if at < w.last {
		w.t.Fatalf("the log ends with entry %d: %d was acknowledged", at, w.last)
	}
}

// copyTo copies the directory as a crash at this moment would leave it, if all
// that was written had reached the disk.
func (w *world) copyTo(dst string) {
	w.t.Helper()
	if err := os.CopyFS(dst, os.DirFS(w.dir)); err != nil {
		w.t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	w := newWorld(t)
	id := w.s.Meta().NodeID
	w.append(3, 10)
	w.append(1, 10)
	w.close()
	w.open()
	w.check(w.s)
	m := w.s.Meta()
	if m.NodeID != id || m.Incarnation != 77 || m.Group != 1 || !m.Member {
		t.Errorf("meta is %+v", m)
	}
	r := w.s.Recovered()
	if string(r.Snapshot.GetData()) != "first" || r.HardState.GetCommit() != 5 || r.HardState.GetTerm() != 1 || r.HardState.GetVote() != 1 || len(r.Entries) != 4 {
		t.Errorf("recovered %d entries, hard state %v, snapshot %q", len(r.Entries), r.HardState, r.Snapshot.GetData())
	}
	w.append(2, 5)
	w.close()
	w.open()
	w.check(w.s)
	if err := w.s.Probe(); err != nil {
		t.Error(err)
	}
	free, reserve, err := w.s.Space()
	if err != nil || free == 0 || reserve != 3*testSegment+2*uint64(len("first")) {
		t.Errorf("space: %d free, %d reserved, %v", free, reserve, err)
	}
}

func TestMode(t *testing.T) {
	w := newWorld(t)
	info, err := os.Stat(w.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory: %v, %v", info.Mode(), err)
	}
}

// TestOverwrittenTail: a new leader's entries replace uncommitted ones.
func TestOverwrittenTail(t *testing.T) {
	w := newWorld(t)
	w.append(2, 1) // 2, 3
	if err := w.s.Append(nil, []*raftpb.Entry{entry(4, 1, "old"), entry(5, 1, "old")}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.s.Append(hardState(2, 0, 3), []*raftpb.Entry{entry(4, 2, "new")}, nil); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	r := w.s.Recovered()
	if n := len(r.Entries); n != 3 || string(r.Entries[2].GetData()) != "new" {
		t.Errorf("recovered %v", r.Entries)
	}
}

func TestSnapshotsAndPurge(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		for range 6 {
			w.append(5, 600)
		}
		if err := w.s.SaveSnapshot(snapshotAt(w.last, w.term, fmt.Sprint("state ", i))); err != nil {
			t.Fatal(err)
		}
		w.append(1, 10)
		if i%3 == 2 {
			w.close()
			w.open()
			w.check(w.s)
			if got := string(w.s.Recovered().Snapshot.GetData()); got != fmt.Sprint("state ", i) {
				t.Errorf("recovered snapshot %q", got)
			}
			if n := len(w.s.Recovered().Entries); n != 1 {
				t.Errorf("recovered %d entries behind the snapshot", n)
			}
		}
		segs, err := segments(w.s.walDir())
		if err != nil || len(segs) > 6 {
			t.Errorf("%d segments are kept, %v", len(segs), err)
		}
		if snaps, err := os.ReadDir(w.s.snapDir()); err != nil || len(snaps) != 2 {
			t.Errorf("%d snapshots are kept, %v", len(snaps), err)
		}
	}
}

// TestMissingNewestSnapshot: the older one and the log from there are complete.
func TestMissingNewestSnapshot(t *testing.T) {
	w := newWorld(t)
	var paths []string
	for range 3 {
		w.append(20, 600)
		if err := w.s.SaveSnapshot(snapshotAt(w.last, w.term, fmt.Sprint("at ", w.last))); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Join(w.s.snapDir(), snapName(w.term, w.last)))
	}
	w.append(1, 1)
	w.close()
	if err := os.Remove(paths[2]); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.check(w.s)
	if n := len(w.s.Recovered().Entries); n != 21 {
		t.Errorf("recovered %d entries: want 21", n)
	}
	w.close()
	if err := os.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Options{Dir: w.dir, Logger: quiet})
	if ce, ok := errors.AsType[*CorruptError](err); !ok || !strings.HasSuffix(ce.File, "snap") {
		t.Errorf("without a snapshot Open says %v", err)
	}
}

// TestReceivedSnapshot: a snapshot from a peer jumps over entries, and a crash
// before the hard state that confirms it undoes it.
func TestReceivedSnapshot(t *testing.T) {
	w := newWorld(t)
	w.append(3, 10) // 2 … 4
	before := filepath.Join(t.TempDir(), "before")
	w.s.fault = func(step string) error {
		if step == "append" {
			w.copyTo(before)
		}
		return nil
	}
	if err := w.s.Append(hardState(3, 0, 50), []*raftpb.Entry{entry(51, 3, "after")}, snapshotAt(50, 3, "received")); err != nil {
		t.Fatal(err)
	}
	w.s.fault = nil
	w.close()
	w.open()
	r := w.s.Recovered()
	if string(r.Snapshot.GetData()) != "received" || len(r.Entries) != 1 || r.HardState.GetCommit() != 50 {
		t.Errorf("recovered snapshot %q, %d entries, %v", r.Snapshot.GetData(), len(r.Entries), r.HardState)
	}
	s, err := Open(Options{Dir: before, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	w.check(s)
	if err := s.Append(nil, []*raftpb.Entry{entry(5, 1, "goes on")}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Options{Dir: before, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := len(s.Recovered().Entries); n != 4 {
		t.Errorf("recovered %d entries: want 4", n)
	}
}

func TestDoubleOpen(t *testing.T) {
	w := newWorld(t)
	_, err := Open(Options{Dir: w.dir, Logger: quiet})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("second Open says %v", err)
	}
	w.append(1, 1)
	w.close()
	w.open()
	w.check(w.s)
}

func TestOpenRefusals(t *testing.T) {
	write := func(name, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := []struct {
		name  string
		spoil func(*testing.T, string)
		want  error
		text  string
	}{
		{"foreign files", write("invoices.txt", "x"), ErrNotOurs, "invoices.txt"},
		{"newer format", write(metaFile, metaHeading+"2\nwhatever\n"), ErrNewerFormat, "2"},
		{"empty meta", write(metaFile, ""), ErrCorrupt, metaFile},
		{"meta of something else", write(metaFile, "hello\n"), ErrCorrupt, metaFile},
		{"group without meta", func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "group-0000000000000001"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, ErrCorrupt, metaFile},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.spoil(t, dir)
			_, err := Open(Options{Dir: dir, Logger: quiet})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Open says %v: want %v that names %s", err, c.want, c.text)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	write("file", "")(t, filepath.Dir(file))
	for _, dir := range []string{"", file, filepath.Join(file, "below"), "/proc/holdfast"} {
		if _, err := Open(Options{Dir: dir, Logger: quiet}); !errors.Is(err, ErrUnusable) {
			t.Errorf("Open(%q) says %v: want ErrUnusable", dir, err)
		}
	}
}

func TestOtherNodesSegment(t *testing.T) {
	a, b := newWorld(t), newWorld(t)
	a.close()
	b.close()
	name := "0000000000000000-0000000000000000.wal"
	theirs, err := os.ReadFile(filepath.Join(b.dir, "group-0000000000000001", "wal", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "group-0000000000000001", "wal", name), theirs, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Options{Dir: a.dir, Logger: quiet})
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "belongs to") {
		t.Errorf("Open says %v", err)
	}
}

func TestBridge(t *testing.T) {
	var out bytes.Buffer
	lg := bridge(slog.New(slog.NewTextHandler(&out, nil)))
	lg.Info("nothing for operators")
	lg.Warn("slow")
	if got := out.String(); strings.Contains(got, "operators") || !strings.Contains(got, "storage: slow") {
		t.Errorf("log is %q", got)
	}
	for _, die := range []func(string){
		func(s string) { lg.Fatal(s) }, func(s string) { lg.Panic(s) },
	} {
		s := &Store{log: quiet}
		err := s.do("test", func() error { die("broken"); return nil })
		if !errors.Is(err, ErrPoisoned) || !strings.Contains(err.Error(), "broken") {
			t.Errorf("a panic below gives %v", err)
		}
		if again := s.do("test", func() error { t.Error("called"); return nil }); again != err {
			t.Errorf("the next call says %v", again)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(Meta{NodeID: 1, Group: 1}.encode())
	f.Add(Meta{NodeID: 1, Group: 1, Incarnation: 5, Member: true}.encode())
	f.Add(mark{1, 2, 3, 4, 5}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMeta(b); err == nil && !bytes.Equal(m.encode(), b) {
			t.Errorf("%q decodes to %+v, which encodes to %q", b, m, m.encode())
		}
		if m, ok := decodeMark(b); ok && !bytes.Equal(m.encode(), b[:markLen]) {
			t.Errorf("%x decodes to %+v", b, m)
		}
	})
}
