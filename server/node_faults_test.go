package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// faultyStorage is the real store with a door that a test can close, and with
// errors.
type faultyStorage struct {
	replica.Storage
	door   sync.RWMutex // write-locked: calls hang
	calls  atomic.Int64
	failAt atomic.Int64 // the call that fails; 0: none
	low    atomic.Bool
	// starved: so low that even a follower lets its log not grow.
	starved atomic.Bool
}

var errDisk = errors.New("input/output error")

// enter waits at the door, and keeps it from closing until the call is over.
func (s *faultyStorage) enter() (leave func(), err error) {
	s.door.RLock()
	if n := s.calls.Add(1); n == s.failAt.Load() {
		s.door.RUnlock()
		return nil, errDisk
	}
	return s.door.RUnlock, nil
}

func (s *faultyStorage) Append(hs *raftpb.HardState, entries []*raftpb.Entry, received *raftpb.Snapshot) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.Storage.Append(hs, entries, received)
}

func (s *faultyStorage) SaveSnapshot(snap *raftpb.Snapshot) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.Storage.SaveSnapshot(snap)
}

func (s *faultyStorage) Probe() error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.Storage.Probe()
}

func (s *faultyStorage) Space() (free, reserve uint64, err error) {
	free, reserve, err = s.Storage.Space()
	if s.low.Load() {
		free = reserve - 1
	}
	if s.starved.Load() {
		free = reserve/2 - 1
	}
	return free, reserve, err
}

// faulty puts a faultyStorage under a node.
func faulty(s *faultyStorage) func(*NodeConfig) {
	return func(c *NodeConfig) {
		c.hooks.storage = func(under replica.Storage) replica.Storage {
			s.Storage = under
			return s
		}
		c.hooks.spaceEvery = 10 * time.Millisecond
	}
}

// eventually polls until ok, for at most ten seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within ten seconds", what)
		}
	}
}

func TestCasebookC05_PoisonedNodeEnds(t *testing.T) {
	s := &faultyStorage{}
	n := startTestNode(t, faulty(s))
	a := n.open("a", 10*time.Second)
	n.granted(n.acquire(a, 0, 1, "l"))
	s.failAt.Store(s.calls.Load() + 1)
	got := n.acquire(a, 0, 2, "m")
	ans := n.next(got)
	if !errors.Is(ans.Err, ErrUnknownOutcome) || !errors.Is(ans.Err, ErrPoisoned) || !errors.Is(ans.Err, errDisk) {
		t.Errorf("the command in flight gets %v", ans.Err)
	}
	select {
	case <-n.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the node does not end")
	}
	if err := n.Err(); !errors.Is(err, ErrPoisoned) || !errors.Is(err, errDisk) {
		t.Errorf("Err is %v", err)
	}
	calls := s.calls.Load()
	if ok, why := n.Ready(); ok || !strings.Contains(why, "input/output error") {
		t.Errorf("ready %v, %q", ok, why)
	}
	if ans := n.next(n.acquire(a, 0, 3, "n")); !errors.Is(ans.Err, ErrPoisoned) || errors.Is(ans.Err, ErrUnknownOutcome) {
		t.Errorf("a command afterwards gets %v", ans.Err)
	}
	if p := n.keepalive(a); !errors.Is(p.Err, ErrPoisoned) {
		t.Errorf("a keepalive afterwards gets %v", p.Err)
	}
	if err := n.View(context.Background(), true, func(Reading) { t.Error("viewed") }); !errors.Is(err, ErrPoisoned) {
		t.Errorf("a view afterwards gets %v", err)
	}
	if s.calls.Load() != calls {
		t.Error("the store was called after it failed")
	}
	// Reopened, the directory has all that was acknowledged.
	s.failAt.Store(0)
	n.start()
	if again := n.granted(n.acquire(a, 1, 1, "x")); again.Number < 2 {
		t.Errorf("the number fell to %d", again.Number)
	}
}

// TestEveryCallFails: whichever call of the store fails first, the node ends,
// and what was acknowledged is there after the next start.
func TestEveryCallFails(t *testing.T) {
	for at := int64(1); at <= 12; at++ {
		s := &faultyStorage{}
		s.failAt.Store(at)
		cfg := faulty(s)
		n := &testNode{t: t, cfg: NodeConfig{Dir: t.TempDir(), Logger: quietLog, Tick: 20 * time.Millisecond, SnapshotEntries: 3}}
		cfg(&n.cfg)
		var acked []uint64
		node, err := StartNode(context.Background(), n.cfg)
		if err == nil {
			n.Node = node
			acked = workUntilFailure(n)
			<-n.Done()
			err = n.Err()
		}
		if !errors.Is(err, errDisk) {
			t.Fatalf("call %d: the node ends with %v", at, err)
		}
		s.failAt.Store(0)
		n.start()
		if last := n.Status().LastNumber; len(acked) > 0 && last < acked[len(acked)-1] {
			t.Errorf("call %d: number %d was acknowledged, and the last is %d", at, acked[len(acked)-1], last)
		}
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// workUntilFailure acquires locks until the node fails, and returns the
// numbers that were acknowledged.
func workUntilFailure(n *testNode) (acked []uint64) {
	ctx := context.Background()
	r, err := n.Do(ctx, core.Open{ID: 1, SecretHash: [32]byte{1}, TTL: time.Minute})
	for i := uint64(1); err == nil; i++ {
		ans := <-n.acquire(r.Session, 0, i, fmt.Sprint("l", i))
		if err = ans.Err; err == nil {
			acked = append(acked, ans.Result.Grant.Number)
		}
	}
	return acked
}

func TestHungDisk(t *testing.T) {
	s := &faultyStorage{}
	n := startTestNode(t, faulty(s))
	a := n.open("a", time.Second)
	g := n.granted(n.acquire(a, 0, 1, "l"))
	s.door.Lock()
	release := make(chan Answer, 1)
	n.Submit(core.Release{Session: a, Grant: g.Number}, func(x Answer) { release <- x })
	eventually(t, "the node says that its disk hangs", func() bool {
		n.Keepalive(a, func(Pulse) {})
		ok, why := n.Ready()
		return !ok && strings.Contains(why, "disk: a write has not returned")
	})
	if p := n.keepalive(a); p.Err != nil {
		t.Errorf("a healthy session is told %v while the disk hangs", p.Err)
	}
	eventually(t, "new work is refused", func() bool {
		n.Keepalive(a, func(Pulse) {})
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := n.Do(ctx, core.Open{ID: 99, SecretHash: [32]byte{9}, TTL: time.Second})
		return errors.Is(err, ErrOverloaded) && strings.Contains(err.Error(), "disk")
	})
	select {
	case x := <-release:
		t.Errorf("a release was answered before it was on disk: %+v", x)
	default:
	}
	s.door.Unlock()
	if x := n.next(release); x.Err != nil || x.Result.Status != core.Done {
		t.Errorf("the release gets %+v", x)
	}
	eventually(t, "the node is ready again", func() bool {
		n.Keepalive(a, func(Pulse) {})
		ok, _ := n.Ready()
		return ok
	})
	n.open("b", time.Second)
}

func TestLowDisk(t *testing.T) {
	s := &faultyStorage{}
	n := startTestNode(t, faulty(s))
	a := n.open("a", 10*time.Second)
	g := n.granted(n.acquire(a, 0, 1, "l"))
	s.low.Store(true)
	eventually(t, "low space is noticed", func() bool {
		ok, why := n.Ready()
		return !ok && strings.Contains(why, "MiB are free")
	})
	for _, cmd := range []core.Command{
		core.Open{ID: 99, SecretHash: [32]byte{9}, TTL: time.Second},
		core.Acquire{Session: a, Request: core.Request{Lane: 1, N: 1}, Lock: "m"},
		core.Put{Lock: "v", Value: []byte("x")},
	} {
		if _, err := n.Do(context.Background(), cmd); !errors.Is(err, ErrOverloaded) || !strings.Contains(err.Error(), "free space") {
			t.Errorf("%T gets %v", cmd, err)
		}
	}
	if p := n.keepalive(a); p.Err != nil {
		t.Errorf("a keepalive gets %v", p.Err)
	}
	n.do(core.Release{Session: a, Grant: g.Number})
	n.do(core.End{ID: a})
	s.low.Store(false)
	eventually(t, "the node returns by itself", func() bool { ok, _ := n.Ready(); return ok })
	n.open("b", time.Second)
}

// TestSpaceReturns: when there is room again the service is back within about a
// second, though free space is normally looked at more rarely.
func TestSpaceReturns(t *testing.T) {
	s := &faultyStorage{}
	s.low.Store(true)
	n := startTestNode(t, func(c *NodeConfig) {
		faulty(s)(c)
		c.hooks.spaceEvery = 0 // as in production
	})
	eventually(t, "low space is noticed", func() bool {
		_, why := n.Ready()
		return strings.Contains(why, "MiB are free")
	})
	begun := time.Now()
	s.low.Store(false)
	eventually(t, "the node returns by itself", func() bool { ok, _ := n.Ready(); return ok })
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("the node was back %v after space was", took)
	}
}

func TestOverload(t *testing.T) {
	s := &faultyStorage{}
	n := startTestNode(t, func(c *NodeConfig) {
		faulty(s)(c)
		c.MaxPending, c.MaxSessions = 10, 3
		c.Tick = time.Second // so that the disk is not taken for a hung one
	})
	a := n.open("a", time.Minute)
	n.open("b", time.Minute)
	g := n.granted(n.acquire(a, 0, 1, "l"))
	s.door.Lock()
	answers := make(chan error, 500)
	refused := 0
	for i := range uint64(200) {
		n.Submit(core.Acquire{Session: a, Request: core.Request{Lane: uint32(i + 1), N: 1}, Lock: fmt.Sprint("x", i)}, func(x Answer) { answers <- x.Err })
	}
	freed := make(chan Answer, 1)
	n.Submit(core.Release{Session: a, Grant: g.Number}, func(x Answer) { freed <- x })
	if p := n.keepalive(a); p.Err != nil {
		t.Errorf("a keepalive under overload gets %v", p.Err)
	}
	s.door.Unlock()
	for range 200 {
		select {
		case err := <-answers:
			if errors.Is(err, ErrOverloaded) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("not every command was answered")
		}
	}
	if refused < 100 {
		t.Errorf("%d of 200 commands were refused with room for about 21", refused)
	}
	if x := n.next(freed); x.Err != nil {
		t.Errorf("a release under overload gets %v", x.Err)
	}
	n.open("c", time.Minute)
	if _, err := n.Do(context.Background(), core.Open{ID: 5, SecretHash: [32]byte{5}, TTL: time.Minute}); !errors.Is(err, ErrOverloaded) || !strings.Contains(err.Error(), "3 sessions") {
		t.Errorf("a session too many gets %v", err)
	}
	n.open("a", time.Minute) // again: it is there already
	select {
	case err := <-answers:
		t.Errorf("a command was answered twice: %v", err)
	default:
	}
}

func TestHugeCommand(t *testing.T) {
	n := startTestNode(t, nil)
	for _, cmd := range []core.Command{nil, core.Put{Lock: "v", Value: make([]byte, maxEntryBytes)}} {
		if _, err := n.Do(context.Background(), cmd); !errors.Is(err, ErrOverloaded) {
			t.Errorf("%T gets %v", cmd, err)
		}
	}
	n.open("a", time.Minute)
}

func TestWatchdogOfTheLoop(t *testing.T) {
	hung := make(chan string, 1)
	n := startTestNode(t, func(c *NodeConfig) {
		c.hooks.hangCheck = 10 * time.Millisecond
		c.OnHang = func(reason string) { hung <- reason }
	})
	free := make(chan struct{})
	go n.View(context.Background(), true, func(Reading) { <-free })
	select {
	case reason := <-hung:
		if !strings.Contains(reason, "has not moved") {
			t.Errorf("reason is %q", reason)
		}
	case <-time.After(10 * time.Second):
		t.Error("a hung loop is not noticed")
	}
	close(free)
}

func TestStop(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	s := &faultyStorage{}
	n := startTestNode(t, faulty(s))
	a, b := n.open("a", 10*time.Second), n.open("b", 10*time.Second)
	n.granted(n.acquire(a, 0, 1, "l"))
	wait := n.acquire(b, 0, 1, "l")
	n.waiting(wait)
	s.door.Lock()
	flying := n.acquire(a, 0, 2, "m")
	eventually(t, "the command is in flight", func() bool {
		n.in.mu.Lock()
		defer n.in.mu.Unlock()
		return len(n.in.mu.ordinary) == 0
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if err := n.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop with a hung disk says %v", err)
	}
	if x := n.next(n.acquire(a, 0, 3, "n")); !errors.Is(x.Err, ErrStopped) || errors.Is(x.Err, ErrUnknownOutcome) {
		t.Errorf("a command while stopping gets %v", x.Err)
	}
	s.door.Unlock()
	if g := n.granted(flying); g.Lock != "m" {
		t.Errorf("the command in flight gets %+v", g)
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if x := n.next(wait); !errors.Is(x.Err, ErrUnknownOutcome) || !errors.Is(x.Err, ErrStopped) {
		t.Errorf("a waiting acquire gets %v", x.Err)
	}
	if err := n.Err(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, leaks)
}

func TestStartRefusals(t *testing.T) {
	n := startTestNode(t, nil)
	for name, c := range map[string]NodeConfig{
		"in use":    {Dir: n.cfg.Dir},
		"no dir":    {},
		"tick":      {Dir: t.TempDir(), Tick: time.Millisecond},
		"sessions":  {Dir: t.TempDir(), MaxSessions: -1},
		"not a dir": {Dir: "/dev/null"},
	} {
		if node, err := StartNode(context.Background(), c); err == nil {
			t.Errorf("%s: it starts", name)
			node.Stop(context.Background())
		}
	}
}
