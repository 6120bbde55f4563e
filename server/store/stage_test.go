package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
)

// A snapshot's file is, byte for byte, the one that etcd's package writes.
func TestSnapshotFileIsEtcds(t *testing.T) {
	for _, size := range []int{0, 1, 200, pieceBytes - 1, pieceBytes, pieceBytes + 1, 3*pieceBytes + 5} {
		sn := snapshotAt(300, 7, strings.Repeat("s", size))
		dir := t.TempDir()
		if err := snap.New(nil, dir).SaveSnap(sn); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, snapName(7, 300)))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "ours")
		if err := writeSnapshotFile(path, sn); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of state: the files differ: %v", size, err)
		}
	}
}

// names are those of the files beside the log.
func (w *world) names() (all []string) {
	w.t.Helper()
	files, err := os.ReadDir(w.s.snapDir())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, f.Name())
	}
	return all
}

// A staged snapshot counts only once it was saved; what is left of one is gone
// with the next one, or the next start.
func TestStagedSnapshotDoesNotCount(t *testing.T) {
	w := newWorld(t)
	stage := func(data string) {
		t.Helper()
		if err := w.s.StageSnapshot(snapshotAt(w.last, w.term, data)); err != nil {
			t.Fatal(err)
		}
	}
	w.append(20, 600)
	stage("overtaken")
	w.append(1, 1)
	stage("lost")
	if got := w.names(); len(got) != 2 || !strings.HasSuffix(got[1], stagedSuffix) || !strings.HasPrefix(got[1], snapName(w.term, w.last)) {
		t.Errorf("the files are %v", got)
	}
	w.close()
	w.open()
	w.check(w.s)
	if got := w.names(); len(got) != 1 || string(w.s.Recovered().Snapshot.GetData()) != "first" {
		t.Errorf("after a crash the files are %v, and the state is %q", got, w.s.Recovered().Snapshot.GetData())
	}
	stage("staged")
	w.append(5, 600)
	before := w.last
	w.last -= 5
	if err := w.s.SaveSnapshot(snapshotAt(w.last, w.term, "saved")); err != nil { // the staged one is put in its place
		t.Fatal(err)
	}
	w.last = before
	w.close()
	w.open()
	w.check(w.s)
	if got := w.names(); len(got) != 2 || string(w.s.Recovered().Snapshot.GetData()) != "staged" {
		t.Errorf("the files are %v, and the state is %q", got, w.s.Recovered().Snapshot.GetData())
	}
}

// Staging beside the log's batches: all that was acknowledged is there, whenever
// the process dies.
func TestStageBesideAppends(t *testing.T) {
	w := newWorld(t)
	large := strings.Repeat("state", pieceBytes/2)
	for round := range 6 {
		w.append(10, 300)
		sn := snapshotAt(w.last, w.term, fmt.Sprint(round, large))
		staged := make(chan error, 1)
		go func() { staged <- w.s.StageSnapshot(sn) }()
		w.append(20, 600)
		if round%2 == 1 { // it dies with the file half written, or whole
			copied := filepath.Join(t.TempDir(), "copy")
			w.copyTo(copied)
			s, err := Open(Options{Dir: copied, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			w.check(s)
			s.Close()
		}
		if err := <-staged; err != nil {
			t.Fatal(err)
		}
		if err := w.s.SaveSnapshot(sn); err != nil {
			t.Fatal(err)
		}
	}
	w.close()
	w.open()
	w.check(w.s)
	if got := w.names(); len(got) != 2 || string(w.s.Recovered().Snapshot.GetData()) != fmt.Sprint(5, large) {
		t.Errorf("the files are %v", got)
	}
}
