package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

const group1 = "group-0000000000000001"

// lastSegment returns the path of the newest segment and how many bytes of it
// are in use.
func lastSegment(t *testing.T, dir string) (path string, used int) {
	t.Helper()
	segs, err := segments(filepath.Join(dir, group1, "wal"))
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, group1, "wal", segs[len(segs)-1].file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, len(bytes.TrimRight(b, "\x00"))
}

func (w *world) openWith(dir, synced, segment string, content []byte) (*Store, error) {
	w.t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		w.t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(synced)); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, strings.TrimPrefix(segment, synced)), content, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return Open(Options{Dir: dir, Logger: quiet})
}

// TestFlippedBytes: wherever a bit of what is in use turns, either the store is
// refused by the name of a file, or it holds exactly what it held.
func TestFlippedBytes(t *testing.T) {
	w := newWorld(t)
	w.append(20, 600)
	if err := w.s.SaveSnapshot(snapshotAt(w.last, w.term, "the state")); err != nil {
		t.Fatal(err)
	}
	w.append(12, 600)
	w.append(2, 600)
	w.append(2, 600)
	w.close()
	rng := rand.New(rand.NewPCG(1, 2))
	var files []string
	for _, f := range []string{metaFile, group1 + "/mark", group1 + "/wal/*.wal", group1 + "/snap/*.snap"} {
		found, err := filepath.Glob(filepath.Join(w.dir, f))
		if err != nil || len(found) == 0 {
			t.Fatalf("no file %s: %v", f, err)
		}
		files = append(files, found...)
	}
	dir := filepath.Join(t.TempDir(), "flipped")
	refused, unharmed := 0, 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		used := len(bytes.TrimRight(content, "\x00"))
		for range 40 {
			at := rng.IntN(used)
			flipped := slices.Clone(content)
			flipped[at] ^= 1 << rng.IntN(8)
			s, err := w.openWith(dir, w.dir, file, flipped)
			if err != nil {
				refused++
				if !(errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewerFormat)) || !strings.Contains(err.Error(), dir) {
					t.Errorf("byte %d of %s: %v", at, file, err)
				}
				continue
			}
			unharmed++
			w.check(s)
			if d := string(s.Recovered().Snapshot.GetData()); d != "the state" {
				t.Errorf("byte %d of %s: snapshot %q", at, file, d)
			}
			s.Close()
		}
	}
	// The lengths of the last records, which have no checksum of their own.
	last, used := lastSegment(t, w.dir)
	content, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	for at := max(0, used-1400) / 8 * 8; at < used; at += 8 {
		flipped := slices.Clone(content)
		flipped[at+2+rng.IntN(4)] ^= 1 << rng.IntN(8)
		s, err := w.openWith(dir, w.dir, last, flipped)
		if err == nil {
			w.check(s)
			s.Close()
		} else if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(last)) {
			t.Errorf("byte %d of %s: %v", at, last, err)
		}
	}
	t.Logf("%d refused, %d unharmed", refused, unharmed)
	if refused < unharmed {
		t.Errorf("%d flips were refused, and %d went unnoticed without harm: the flips miss their aim", refused, unharmed)
	}
}

// TestMissingFiles: each file of the store that goes missing is noticed.
func TestMissingFiles(t *testing.T) {
	w := newWorld(t)
	for range 4 {
		w.append(15, 600)
		if err := w.s.SaveSnapshot(snapshotAt(w.last, w.term, "s")); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 {
		w.append(10, 600)
	}
	w.close()
	segs, err := filepath.Glob(filepath.Join(w.dir, group1, "wal", "*.wal"))
	if err != nil || len(segs) < 4 {
		t.Fatalf("%d segments, %v", len(segs), err)
	}
	for _, file := range append(segs, filepath.Join(w.dir, group1, "mark"), filepath.Join(w.dir, metaFile)) {
		dir := filepath.Join(t.TempDir(), "copy")
		w.copyTo(dir)
		if err := os.Remove(filepath.Join(dir, strings.TrimPrefix(file, w.dir))); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Options{Dir: dir, Logger: quiet})
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), dir) {
			t.Errorf("without %s Open says %v", file, err)
		}
	}
}

// snapshot saves one at the last entry: staged before, or written by the store's
// SaveSnapshot itself.
func (w *world) snapshot(staged bool) error {
	sn := snapshotAt(w.last, 1, "s")
	if staged {
		if err := w.s.StageSnapshot(sn); err != nil {
			return err
		}
	}
	return w.s.SaveSnapshot(sn)
}

// everyCall makes all calls of the store until one fails.
func (w *world) everyCall() error {
	for round := range 3 {
		for range 10 {
			w.last++
			e := entry(w.last, 1, fmt.Sprint(w.last, strings.Repeat("x", 700)))
			if err := w.s.Append(nil, []*raftpb.Entry{e}, nil); err != nil {
				w.last--
				return err
			}
			w.entries[w.last] = string(e.GetData())
			if err := w.s.Append(hardState(1, 1, w.last), nil, nil); err != nil {
				return err
			}
		}
		if err := w.snapshot(round == 1); err != nil {
			return err
		}
	}
	if err := w.s.Append(hardState(2, 1, w.last), nil, nil); err != nil { // a vote
		return err
	}
	if err := w.s.Append(hardState(2, 1, w.last+5), []*raftpb.Entry{entry(w.last+6, 2, "x")}, snapshotAt(w.last+5, 2, "r")); err != nil {
		return err
	}
	w.last += 6
	return w.s.Probe()
}

// TestCasebookC05_EveryStepFailsOnce: each step that any call takes fails once: the store takes no
// further call, and reopening finds all that was acknowledged.
func TestCasebookC05_EveryStepFailsOnce(t *testing.T) {
	steps := map[string]int{}
	count := newWorld(t)
	count.s.fault = func(step string) error { steps[step]++; return nil }
	if err := count.everyCall(); err != nil {
		t.Fatal(err)
	}
	if len(steps) != 7 {
		t.Fatalf("steps are %v: want seven kinds", steps)
	}
	broken := errors.New("input/output error")
	for step, n := range steps {
		for at := 1; at <= n; at++ {
			w := newWorld(t)
			seen := 0
			w.s.fault = func(s string) error {
				if s != step {
					return nil
				}
				if seen++; seen == at {
					return broken
				}
				return nil
			}
			err := w.everyCall()
			if !errors.Is(err, ErrPoisoned) || !errors.Is(err, broken) {
				t.Fatalf("%s %d: %v", step, at, err)
			}
			for name, call := range map[string]func() error{
				"append":   func() error { return w.s.Append(nil, []*raftpb.Entry{entry(w.last+1, 1, "x")}, nil) },
				"snapshot": func() error { return w.s.SaveSnapshot(snapshotAt(w.last, 1, "x")) },
				"probe":    w.s.Probe,
				"close":    w.s.Close,
			} {
				if again := call(); !errors.Is(again, broken) {
					t.Errorf("%s after the failure says %v", name, again)
				}
			}
			dir := filepath.Join(t.TempDir(), "copy")
			w.copyTo(dir)
			s, err := Open(Options{Dir: dir, Logger: quiet})
			if err != nil {
				t.Fatalf("%s %d: reopening: %v", step, at, err)
			}
			w.check(s)
			s.Close()
			w.s = nil
		}
	}
}

// TestRealFailure: an error of the disk under etcd's own package poisons too.
func TestRealFailure(t *testing.T) {
	w := newWorld(t)
	w.append(1, 10)
	if err := os.RemoveAll(w.s.walDir()); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		w.last++
		err = w.s.Append(nil, []*raftpb.Entry{entry(w.last, 1, strings.Repeat("x", 1000))}, nil)
	}
	if !errors.Is(err, ErrPoisoned) {
		t.Fatalf("appending to a log whose directory is gone says %v", err)
	}
	if again := w.s.Probe(); again != err {
		t.Errorf("the next call says %v", again)
	}
	w.s.Close()
	w.s = nil
}

// TestFirstStartCutShort: a crash at any step of the set-up leaves a directory
// that the next start sets up anew, under the same node ID.
func TestFirstStartCutShort(t *testing.T) {
	broken := errors.New("crash")
	for _, step := range []string{"snapshot file", "meta", "renew"} {
		dir := filepath.Join(t.TempDir(), "data")
		s, err := Open(Options{Dir: dir, Logger: quiet, Fault: func(at string) error {
			if at == step {
				return broken
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		id := s.Meta().NodeID
		if err := s.Bootstrap(5, snapshotAt(1, 1, "first")); !errors.Is(err, broken) {
			t.Fatalf("%s: %v", step, err)
		}
		s.Close()
		if s, err = Open(Options{Dir: dir, Logger: quiet}); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if s.Meta().NodeID != id {
			t.Errorf("%s: the node ID changed", step)
		}
		if !s.Meta().Member {
			if err := s.Bootstrap(6, snapshotAt(1, 1, "first")); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
		}
		if err := s.Append(hardState(2, 1, 1), []*raftpb.Entry{entry(2, 2, "x")}, nil); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
	// The very first write of META was cut short.
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{lockFile, metaFile + newSuffix} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("Holdf"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(Options{Dir: dir, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Meta().Member || s.Meta().NodeID == 0 {
		t.Errorf("meta is %+v", s.Meta())
	}
}

// TestCasebookC07_CrashCyclesOfTheLog: 200 crashes at random moments, each
// followed by recovery and more work.
func TestCasebookC07_CrashCyclesOfTheLog(t *testing.T) {
	w := newWorld(t)
	rng := rand.New(rand.NewPCG(3, 4))
	base := t.TempDir()
	for cycle := range 200 {
		for range 1 + rng.IntN(3) {
			w.append(1+rng.IntN(3), rng.IntN(300))
		}
		if rng.IntN(8) == 0 {
			if err := w.s.SaveSnapshot(snapshotAt(w.last, w.term, "s")); err != nil {
				t.Fatal(err)
			}
		}
		next := filepath.Join(base, fmt.Sprint(cycle))
		w.copyTo(next) // killed here
		w.close()
		if cycle > 0 {
			if err := os.RemoveAll(w.dir); err != nil {
				t.Fatal(err)
			}
		}
		w.dir = next
		w.open()
		w.check(w.s)
	}
}
