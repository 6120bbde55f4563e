package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/store"
)

// waitsFor starts a member that cannot come up yet, and returns how to end it
// and what its start came to.
func (m *rigNode) waitsFor(text string) (cancel func() error) {
	m.rig.t.Helper()
	ctx, stop := context.WithCancel(m.rig.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.start(ctx) }()
	m.says(text)
	return func() error {
		stop()
		return <-ended
	}
}

// wipe gives a member an empty directory, as after the loss of its disk.
func (m *rigNode) wipe() {
	if err := os.RemoveAll(m.cfg.Dir); err != nil {
		m.rig.t.Fatal(err)
	}
}

// Not two of three, and not three whose lists differ, but all.
func TestFoundedByAllOrNone(t *testing.T) {
	r := newClusterRig(t, 3)
	a, b, c := r.nodes[0], r.nodes[1], r.nodes[2]
	endA := a.waitsFor("does not answer at b.test:7434")
	endB := b.waitsFor("does not answer at c.test:7434")
	list := c.cfg.Peers.Founders
	c.cfg.Peers.Founders = []peer.Founder{list[0], list[1], {Name: "c", Addr: "c.test:7999"}}
	endC := c.waitsFor("the lists differ")
	a.says("the lists differ")
	for _, end := range []func() error{endA, endB, endC} {
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Errorf("the start ended with %v", err)
		}
	}
	for _, m := range r.nodes {
		if found, _ := filepath.Glob(filepath.Join(m.cfg.Dir, "group-*")); len(found) > 0 {
			t.Fatalf("%s has written %v", rigName(m.i), found)
		}
	}
	c.cfg.Peers.Founders = list
	r.start(r.nodes...)
	r.leader()
	r.equal()
}

// drawIDs gives each member its ID, and returns the one that will decide, and
// the others.
func (r *rig) drawIDs() (first *rigNode, rest []*rigNode) {
	r.t.Helper()
	ids := map[*rigNode]uint64{}
	for _, m := range r.nodes {
		s, err := store.Open(store.Options{Dir: m.cfg.Dir, Logger: quietLog})
		if err != nil {
			r.t.Fatal(err)
		}
		ids[m] = s.Meta().NodeID
		if err := s.Close(); err != nil {
			r.t.Fatal(err)
		}
		if first == nil || ids[m] < ids[first] {
			first = m
		}
	}
	for _, m := range r.nodes {
		if m != first {
			rest = append(rest, m)
		}
	}
	return first, rest
}

// diesHalfWay starts all members; one dies when all was decided, and before it
// has written anything. The starts of the others go on.
func (r *rig) diesHalfWay(last *rigNode, rest []*rigNode) (started chan error) {
	r.t.Helper()
	last.cfg.hooks.founded = func() error { return errors.New("the process dies here") }
	failed, started := make(chan error, 1), make(chan error, len(rest))
	go func() { failed <- last.start(r.t.Context()) }()
	for _, m := range rest {
		go func() { started <- m.start(r.t.Context()) }()
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "dies here") {
		r.t.Fatalf("it started: %v", err)
	}
	last.cfg.hooks.founded = nil
	return started
}

// A founder dies when all have agreed and others have written, and it has not:
// it comes back at any time, and is what it would have been.
func TestFounderDiesHalfWay(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, 3, func(c *NodeConfig) { c.SnapshotEntries, c.hooks.trailing = 50, 10 })
	first, rest := r.drawIDs()
	last := rest[0]
	started := r.diesHalfWay(last, []*rigNode{first, rest[1]})
	for range 2 {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	r.leader()
	for range 120 {
		r.do(core.Tick{}) // the log that it needs is gone then
	}
	r.start(last)
	last.says("the state was taken from another member")
	r.leader()
	r.equal()
}

// The founder that decides dies before it has written: nobody has written
// anything, and all wait for it.
func TestFirstFounderDiesHalfWay(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, 3)
	first, rest := r.drawIDs()
	started := r.diesHalfWay(first, rest)
	for _, m := range rest {
		m.says(rigName(first.i) + " does not answer")
		if found, _ := filepath.Glob(filepath.Join(m.cfg.Dir, "group-*")); len(found) > 0 || m.node != nil {
			t.Fatalf("%s went on without the one that decides: %v", rigName(m.i), found)
		}
	}
	r.start(first)
	for range rest {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	r.leader()
	r.equal()
}

// The founder that decides has written, and dies before anybody knew: the
// others wait for it, and follow when it is back.
func TestFirstFounderDiesWhenItHasWritten(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, 3)
	first, rest := r.drawIDs()
	var lines atomic.Bool
	for _, m := range rest {
		dial := m.cfg.hooks.dial
		m.cfg.hooks.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if !lines.Load() {
				return nil, errors.New("no line")
			}
			return dial(ctx, addr)
		}
	}
	started := make(chan error, len(rest))
	for _, m := range rest {
		go func() { started <- m.start(t.Context()) }()
	}
	ctx, cancel := context.WithCancel(t.Context())
	up := make(chan error, 1)
	go func() { up <- first.start(ctx) }()
	first.says("new lock service") // it reaches all of them, and none of them reaches it
	cancel()
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	first.stop()
	for _, m := range rest {
		if found, _ := filepath.Glob(filepath.Join(m.cfg.Dir, "group-*")); len(found) > 0 {
			t.Fatalf("%s has written: the test shows nothing", rigName(m.i))
		}
	}
	lines.Store(true)
	r.start(first)
	for range rest {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	r.leader()
	r.equal()
}

// A node without its data is a stranger: it does not start, and says what to do.
func TestFounderWithoutItsData(t *testing.T) {
	r := newCluster(t, 3)
	lost := r.other(r.leader())
	lost.stop()
	lost.wipe()
	err := lost.start(t.Context())
	if !errors.Is(err, ErrBelongs) {
		t.Fatalf("the start ended with %v", err)
	}
	name := rigName(lost.i)
	for _, line := range []string{"holdfast cluster remove " + name, "holdfast cluster add " + name, "--join"} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("%v\ndoes not say %q", err, line)
		}
	}
}

// A directory belongs to one member.
func TestWrongDirectory(t *testing.T) {
	r := newCluster(t, 3)
	a, b := r.nodes[0], r.nodes[1]
	a.stop()
	b.stop()
	a.cfg.Dir, b.cfg.Dir = b.cfg.Dir, a.cfg.Dir
	if err := a.start(t.Context()); err == nil || !strings.Contains(err.Error(), "holds the data of member b") {
		t.Errorf("a starts on b's directory: %v", err)
	}
	a.cfg.Dir, b.cfg.Dir = b.cfg.Dir, a.cfg.Dir
	alone := a.cfg
	alone.Peers = PeerConfig{}
	if _, err := StartNode(t.Context(), alone); err == nil || !strings.Contains(err.Error(), "--peer-listen") {
		t.Errorf("a member of three starts without a port for members: %v", err)
	}
	r.start(a, b)
	r.leader()
	r.equal()
}

// A copied directory is found out before anything is written.
func TestCopiedDirectory(t *testing.T) {
	r := newClusterRig(t, 3)
	a, b := r.nodes[0], r.nodes[1]
	r.drawIDs()
	b.wipe()
	if err := os.CopyFS(b.cfg.Dir, os.DirFS(a.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, m := range []*rigNode{a, b} {
		go func() { ended <- m.start(ctx) }()
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "is a copy") {
		t.Errorf("the first of the two ended with %v", err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the second one has started")
	}
}

// A list that has this node's own port under another name is told as that, and
// not as a copy of the directory.
func TestOwnPortInTheList(t *testing.T) {
	list := []peer.Founder{{Name: "a", Addr: freeAddress(t)}, {Name: "b", Addr: freeAddress(t)}, {Name: "c", Addr: freeAddress(t)}}
	_, err := Start(t.Context(), Config{Listen: freeAddress(t), Dir: t.TempDir(), Tick: clusterTick, Logger: quietLog, Cluster: ClusterConfig{Name: "a", PeerListen: list[1].Addr, Founders: list}})
	if err == nil || !strings.Contains(err.Error(), "the list has b at "+list[1].Addr+", and there this node itself answers, which is a") {
		t.Errorf("the start ended with %v", err)
	}
}

// What says how a node without data comes back has an address in it, also if
// the member that was asked does not know its own.
func TestAdviceHasAnAddress(t *testing.T) {
	f := &founding{newcomer: newcomer{me: &identity{facts: peer.Facts{Name: "c", PeerAddr: "c.test:1"}}}}
	if got := f.replaceAdvice(heard{founder: peer.Founder{Name: "a", Addr: "a.test:1"}}); !strings.Contains(got, "--join a.test:1 in place of") {
		t.Errorf("the advice is %q", got)
	}
}

func TestOneFounder(t *testing.T) {
	r := newCluster(t, 1)
	r.acquire(r.open("a", time.Hour), 1, "l")
	r.nodes[0].stop()
	r.start(r.nodes...)
	r.leader()
}

func TestFiveNodes(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 5)
	s := r.open("a", time.Hour)
	r.acquire(s, 1, "l")
	lead := r.leader()
	down := r.other(lead)
	r.isolate(lead.i)
	var rest []*rigNode
	for _, m := range r.nodes {
		if m != lead && m != down {
			rest = append(rest, m)
		}
	}
	down.stop()
	next := r.leaderAmong(rest...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if res, err := next.node.Do(ctx, core.Acquire{Session: s, Request: core.Request{N: 2}, Lock: "m"}); err != nil || res.Status != core.Granted {
		t.Errorf("with three of five: %+v, %v", res, err)
	}
	r.heal()
	r.start(down)
	r.leader()
	r.equal()
}
