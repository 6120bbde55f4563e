package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/replica"
	"holdfast/server/store"
)

// Node is one running member of the lock service: its store, its replica and
// the loop that drives them. Its methods may be called from any goroutine;
// those that wait (Do, View, Watch.Next, Stop) not from a sink or from the
// function given to View.
type Node struct {
	cfg   NodeConfig
	log   *slog.Logger
	start time.Time
	in    inbox
	hub   hub
	met   *nodeMetrics
	box   peerBox
	port  *peer.Port // nil: no port for members

	identity identity

	status atomic.Pointer[Status]
	beat   atomic.Uint64 // counts the loop's steps: it moves
	led    chan struct{} // closed when the node first leads, or knows who does

	stopping chan struct{} // closed by Stop
	stopOnce sync.Once
	done     chan struct{}
	err      error // set before done is closed

	drains struct {
		sync.Mutex
		fns  []func(done func())
		away []func(*NotLeaderError)
	}
}

// nodeHooks let tests of this package reach into a node.
type nodeHooks struct {
	// storage wraps the node's store.
	storage func(replica.Storage) replica.Storage
	// hangCheck is the watchdog's period; 0 is a second.
	hangCheck time.Duration
	// spaceEvery is how often the free space is looked at; 0 is the default.
	spaceEvery time.Duration
	// loop is shown the node's loop before it runs.
	loop func(*loop)
	// supports is the newest cluster version that the node pretends to know;
	// 0 is the real one.
	supports uint32
	// versionOf replaces core's.
	versionOf func(core.Command) uint32
	// trailing is how many entries below a snapshot stay in memory; 0 is the
	// default.
	trailing uint64
	// founded is called when the founders have decided, before anything of it
	// is written; an error ends the start.
	founded func() error
	// lose tells which commands of the lease machine get lost on their way
	// into the log.
	lose func(core.Command) bool
	// dial replaces how other members are dialled.
	dial func(ctx context.Context, addr string) (net.Conn, error)
	// now replaces the monotonic clock.
	now func() time.Duration
}

// now is the node's monotonic clock (CLOCK_MONOTONIC since just before its
// start, so never 0). The wall clock is never asked.
func (n *Node) now() time.Duration {
	if n.cfg.hooks.now != nil {
		return n.cfg.hooks.now()
	}
	return time.Since(n.start) + time.Second
}

// withDefaults fills in the documented defaults and refuses what is out of
// range.
func (c NodeConfig) withDefaults() (NodeConfig, error) {
	if c.Dir == "" {
		return c, errors.New("server: no data directory given")
	}
	for _, f := range []struct {
		name    string
		value   *int
		initial int
	}{{"MaxSessions", &c.MaxSessions, 100_000}, {"MaxPending", &c.MaxPending, 65_536}} {
		if *f.value < 0 {
			return c, fmt.Errorf("server: %s is %d: want 1 or more, or 0 for %d", f.name, *f.value, f.initial)
		}
		if *f.value == 0 {
			*f.value = f.initial
		}
	}
	if c.Tick == 0 {
		c.Tick = 100 * time.Millisecond
	}
	if c.Tick < 10*time.Millisecond || c.Tick > 10*time.Second {
		return c, fmt.Errorf("server: tick is %v: want 10ms – 10s", c.Tick)
	}
	if c.SnapshotEntries == 0 {
		c.SnapshotEntries = 100_000
	}
	if c.SnapshotBytes == 0 {
		c.SnapshotBytes = 64 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.OnHang == nil {
		log := c.Logger
		c.OnHang = func(reason string) {
			log.Error("the process exits", "reason", reason)
			os.Exit(70)
		}
	}
	return c, nil
}

// startGrace is how long StartNode waits for a leader.
const startGrace = 5 * time.Second

// StartNode opens the data directory, setting it up if it is new, and starts
// the node. It returns when the node leads or knows who does, or after a few
// seconds, or when ctx ends, if it is running but nobody leads yet:
// [Node.Ready] says why. A new node with founders waits, until ctx ends, for all
// of them (D7); an error that is [ErrBelongs] says that one of them belongs to a
// cluster already. A directory that cannot be used is an error that names the
// file and says what to do; these errors are those of [store.Open].
func StartNode(ctx context.Context, cfg NodeConfig) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, log: cfg.Logger, start: time.Now(),
		in:  inbox{signal: make(chan struct{}, 1), limit: cfg.MaxPending},
		led: make(chan struct{}), stopping: make(chan struct{}), done: make(chan struct{}),
	}
	if n.met, err = newNodeMetrics(cfg.Registerer); err != nil {
		return nil, err
	}
	n.box.wake = n.in.wake
	l, err := n.open(ctx)
	if err != nil {
		n.met.unregister()
		return nil, err
	}
	if cfg.hooks.loop != nil {
		cfg.hooks.loop(l)
	}
	l.publish()
	go l.run()
	go n.watchLoop()
	select {
	case <-n.led:
	case <-n.done:
		return nil, n.err
	case <-ctx.Done():
	case <-time.After(startGrace):
	}
	return n, nil
}

// open opens the directory and the port for members, gives a new node its
// first state, and puts the loop together.
func (n *Node) open(ctx context.Context) (*loop, error) {
	s, err := store.Open(store.Options{Dir: n.cfg.Dir, Logger: n.cfg.Logger})
	if err != nil {
		closeListener(n.cfg)
		return nil, err
	}
	l, err := n.openWith(ctx, s)
	if err != nil {
		if n.port != nil {
			n.port.Close()
		} else {
			closeListener(n.cfg)
		}
		s.Close()
	}
	return l, err
}

func closeListener(cfg NodeConfig) {
	if cfg.Peers.Listener != nil {
		_ = cfg.Peers.Listener.Close()
	}
}

func (n *Node) openWith(ctx context.Context, s *store.Store) (*loop, error) {
	p := n.cfg.Peers
	me := &n.identity
	me.facts = peer.Facts{ID: s.Meta().NodeID, Name: p.Name, ClientAddr: p.ClientAddr, PeerAddr: p.PeerAddr}
	me.list, me.state = p.Founders, peer.IsNew
	me.supports = cmp.Or(n.cfg.hooks.supports, core.SupportedVersion)
	if err := checkJoin(n.cfg, s.Meta()); err != nil {
		return nil, err
	}
	if s.Meta().Member {
		me.belongs(s.Meta(), readPlan(n.cfg.Dir))
	}
	n.port = openPort(n.cfg, me.answer)
	if !s.Meta().Member {
		if err := n.setUp(ctx, s); err != nil {
			return nil, fmt.Errorf("setting up %s: %w", n.cfg.Dir, err)
		}
	}
	l, err := newLoop(n, s)
	if err != nil {
		return nil, err
	}
	members, _ := l.m.State().Members()
	if err := checkMember(n.cfg, s.Meta().NodeID, members); err != nil {
		return nil, err
	}
	l.net.port = n.port
	l.publish() // its own version is asked for by the lines
	l.join(s.Meta().Incarnation, s.Meta().Group, l.ownName(members))
	return l, nil
}

// setUp writes the first state of a new node: of a service of its own, or of
// the cluster that it founds with others.
func (n *Node) setUp(ctx context.Context, s *store.Store) error {
	if len(n.cfg.Peers.Join) > 0 {
		return n.setUpJoined(ctx, s)
	}
	plan := drawPlan([]peer.Facts{n.identity.facts})
	if len(n.cfg.Peers.Founders) > 0 {
		var err error
		if plan, err = found(ctx, n.cfg, &n.identity); err != nil {
			return err
		}
		if f := n.cfg.hooks.founded; f != nil {
			if err := f(); err != nil {
				return err
			}
		}
		if err := writePlan(n.cfg.Dir, plan); err != nil {
			return err
		}
	}
	first, err := firstState(plan, min(core.SupportedVersion, cmp.Or(n.cfg.hooks.supports, core.SupportedVersion)))
	if err != nil {
		return err
	}
	if err := s.Bootstrap(plan.Incarnation, first); err != nil {
		return err
	}
	n.identity.belongs(s.Meta(), plan)
	n.log.Info("new lock service", "dir", n.cfg.Dir, "node", fmt.Sprintf("%016x", s.Meta().NodeID), "members", len(plan.Members))
	return nil
}

// newLoop puts the machines together from what the store held.
func newLoop(n *Node, s *store.Store) (*loop, error) {
	found := s.Recovered()
	first, err := firstOf(n.cfg.Dir, s.Meta(), found.Snapshot)
	if err != nil {
		return nil, err
	}
	m, err := replica.New(replica.Config{
		Group: s.Meta().Group, ID: s.Meta().NodeID,
		Snapshot: first, HardState: found.HardState, Entries: found.Entries,
		Supports:        n.cfg.hooks.supports,
		TrailingEntries: n.cfg.hooks.trailing,
	})
	if err != nil {
		return nil, err
	}
	if got := m.State().Incarnation(); got != s.Meta().Incarnation {
		return nil, fmt.Errorf("%s: its snapshot is of incarnation %016x, the directory of %016x: restore it from a backup", n.cfg.Dir, got, s.Meta().Incarnation)
	}
	if m.Removed() {
		return nil, fmt.Errorf("%w: %s", ErrRemoved, removedAdvice)
	}
	var st replica.Storage = s
	if n.cfg.hooks.storage != nil {
		st = n.cfg.hooks.storage(st)
	}
	n.hub.start(m.State().Revision())
	return startLoop(n, s.Meta().NodeID, m, st), nil
}

// Status says what the node is doing, as of its loop's last turn.
func (n *Node) Status() Status { return *n.status.Load() }

// Ready reports whether the node can serve, and if not, why not.
func (n *Node) Ready() (bool, string) {
	s := n.status.Load()
	return s.Ready, s.Reason
}

// Stop ends the node cleanly: new requests get [ErrStopped], the entry in
// flight is finished, the store is flushed and closed. If ctx ends first Stop
// returns its error, and the node ends as soon as its disk lets it. Stop may
// be called more than once; it returns what [Node.Err] does.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() { close(n.stopping) })
	select {
	case <-n.done:
		return n.err
	case <-ctx.Done():
		return fmt.Errorf("stopping the node: %w", context.Cause(ctx))
	}
}

// Done is closed when the node has ended, by Stop or by a failure.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err says, once Done is closed, why the node ended: nil after Stop, else for
// example an error that is [ErrPoisoned].
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// OnDrain registers how to read what the connections hold. After a stall of
// this process the loop calls fn, which must not block: fn sees to it that
// every connection is read until it would block, that what was read is
// submitted, and then calls done, from any goroutine (B9). Until done is
// called nothing expires.
func (n *Node) OnDrain(fn func(done func())) {
	n.drains.Lock()
	defer n.drains.Unlock()
	n.drains.fns = append(n.drains.fns, fn)
}

// drain asks every registered function, and tells the loop when all are done
// with the drain of this number.
func (n *Node) drain(number uint64) {
	n.drains.Lock()
	fns := append([]func(func()){}, n.drains.fns...)
	n.drains.Unlock()
	var left atomic.Int64
	left.Store(int64(len(fns)) + 1)
	done := func() {
		if left.Add(-1) == 0 {
			n.in.put(request{drained: number}, true)
		}
	}
	for _, fn := range fns {
		var once sync.Once
		fn(func() { once.Do(done) })
	}
	done()
}

// hangChecks is how many looks without a turn of the loop mean that it hangs.
const hangChecks = 10

// watchLoop calls OnHang when the loop stops turning. It counts its own looks
// rather than time, so that a process that was stopped or asleep as a whole is
// not taken for one that hangs.
func (n *Node) watchLoop() {
	every := time.Second
	if n.cfg.hooks.hangCheck > 0 {
		every = n.cfg.hooks.hangCheck
	}
	t := time.NewTicker(every)
	defer t.Stop()
	seen, misses := n.beat.Load(), 0
	for {
		select {
		case <-n.done:
			return
		case <-t.C:
		}
		if now := n.beat.Load(); now != seen {
			seen, misses = now, 0
			continue
		}
		if misses++; misses == hangChecks {
			n.cfg.OnHang(fmt.Sprintf("the node's loop has not moved for %v", hangChecks*every))
			return
		}
	}
}
