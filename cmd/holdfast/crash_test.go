package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast"
	"holdfast/engine/cluster"
)

// soakVariable asks, with any value, for the long forms of tests; make soak
// sets it.
const soakVariable = "HOLDFAST_SOAK"

// rounds is how often the server is killed.
func rounds() int {
	if os.Getenv(soakVariable) != "" {
		return 200
	}
	return 40
}

// A crash is the load that a server is killed under, and what it must keep.
type crash struct {
	t      *testing.T
	client *cluster.Client
	stop   chan struct{}
	acked  atomic.Uint64 // the highest token that any answer told
	grants atomic.Uint64 // how many were acknowledged
	fails  chan error
	wg     sync.WaitGroup
}

// Kill -9 of the server under load: no acknowledged grant is lost or given
// twice, tokens rise strictly over all restarts, and a lock that was held
// before is held after, by the same grant, with its holder none the wiser.
//
// It is not parallel: its load would be one for the tests that measure times.
func TestServerKilledUnderLoad(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startService(t, "serve", "--data", data, "--listen", "127.0.0.1:0", "--log-level", "warn")
	client, err := cluster.Dial(t.Context(), s.addr, &cluster.Options{TTL: time.Minute, Label: "crash test"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	c := newLoad(t, client)
	kept, err := client.Acquire(t.Context(), "kept", cluster.AcquireOptions{Value: []byte("value")})
	if err != nil {
		t.Fatal(err)
	}
	detached := start(t, s.on(), "run", "kept/run", "--ttl", "1m", "--", "sleep", "1000")
	runGrant := s.holds(t, "kept/run").Grant
	for i := range 8 {
		// Pairs of workers contend for a lock, and each has one of its own.
		c.wg.Go(func() { c.work(fmt.Sprintf("shared/%d", i/2)) })
		c.wg.Go(func() { c.work(fmt.Sprintf("own/%d", i)) })
	}
	for round := range rounds() {
		c.progress(uint64(round%4) * 20)
		kill(s.cmd.Process.Pid, unix.SIGKILL)
		s.wait()
		s = startService(t, "serve", "--data", data, "--listen", s.addr, "--log-level", "warn")
		c.holdsStill(kept, round)
	}
	c.halt()
	if h := s.holds(t, "kept/run"); h.Grant != runGrant {
		t.Errorf("the lock of a command is held by grant %s, was by %s", h.Grant, runGrant)
	}
	detached.signal(unix.SIGTERM)
	detached.expect(143)
	if err := kept.Release(context.Background()); err != nil {
		t.Error(err)
	}
	t.Logf("%d grants acknowledged over %d kills, highest token %d", c.grants.Load(), rounds(), c.acked.Load())
}

func newLoad(t *testing.T, client *cluster.Client) *crash {
	return &crash{t: t, client: client, stop: make(chan struct{}), fails: make(chan error, 64)}
}

// progress waits until further grants were acknowledged.
func (c *crash) progress(grants uint64) {
	c.t.Helper()
	from := c.grants.Load()
	eventually(c.t, "progress", func() bool { return c.grants.Load() >= from+grants || len(c.fails) > 0 })
}

// halt ends the load, and tells what went wrong under it.
func (c *crash) halt() {
	c.t.Helper()
	close(c.stop)
	c.wg.Wait()
	close(c.fails)
	for err := range c.fails {
		c.t.Error(err)
	}
}

// holdsStill checks a lock that is held all the time.
func (c *crash) holdsStill(g *holdfast.Grant, round int) {
	c.t.Helper()
	if err := g.Err(); err != nil {
		c.t.Fatalf("round %d: the grant held all the time: %v", round, err)
	}
	l, err := c.client.Get(c.t.Context(), g.Lock(), cluster.GetOptions{})
	if err != nil {
		c.t.Fatalf("round %d: get: %v", round, err)
	}
	if len(l.Holders) != 1 || l.Holders[0].Token != g.Token() || string(l.Value) != "value" {
		c.t.Fatalf("round %d: the lock held all the time is %+v, want held by %v", round, l, g.Token())
	}
}

// work acquires and releases until it is told to stop. Every answer counts as
// a promise from then on.
func (c *crash) work(name string) {
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		if err := c.once(name); err != nil {
			select {
			case c.fails <- fmt.Errorf("%s: %w", name, err):
			default:
			}
			return
		}
	}
}

func (c *crash) once(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	floor := c.acked.Load() // whatever was told before this request was made
	g, err := c.client.Locker().Acquire(ctx, name)
	if err != nil {
		return err
	}
	n := g.Token().Number
	if n <= floor {
		return fmt.Errorf("token %d after %d had been given out", n, floor)
	}
	for {
		high := c.acked.Load()
		if n <= high || c.acked.CompareAndSwap(high, n) {
			break
		}
	}
	c.grants.Add(1)
	// The grant is acknowledged: from here to its release the service must
	// know it, through any number of kills.
	if err := holds(ctx, c.client, g); err != nil {
		return err
	}
	return released(ctx, g)
}
