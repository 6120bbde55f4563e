package server

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/server/core"
	"holdfast/server/replica"
	"holdfast/server/store"
)

// replay is a shell around store and replica without clocks or goroutines: it
// applies everything that a directory holds and notes the hash at one index.
type replay struct {
	t      *testing.T
	s      *store.Store
	m      *replica.Machine
	queue  []replica.Append
	want   uint64 // the index at which the hash is taken; 0: none
	hash   [32]byte
	clocks []core.Clock
	grants []uint64
}

func (r *replay) Append(a replica.Append) { r.queue = append(r.queue, a) }
func (r *replay) Send(replica.Message)    {}
func (r *replay) Role(replica.Role)       {}
func (r *replay) Read(replica.Handle)     {}
func (r *replay) Unknown(replica.Handle)  {}

func (r *replay) Applied(a replica.Applied) {
	if a.Entry.Index == r.want {
		r.hash = r.m.State().Hash()
	}
	r.clocks = append(r.clocks, a.Entry.Header.Clock)
	for _, e := range a.Did.Events {
		if e.Kind == core.EventGranted {
			r.grants = append(r.grants, e.Grant)
		}
	}
}

// replayDir recovers a directory and closes it again.
func replayDir(t *testing.T, dir string, want uint64) *replay {
	t.Helper()
	s, err := store.Open(store.Options{Dir: dir, Logger: quietLog})
	if err != nil {
		t.Fatal(err)
	}
	found := s.Recovered()
	m, err := replica.New(replica.Config{Group: 1, ID: s.Meta().NodeID, Snapshot: found.Snapshot, HardState: found.HardState, Entries: found.Entries})
	if err != nil {
		t.Fatal(err)
	}
	r := &replay{t: t, s: s, m: m, want: want}
	m.Campaign()
	for i := 0; i == 0 || len(r.queue) > 0; i++ {
		if err := m.Advance(r); err != nil {
			t.Fatal(err)
		}
		for _, a := range r.queue {
			r.queue = r.queue[1:]
			if err := s.Append(a.HardState, a.Entries, a.Snapshot); err != nil {
				t.Fatal(err)
			}
			if err := m.StorageDone(a, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Advance(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.State().Check(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCasebookC07_CrashBetweenStateAndAppliedIndex: a node is killed at many
// moments under load, with snapshots in between. Replaying what the disk holds
// gives, at every index, the very state that the live node had there; no
// acknowledged grant is missing and none is given twice.
func TestCasebookC07_CrashBetweenStateAndAppliedIndex(t *testing.T) {
	s := &faultyStorage{}
	n := startTestNode(t, func(c *NodeConfig) {
		faulty(s)(c)
		c.SnapshotEntries = 60
	})
	var highest atomic.Uint64 // acknowledged
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 4 {
		session := n.open(fmt.Sprint("client", i), time.Hour)
		load.Go(func() {
			for k := uint64(1); ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				g := n.granted(n.acquire(session, 0, k, fmt.Sprint("lock", i, k%3)))
				for old := highest.Load(); old < g.Number && !highest.CompareAndSwap(old, g.Number); old = highest.Load() {
				}
				n.do(core.Release{Session: session, Grant: g.Number})
			}
		})
	}
	const kills = 15
	compared := 0
	for i := range kills {
		hash, index := n.hash()
		image := filepath.Join(t.TempDir(), fmt.Sprint(i))
		s.door.Lock() // between two calls of the store
		acked := highest.Load()
		err := os.CopyFS(image, os.DirFS(n.cfg.Dir))
		s.door.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		r := replayDir(t, image, index)
		if r.m.State().LastNumber() < acked {
			t.Fatalf("grant %d was acknowledged, and the log ends with %d", acked, r.m.State().LastNumber())
		}
		var last uint64
		for _, g := range r.grants {
			if g <= last {
				t.Fatalf("grant %d follows grant %d", g, last)
			}
			last = g
		}
		if r.hash != [32]byte{} {
			compared++
			if r.hash != hash {
				t.Fatalf("at index %d the state was %x, and replayed it is %x", index, hash, r.hash)
			}
		}
		if again := replayDir(t, image, 0); again.m.State().Revision() != r.m.State().Revision() || again.m.State().LastNumber() != r.m.State().LastNumber() {
			t.Error("a second recovery differs from the first")
		}
	}
	close(stop)
	load.Wait()
	if compared < kills/4 {
		t.Errorf("only %d hashes were compared", compared)
	}
}

// TestSnapshotAndRestart: a long log is cut, and the node starts from the
// snapshot and what follows.
func TestSnapshotAndRestart(t *testing.T) {
	n := startTestNode(t, func(c *NodeConfig) { c.SnapshotEntries = 50 })
	a := n.open("a", time.Minute)
	g := n.granted(n.acquire(a, 9, 1, "kept"))
	for i := range uint64(400) {
		n.do(core.Put{Lock: "v", Value: fmt.Append(nil, strings.Repeat("x", 2000), i)})
	}
	snaps := func() []string {
		found, err := filepath.Glob(filepath.Join(n.cfg.Dir, "group-*", "snap", "*.snap"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	eventually(t, "two snapshots are there", func() bool { return len(snaps()) == 2 })
	before := n.settled()
	n.restart()
	if after := n.settled(); after.LastNumber != before.LastNumber || after.Sessions != 1 || after.Locks != 2 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if again := n.granted(n.acquire(a, 9, 1, "kept")); again.Number != g.Number {
		t.Errorf("the grant is %d: want %d", again.Number, g.Number)
	}
	segs, err := filepath.Glob(filepath.Join(n.cfg.Dir, "group-*", "wal", "*.wal"))
	if err != nil || len(segs) > 4 {
		t.Errorf("%d segments are kept, %v", len(segs), err)
	}
}

// TestCasebookC18_TTLIsNeverNonsense: what a node says of a session's time left
// lies in 0 … TTL before, during and after it begins to lead.
func TestCasebookC18_TTLIsNeverNonsense(t *testing.T) {
	n := startTestNode(t, nil)
	const ttl = 2 * time.Second
	a := n.open("a", ttl)
	look := func(stale bool) {
		err := n.View(context.Background(), stale, func(r Reading) {
			if left := r.TTLLeft(a); left < 0 || left > ttl {
				t.Errorf("stale %v: %v left of %v", stale, left, ttl)
			}
			if left := r.TTLLeft(424242); left != 0 {
				t.Errorf("nobody's session has %v left", left)
			}
			if ago, ok := r.Heard(a); ok && ago < 0 {
				t.Errorf("heard %v ago", ago)
			}
			if r.Info.Age != 0 || r.Info.Stale != stale || r.Clock < r.State.Clock() {
				t.Errorf("reading is %+v, clock %d", r.Info, r.Clock)
			}
		})
		if err != nil && !errors.As(err, new(*NotLeaderError)) {
			t.Fatal(err)
		}
	}
	look(false)
	n.keepalive(a)
	look(true)
	n.restart()
	look(true)
	look(false)
	alive := func() (ok bool) {
		if err := n.View(context.Background(), false, func(r Reading) { ok = r.State.HasSession(a) }); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	eventually(t, "the silent session ends", func() bool { look(false); return !alive() })
	look(false)
}

// TestCasebookC38_WallClockIsNeverUsed: no file of the node asks for the time
// of day (the one time.Now is the start of the monotonic clock), and the log
// holds durations since the service began.
func TestCasebookC38_WallClockIsNeverUsed(t *testing.T) {
	files, err := filepath.Glob("node*.go")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	nows := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(x ast.Node) bool {
			sel, ok := x.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch sel.Sel.Name {
			case "Now":
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					nows++ // and not the Now of a core.Revoke
				}
			case "Unix", "UnixNano", "UnixMilli", "Until":
				t.Errorf("%s uses %s", name, sel.Sel.Name)
			}
			return true
		})
	}
	if nows != 1 {
		t.Errorf("time.Now is used %d times: want once, for the start of the monotonic clock", nows)
	}
	start := time.Now()
	n := startTestNode(t, nil)
	a := n.open("a", 10*time.Second)
	n.granted(n.acquire(a, 0, 1, "l"))
	n.restart()
	n.do(core.Put{Lock: "v", Value: []byte("x")})
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	took := core.Clock(time.Since(start))
	r := replayDir(t, n.cfg.Dir, 0)
	for i, c := range r.clocks {
		if c < 0 || c > took {
			t.Errorf("entry %d has the clock %v, and the service is %v old", i, time.Duration(c), time.Duration(took))
		}
	}
	if len(r.clocks) < 5 {
		t.Errorf("%d entries", len(r.clocks))
	}
}

// TestStallDrains: after a stall nothing expires before every connection was
// read (B9).
func TestStallDrains(t *testing.T) {
	var jump atomic.Int64
	start := time.Now()
	n := startTestNode(t, func(c *NodeConfig) {
		c.hooks.now = func() time.Duration { return time.Since(start) + time.Second + time.Duration(jump.Load()) }
	})
	asked := make(chan func(), 8)
	n.OnDrain(func(done func()) { asked <- done })
	n.OnDrain(func(done func()) { done(); done() })
	a := n.open("a", time.Second)
	jump.Store(int64(time.Minute))
	n.keepalive(12345) // any turn
	var done func()
	select {
	case done = <-asked:
	case <-time.After(10 * time.Second):
		t.Fatal("connections are not drained after a stall")
	}
	has := func() (ok bool) {
		if err := n.View(context.Background(), false, func(r Reading) { ok = r.State.HasSession(a) }); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	held := time.Now()
	eventually(t, "the connections are held back for more than 2 × T", func() bool {
		if !has() {
			t.Fatal("a session expired before the connections were read")
		}
		return time.Since(held) > 2200*time.Millisecond
	})
	done()
	eventually(t, "the silent session ends", func() bool {
		select {
		case again := <-asked: // the test machine itself stalled
			again()
		default:
		}
		return !has()
	})
}

// TestSentAgain: the same request from a later call takes over (C1).
func TestSentAgain(t *testing.T) {
	n := startTestNode(t, nil)
	a, b := n.open("a", 10*time.Second), n.open("b", 10*time.Second)
	g := n.granted(n.acquire(a, 0, 1, "l"))
	first := n.acquire(b, 0, 1, "l")
	n.waiting(first)
	second := n.acquire(b, 0, 1, "l")
	if x := n.next(first); !errors.Is(x.Err, ErrReplaced) {
		t.Errorf("the older call gets %+v", x)
	}
	n.waiting(second)
	n.do(core.Release{Session: a, Grant: g.Number})
	n.granted(second)
	select {
	case x := <-first:
		t.Errorf("the older call gets one more answer: %+v", x)
	default:
	}
	third := n.acquire(b, 0, 2, "m")
	n.granted(third)
	r := n.do(core.Cancel{Session: b, Request: core.Request{Lane: 0, N: 2}})
	if r.Status == core.Refused {
		t.Errorf("cancel gets %+v", r.Refusal)
	}
}

func TestViewGivesUp(t *testing.T) {
	n := startTestNode(t, nil)
	free := make(chan struct{})
	held := make(chan struct{})
	go n.View(context.Background(), true, func(Reading) { close(held); <-free })
	<-held
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ran := false
	if err := n.View(ctx, false, func(Reading) { ran = true }); !errors.Is(err, context.Canceled) {
		t.Errorf("View says %v", err)
	}
	close(free)
	n.hash() // the loop has gone past it
	if ran {
		t.Error("fn was called after View had returned")
	}
}
