package server

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/backup"
	"holdfast/server/core"
	"holdfast/server/store"
)

// churn keeps a session acquiring, releasing and writing until stop is closed;
// acted counts what it did.
func (n *testNode) churn(name string, stop <-chan struct{}, acted func()) {
	s := n.open(name, time.Minute)
	for i := uint64(1); ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		lock := fmt.Sprintf("%s/%d", name, i%20)
		g := n.granted(n.acquire(s, 0, i, lock))
		n.do(core.Put{Lock: "value/" + lock, Value: []byte(fmt.Sprint(i))})
		if i%3 != 0 {
			n.do(core.Release{Session: s, Grant: g.Number})
		} else {
			n.do(core.Revoke{Lock: lock, Grant: g.Number, Now: true, Cause: core.ByOperator})
		}
		acted()
	}
}

// gated lets a writer go on only while it is open.
type gated struct {
	w    io.Writer
	open <-chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.open
	return g.w.Write(p)
}

// Backups taken under load are each the state at their index, as the log says
// it was, however slowly they are written; and nobody waits for them.
func TestBackupUnderLoadIsTheStateAtItsIndex(t *testing.T) {
	n := startTestNode(t, func(c *NodeConfig) {
		c.SnapshotEntries, c.SnapshotBytes = 1<<40, 1<<50 // the log has everything
		c.Tick = time.Second                              // a slow disk is not what this is about
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	acted := make(chan struct{}, 1<<20)
	for i := range 4 {
		wg.Go(func() { n.churn(fmt.Sprintf("w%d", i), stop, func() { acted <- struct{}{} }) })
	}
	const backups = 12
	files := make([]bytes.Buffer, backups)
	slow := make(chan struct{})
	var writers sync.WaitGroup
	for i := range backups {
		for range 10 {
			<-acted // the load goes on while the backups before are written
		}
		image, err := n.Image(t.Context(), i%2 == 1)
		if err != nil {
			t.Fatal(err)
		}
		if image.Info.Index != image.State.Index() || image.Term == 0 {
			t.Errorf("image %+v", image.Info)
		}
		var w io.Writer = &files[i]
		if i%3 == 0 {
			w = &gated{w, slow} // stands still until all are taken
		}
		writers.Go(func() {
			if _, err := backup.Write(w, image.State, backup.Info{Term: image.Term, TakenAt: time.Now()}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 50 {
		<-acted
	}
	close(slow)
	writers.Wait()
	close(stop)
	wg.Wait()
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := hashes(t, n.cfg.Dir)
	seen := map[uint64]bool{}
	for i := range files {
		h, s, err := backup.Read(&files[i])
		if err != nil {
			t.Fatal(err)
		}
		if h.StateHash != want[h.Index] || s.Index() != h.Index {
			t.Errorf("backup %d at index %d has the hash %s, the log says %s", i, h.Index, h.StateHash, want[h.Index])
		}
		seen[h.Index] = true
	}
	if len(seen) < backups/2 {
		t.Errorf("only %d different indexes: the load did not go on", len(seen))
	}
}

// hashes replays the log of a directory: the state's hash after each entry.
func hashes(t *testing.T, dir string) map[uint64]string {
	t.Helper()
	st, err := store.Open(store.Options{Dir: dir, Logger: quietLog})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s, err := core.Decode(bytes.NewReader(st.Recovered().Snapshot.GetData()))
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint64]string{}
	for _, e := range st.Recovered().Entries {
		entry := core.Entry{Index: e.GetIndex(), Term: e.GetTerm()}
		if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
			if entry, err = core.DecodeEntry(e.GetIndex(), e.GetTerm(), e.GetData()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Apply(entry); err != nil {
			t.Fatal(err)
		}
		h := s.Hash()
		out[e.GetIndex()] = hex.EncodeToString(h[:])
	}
	return out
}

// file is a backup of the node's state.
func (n *testNode) backup() []byte {
	n.t.Helper()
	image, err := n.Image(n.t.Context(), false)
	if err != nil {
		n.t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := backup.Write(&b, image.State, backup.Info{Term: image.Term, TakenAt: time.Now()}); err != nil {
		n.t.Fatal(err)
	}
	return b.Bytes()
}

// A node starts on a restored directory as on any other: sessions of the
// backup are lost, numbers are above, a lock whose holder was cut off opens
// after its lock-delay, values are there; and it survives restarts and
// snapshots, and is backed up and restored again.
func TestNodeOnARestoredDirectory(t *testing.T) {
	n := startTestNode(t, nil)
	s := n.open("holder", time.Minute)
	got := make(chan Answer, 4)
	n.Submit(core.Acquire{Session: s, Request: core.Request{N: 1}, Lock: "delayed", LockDelay: 2 * time.Second}, func(a Answer) { got <- a })
	held := n.granted(got)
	n.do(core.Put{Lock: "value", Value: []byte("stays")})
	file := n.backup()
	lost := n.granted(n.acquire(s, 1, 1, "later"))
	old := n.Status()
	last := lost.Number
	for round := range 3 {
		o := backup.Options{Dir: filepath.Join(t.TempDir(), "restored"), Today: time.Now(), Above: last, Logger: quietLog}
		_, begun, err := backup.Restore(bytes.NewReader(file), o)
		if err != nil {
			t.Fatal(err)
		}
		r := startTestNode(t, func(c *NodeConfig) { c.Dir = o.Dir; c.SnapshotEntries = 20 })
		if st := r.Status(); st.Domain != old.Domain || st.Incarnation == old.Incarnation || st.Epoch != begun.Epoch || st.NodeID != begun.NodeID || st.Sessions != 0 || st.Revision <= old.Revision {
			t.Fatalf("round %d: status %+v", round, st)
		}
		if p := r.keepalive(s); p.Err != ErrSessionLost {
			t.Errorf("the session of the backup: %+v", p)
		}
		for i := range 2 {
			again := r.open(fmt.Sprintf("again %d", i), time.Minute)
			for _, lock := range []string{"later", "delayed"} {
				a := r.acquire(again, 2, uint64(len(lock)), lock)
				if lock == "delayed" && i == 0 && round == 0 {
					r.waiting(a) // for its lock-delay
				}
				g := r.nextGrant(a)
				if g.Number <= last || g.Number <= held.Number {
					t.Errorf("round %d gave out %d after %d", round, g.Number, last)
				}
				last = g.Number
				r.do(core.Release{Session: again, Grant: g.Number})
			}
			for range 15 { // more than a snapshot holds back
				r.do(core.Put{Lock: "value", Value: []byte("stays")})
			}
			r.restart()
		}
		file = r.backup()
	}
}

// nextGrant waits for a grant that may come after a wait.
func (n *testNode) nextGrant(got <-chan Answer) *core.Grant {
	n.t.Helper()
	for {
		a := n.next(got)
		if a.Err != nil || a.Result.Status != core.Granted && a.Result.Status != core.Waiting {
			n.t.Fatalf("answer is %+v, %+v", a, a.Result.Refusal)
		}
		if a.Result.Status == core.Granted {
			return a.Result.Grant
		}
	}
}
