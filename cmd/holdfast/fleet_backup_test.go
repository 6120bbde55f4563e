package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
	"holdfast/fence"
)

// A minted is what one run of a service gave out, in the end.
type minted struct {
	all []fence.Token
}

func (m *minted) last() fence.Token {
	return slices.MaxFunc(m.all, func(a, b fence.Token) int { return int(a.Number) - int(b.Number) })
}

func (m *minted) lowest() uint64 {
	return slices.MinFunc(m.all, func(a, b fence.Token) int { return int(a.Number) - int(b.Number) }).Number
}

// mint lets four workers acquire and release, and writes down what they got.
func (p *fleet) mint() (m minted) {
	t := p.t
	t.Helper()
	client := p.dial()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 15 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				g, err := client.Acquire(ctx, fmt.Sprint("minted/", i/2), cluster.AcquireOptions{})
				if err == nil {
					mu.Lock()
					m.all = append(m.all, g.Token())
					mu.Unlock()
					err = g.Release(ctx)
				}
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	g := take(t, client, "paper")
	m.all = append(m.all, g.Token())
	if err := g.Release(t.Context()); err != nil {
		t.Error(err)
	}
	_ = client.Close(context.Background())
	if len(m.all) != 61 {
		t.Fatalf("%d tokens", len(m.all))
	}
	return m
}

// paper is the token of the last grant of that lock.
func (m *minted) paper() fence.Token { return m.all[len(m.all)-1] }

// dial makes a client that the test closes.
func (p *fleet) dial() *cluster.Client {
	p.t.Helper()
	c, err := cluster.Dial(p.t.Context(), p.addresses(), &cluster.Options{Label: "backup test"})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// from makes a cluster of three from a data directory that restore or recover
// has made, as docs/backup.md says. The first node listens where first did, if
// it is not nil.
func fleetFrom(t *testing.T, data string, first *fleetNode) *fleet {
	t.Helper()
	n := &fleetNode{addr: freeAddress(t)}
	peers := freeAddress(t)
	if first != nil {
		n.addr, peers = first.addr, first.args[8]
	}
	n.args = []string{"serve", "--name", "n1", "--data", data, "--listen", n.addr, "--peer-listen", peers}
	p := &fleet{t: t, nodes: []*fleetNode{n}}
	p.start(n)
	for range 2 {
		p.add(p.joiner(t), []string{serverVariable + "=" + n.addr})
	}
	return p
}

// values puts what must be there after a restore, and holds what must not.
func (p *fleet) values() {
	t := p.t
	t.Helper()
	client := p.dial()
	for i := range 100 {
		if _, err := client.Put(t.Context(), fmt.Sprint("value/", i), fmt.Append(nil, i), cluster.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	once, err := client.Acquire(t.Context(), "once", cluster.AcquireOptions{OncePer: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := once.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = client.Close(context.Background())
	env := []string{serverVariable + "=" + p.addresses()}
	start(t, env, "run", "held", "--ttl", "1m", "--", "sleep", "1000")
	looker := p.dial()
	eventually(t, "a holder", func() bool {
		l, err := looker.Get(t.Context(), "held", cluster.GetOptions{})
		return err == nil && len(l.Holders) == 1
	})
	_ = looker.Close(context.Background())
}

// restored checks what is there after a restore, at each node.
func (p *fleet) restored(what string) {
	t := p.t
	t.Helper()
	p.equal()
	client := p.dial()
	defer client.Close(context.Background())
	for i := 0; i < 100; i += 9 {
		if l, err := client.Get(t.Context(), fmt.Sprint("value/", i), cluster.GetOptions{}); err != nil || string(l.Value) != fmt.Sprint(i) {
			t.Errorf("%s: value %d: %+v, %v", what, i, l, err)
		}
	}
	if l, err := client.Get(t.Context(), "once", cluster.GetOptions{}); err != nil || !l.Closed {
		t.Errorf("%s: the closing: %+v, %v", what, l, err)
	}
	if l, err := client.Get(t.Context(), "held", cluster.GetOptions{}); !isNotFound(err) && (err != nil || len(l.Holders) > 0) {
		t.Errorf("%s: the lock of a void session: %+v, %v", what, l, err)
	}
}

// end stops all nodes.
func (p *fleet) end() {
	p.t.Helper()
	for _, n := range p.nodes {
		n.signal(unix.SIGTERM)
	}
	for _, n := range p.nodes {
		n.expect(0)
	}
}

// backedUp is a cluster of three that was backed up while it was at work, went
// on, and died; what it gave out at last is known.
func backedUp(t *testing.T) (file string, last minted) {
	t.Helper()
	p := newFleet(t, 3, "--log-level", "warn")
	p.values()
	client := p.dial()
	c := &crash{t: t, client: client, stop: make(chan struct{}), fails: make(chan error, 64)}
	for i := range 4 {
		c.wg.Go(func() { c.work(fmt.Sprintf("shared/%d", i/2)) })
	}
	eventually(t, "a load", func() bool { return c.grants.Load() > 20 || len(c.fails) > 0 })
	file = filepath.Join(t.TempDir(), "backup")
	env := []string{serverVariable + "=" + p.addresses()}
	taken := run(t, 0, env, "backup", file, "-o", "json")
	lead := p.leader()
	follower := p.nodes[(slices.Index(p.nodes, lead)+1)%3]
	run(t, 0, []string{serverVariable + "=" + follower.addr}, "backup", file+".stale", "--stale")
	if verified := run(t, 0, nil, "backup", "verify", file, "-o", "json"); verified.stdout.String() != taken.stdout.String() {
		t.Errorf("taken %s\nverified %s", taken.stdout, verified.stdout)
	}
	run(t, 0, nil, "backup", "verify", file+".stale")
	close(c.stop)
	c.wg.Wait()
	close(c.fails)
	for err := range c.fails {
		t.Error(err)
	}
	last = p.mint()
	if high := c.acked.Load(); last.last().Number <= high {
		t.Errorf("token %d after %d", last.last().Number, high)
	}
	_ = client.Close(context.Background())
	p.kill(p.nodes...)
	return file, last
}

// A backup of three nodes at work is restored twice, and as a copy, and each
// time grows to three nodes again. What they give out is disjoint and rises, and
// a gate that has seen the lost run, and then each of them, refuses whatever
// came before.
func TestOneBackupOfThreeNodesRestoredTwice(t *testing.T) {
	file, lost := backedUp(t)
	guard := gates(t, "paper")["memgate"]
	if err := guard(lost.paper()); err != nil {
		t.Fatal(err)
	}
	before := []minted{lost}
	restore := func(what string, flags ...string) {
		t.Helper()
		b := begun(t, run(t, 0, nil, append([]string{"restore", file, "--data", filepath.Join(t.TempDir(), "data"), "-o", "json"}, flags...)...))
		p := fleetFrom(t, b.Data, nil)
		p.restored(what)
		got := p.mint()
		if got.lowest() < b.Lowest || got.paper().Incarnation.String() != b.Incarnation {
			t.Errorf("%s: the lowest token is %d, restore said %d", what, got.lowest(), b.Lowest)
		}
		for _, old := range before {
			if !b.NewDomain && got.lowest() <= old.last().Number || got.paper().Domain == old.paper().Domain == b.NewDomain || got.paper().Incarnation == old.paper().Incarnation {
				t.Errorf("%s: tokens from %d on, %v; a run before gave out %v", what, got.lowest(), got.paper(), old.last())
			}
		}
		err := guard(got.paper())
		if b.NewDomain {
			var wrong *fence.WrongDomainError
			if !errors.As(err, &wrong) {
				t.Errorf("%s: a gate of the first service: %v", what, err)
			}
		} else if err != nil {
			t.Errorf("%s: a gate of the first service: %v", what, err)
		}
		for _, old := range before {
			var stale *fence.StaleError
			if err := guard(old.paper()); !b.NewDomain && !errors.As(err, &stale) {
				t.Errorf("%s: a token of a run before: %v", what, err)
			}
		}
		if !b.NewDomain {
			before = append(before, got)
		}
		p.end()
	}
	restore("the first", "--keep-domain")
	restore("the second", "--keep-domain", "--above", before[1].last().String())
	restore("a copy", "--new-domain")
}

// A restore that is killed at any moment leaves nothing or the whole service,
// and can be done again.
func TestRestoreOfThreeNodesKilledAtAnyMoment(t *testing.T) {
	file, lost := backedUp(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	args := []string{"restore", file, "--data", data, "--keep-domain", "--above", lost.last().String()}
	began := time.Now()
	run(t, 0, nil, args...)
	whole := time.Since(began)
	kills, none, all, left := 12, 0, 0, 0
	if os.Getenv(soakVariable) != "" {
		kills = 400
	}
	look := func() bool {
		if names, err := os.ReadDir(data); errors.Is(err, os.ErrNotExist) || err == nil && len(names) == 0 {
			return false
		}
		p := &fleet{t: t, nodes: []*fleetNode{{addr: freeAddress(t)}}}
		p.nodes[0].args = []string{"serve", "--data", data, "--listen", p.nodes[0].addr, "--log-level", "warn"}
		p.start(p.nodes...)
		p.restored("after a kill")
		client := p.dial()
		if token := take(t, client, "paper").Token(); token.Number <= lost.last().Number || token.Domain != lost.last().Domain {
			t.Errorf("token %v after %v", token, lost.last())
		}
		_ = client.Close(context.Background())
		p.end()
		return true
	}
	if !look() {
		t.Fatal("there is nothing")
	}
	for range kills {
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		p := start(t, nil, args...)
		eventually(t, "a directory in the making", func() bool {
			names, _ := filepath.Glob(data + "*")
			return len(names) > 0
		})
		select {
		case <-time.After(rand.N(whole)):
		case <-p.done:
		}
		kill(p.cmd.Process.Pid, unix.SIGKILL)
		p.wait()
		if _, err := os.Stat(data + ".restoring"); err == nil {
			left++
		}
		if look() {
			all++
			run(t, 1, nil, args...).says("not empty")
			continue
		}
		none++
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	run(t, 0, nil, args...)
	if names, _ := filepath.Glob(data + "?*"); len(names) > 0 {
		t.Errorf("there is %v", names)
	}
	t.Logf("of %d kills of a restore that takes %v, %d left nothing (%d of them an unfinished directory beside it) and %d everything", kills, whole, none, left, all)
}

// Of three nodes one data directory is left. A new service is made of it, whose
// tokens are above all that the three gave out, and two others join it. A member
// of the lost run that is started again is no part of it.
func TestThreeNodesFromALoneSurvivor(t *testing.T) {
	p := newFleet(t, 3, "--log-level", "warn")
	p.values()
	lost := p.mint()
	p.equal()
	survivor := p.leader()
	p.kill(p.nodes...)
	var back *fleetNode
	for _, n := range p.nodes {
		if n != survivor {
			back = n // its directory comes back, by mistake
		}
	}
	data := filepath.Join(t.TempDir(), "data")
	b := begun(t, run(t, 0, nil, "recover", survivor.args[4], "--data", data, "--i-am-the-only-one", "--keep-domain", "-o", "json"))
	if b.Survivor == nil || len(b.Survivor.Lost) != 2 {
		t.Errorf("recovered %+v", b.Survivor)
	}
	anew := fleetFrom(t, data, survivor)
	anew.restored("after recover")
	back.begin(t)
	eventually(t, "the old member is refused", func() bool {
		return strings.Contains(anew.nodes[0].stderr.String(), "member of another cluster")
	})
	got := anew.mint()
	if got.lowest() <= lost.last().Number || got.lowest() < b.Lowest || got.paper().Domain != lost.paper().Domain {
		t.Errorf("tokens from %d on, after %d", got.lowest(), lost.last().Number)
	}
	if st, ok := back.status(false); ok && st.Ready {
		t.Errorf("the old member serves: %+v", st)
	}
	anew.kill(anew.nodes[0]) // the two that joined have everything
	anew.leader()
	after := anew.mint()
	if after.lowest() <= got.last().Number {
		t.Errorf("tokens from %d on, after %d", after.lowest(), got.last().Number)
	}
	anew.start(anew.nodes[0])
	anew.restored("after the recovered one has died and is back")
	p.kill(back)
	anew.end()
}
