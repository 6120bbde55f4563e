package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/driver/drivertest"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// joiner makes one more node, which is to join by any of the others. It is not
// started.
func (r *rig) joiner(change ...func(*NodeConfig)) *rigNode {
	i := len(r.nodes)
	m := &rigNode{rig: r, i: i, disk: &faultyStorage{}, log: &logBuffer{}}
	m.cfg = NodeConfig{
		Dir: filepath.Join(r.t.TempDir(), "data"), Tick: clusterTick,
		Logger: slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnHang: func(reason string) { r.t.Errorf("%s: %s", rigName(i), reason) },
		Peers:  PeerConfig{Name: rigName(i), ClientAddr: rigName(i) + ".test:7433", PeerAddr: rigName(i) + ".test:7434"},
	}
	faulty(m.disk)(&m.cfg)
	m.cfg.hooks.dial = m.dial
	for _, c := range change {
		c(&m.cfg)
	}
	for _, other := range r.nodes {
		m.cfg.Peers.Join = append(m.cfg.Peers.Join, other.cfg.Peers.PeerAddr)
		there, back := drivertest.NewProxy(r.t, "127.0.0.1:1"), drivertest.NewProxy(r.t, "127.0.0.1:1")
		r.lines[[2]int{i, other.i}], r.lines[[2]int{other.i, i}] = there, back
		there.Refuse()
		back.Refuse()
		if other.node != nil {
			there.Retarget(other.node.port.Addr().String())
			there.Restore()
		}
	}
	r.nodes = append(r.nodes, m)
	return m
}

// operator is the service of the member that leads.
func (r *rig) operator() *service { return &service{node: r.leader().node} }

// add starts a node that joins, and adds it.
func (r *rig) add(m *rigNode) {
	r.t.Helper()
	var node *Node
	started := make(chan error, 1)
	go func() {
		var err error
		node, err = m.launch(r.t.Context())
		started <- err
	}()
	m.says("the node is no member yet")
	if err := r.tryAdd(m); err != nil {
		r.t.Fatal(err)
	}
	if err := <-started; err != nil {
		r.t.Fatal(err)
	}
	m.node = node
}

// tryAdd asks the leader to add a node, again while it is not reached or the
// leader changes.
func (r *rig) tryAdd(m *rigNode) (err error) {
	r.t.Helper()
	eventually(r.t, "an answer to the addition", func() bool {
		_, err = r.operator().addMember(r.t.Context(), &holdfastv1.AddMemberRequest{Name: m.cfg.Peers.Name, PeerAddress: m.cfg.Peers.PeerAddr}, probing())
		return err == nil || classify(err).Kind != driver.Unavailable && !strings.Contains(err.Error(), "nobody answers")
	})
	return err
}

// remove removes a member, which may lead.
func (r *rig) remove(m *rigNode) {
	r.t.Helper()
	var err error
	eventually(r.t, "an answer to the removal", func() bool {
		_, err = r.operator().removeMember(r.t.Context(), &holdfastv1.RemoveMemberRequest{Name: m.cfg.Peers.Name}, probing())
		return err == nil || classify(err).Kind != driver.Unavailable
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// ended waits until a member has ended because it was removed.
func (m *rigNode) ended() {
	m.rig.t.Helper()
	select {
	case <-m.node.Done():
	case <-time.After(patience):
		m.rig.t.Fatalf("%s goes on", rigName(m.i))
	}
	if err := m.node.Err(); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "holdfast cluster add") {
		m.rig.t.Errorf("%s ended with %v", rigName(m.i), err)
	}
	m.node = nil
}

// voters waits until the members are these, all with a vote, as each sees it.
func (r *rig) voters(want string) {
	r.t.Helper()
	eventually(r.t, "the members "+want, func() bool {
		for _, m := range r.nodes {
			if m.node == nil {
				continue
			}
			got := map[byte]bool{}
			learners := 0
			m.view(func(x Reading) {
				members, _ := x.State.Members()
				for _, n := range members {
					got[n.Name[0]] = true
					if n.Learner {
						learners++
					}
				}
			})
			if len(got) != len(want) || learners > 0 {
				return false
			}
			for _, c := range []byte(want) {
				if !got[c] {
					return false
				}
			}
		}
		return true
	})
}

// load takes and releases locks at whoever leads, until it is ended; what was
// acknowledged is checked.
type load struct {
	r       *rig
	nodes   func() []*Node
	stop    chan struct{}
	workers sync.WaitGroup
	mu      sync.Mutex
	grants  map[uint64]bool
	last    uint64
	errs    []error
}

// startLoad starts workers on sessions with a short lease that is kept alive.
func (r *rig) startLoad(workers int) *load {
	all := &load{r: r, stop: make(chan struct{}), grants: map[uint64]bool{}}
	var mu sync.Mutex
	var nodes []*Node
	all.nodes = func() []*Node {
		mu.Lock()
		defer mu.Unlock()
		return nodes
	}
	r.seen = func() {
		mu.Lock()
		defer mu.Unlock()
		nodes = nil
		for _, m := range r.nodes {
			if m.node != nil {
				nodes = append(nodes, m.node)
			}
		}
	}
	r.seen()
	for w := range workers {
		all.workers.Go(func() { all.work(w) })
	}
	return all
}

// try proposes until somebody answers, under the same name.
func (l *load) try(cmd core.Command) (core.Result, bool) {
	for {
		for _, n := range l.nodes() {
			if n.Status().Role != "leader" {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			res, err := n.Do(ctx, cmd)
			cancel()
			if err == nil {
				return res, true
			}
		}
		select {
		case <-l.stop:
			return core.Result{}, false
		case <-time.After(time.Millisecond):
		}
	}
}

func (l *load) work(w int) {
	id := core.SessionID(1000 + w)
	if _, ok := l.try(core.Open{ID: id, SecretHash: sha256.Sum256([]byte{byte(w)}), TTL: 3 * time.Second, Label: "load"}); !ok {
		return
	}
	for n := uint64(1); ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		for _, node := range l.nodes() {
			node.Keepalive(id, func(p Pulse) {
				if errors.Is(p.Err, ErrSessionLost) {
					l.fail("worker %d lost its session", w)
				}
			})
		}
		res, ok := l.try(core.Acquire{Session: id, Request: core.Request{N: n}, Lock: fmt.Sprint("load/", w)})
		if !ok {
			return
		}
		if res.Status != core.Granted {
			l.fail("worker %d: acquire %d: %+v", w, n, res)
			return
		}
		l.mu.Lock()
		if l.grants[res.Grant.Number] {
			l.errs = append(l.errs, fmt.Errorf("grant %d was given twice", res.Grant.Number))
		}
		l.grants[res.Grant.Number], l.last = true, max(l.last, res.Grant.Number)
		l.mu.Unlock()
		if _, ok := l.try(core.Release{Session: id, Grant: res.Grant.Number}); !ok {
			return
		}
	}
}

func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

// end stops the workers and says what was wrong.
func (l *load) end() {
	t := l.r.t
	t.Helper()
	close(l.stop)
	l.workers.Wait()
	for _, err := range l.errs {
		t.Error(err)
	}
	if len(l.grants) < 20 {
		t.Errorf("only %d grants: there was no load", len(l.grants))
	}
	t.Logf("%d grants under load", len(l.grants))
	l.r.leader().view(func(x Reading) {
		if last := x.State.LastNumber(); last < l.last {
			t.Errorf("the last number is %d: %d was given out", last, l.last)
		}
	})
}

// kept is what must be as it was, whatever becomes of the members.
type kept struct {
	r       *rig
	grant   uint64
	waiters []core.SessionID
}

// keep takes a lock and lets three others wait for it.
func (r *rig) keep() *kept {
	k := &kept{r: r}
	k.grant = r.acquire(r.open("holder", time.Hour), 1, "kept").Number
	for _, name := range []string{"first", "second", "third"} {
		s := r.open(name, time.Hour)
		if res := r.do(core.Acquire{Session: s, Request: core.Request{N: 1}, Lock: "kept"}); res.Status != core.Waiting {
			r.t.Fatalf("%s: %+v", name, res)
		}
		k.waiters = append(k.waiters, s)
	}
	return k
}

func (k *kept) check() {
	t := k.r.t
	t.Helper()
	k.r.same()
	k.r.leader().view(func(x Reading) {
		l, ok := x.State.Lock("kept", 10)
		if !ok || l.HolderCount != 1 || l.Holders[0].Number != k.grant || len(l.Queue) != len(k.waiters) {
			t.Fatalf("the lock is %+v", l)
		}
		for i, w := range l.Queue {
			if w.Session != k.waiters[i] {
				t.Errorf("place %d has session %d, had %d", i+1, w.Session, k.waiters[i])
			}
		}
	})
}

// same compares the states of all members that are up right after one entry,
// while others are being appended.
func (r *rig) same() {
	r.t.Helper()
	var up []*rigNode
	for _, m := range r.nodes {
		if m.node != nil {
			up = append(up, m)
		}
	}
	eventually(r.t, "an entry that all come to", func() bool {
		at := r.leader().node.Status().Applied + 20
		hashes := make([]string, len(up))
		var asked sync.WaitGroup
		for i, m := range up {
			asked.Go(func() {
				ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
				defer cancel()
				if st, err := m.node.StateAt(ctx, at); err == nil {
					hashes[i] = fmt.Sprintf("%x", st.Hash())
				}
			})
		}
		for range 25 { // there may be no load
			r.do(core.Tick{})
		}
		asked.Wait()
		for i, h := range hashes {
			if h == "" {
				return false
			}
			if h != hashes[0] {
				r.t.Fatalf("at entry %d %s and %s differ", at, rigName(up[0].i), rigName(up[i].i))
			}
		}
		return true
	})
}

// TestMembersComeAndGoUnderLoad: members are added, removed, replaced, and
// hand over, while clients work.
func TestMembersComeAndGoUnderLoad(t *testing.T) {
	r := newCluster(t, 3, func(c *NodeConfig) { c.SnapshotEntries, c.hooks.trailing = 200, 20 })
	k, l := r.keep(), r.startLoad(3)
	d := r.joiner()
	r.add(d)
	r.seen()
	r.voters("abcd")
	k.check()

	eventually(t, "leadership is handed over", func() bool {
		_, err := r.operator().transfer(t.Context(), &holdfastv1.TransferLeadershipRequest{Name: "d"}, probing())
		if err != nil && classify(err).Kind != driver.Unavailable && !errors.Is(err, ErrNoTransfer) {
			t.Fatal(err)
		}
		return err == nil
	})
	eventually(t, "d leads", func() bool { return r.leader() == d })
	out := r.other(d)
	r.remove(out)
	out.ended()
	r.seen()
	k.check()

	e := r.joiner() // in its place
	r.add(e)
	r.seen()
	r.voters("abcde"[:out.i] + "abcde"[out.i+1:])
	lead := r.leader()
	r.remove(lead) // hands over first
	lead.ended()
	r.seen()
	k.check()
	l.end()
	r.equal()

	// The rest bear the loss of one.
	r.other(r.leader()).stop()
	r.acquire(r.open("late", time.Hour), 1, "late")
}
