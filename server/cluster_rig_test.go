package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/driver/drivertest"
	"holdfast/server/core"
	"holdfast/server/peer"
)

// clusterTick makes elections quick, and yet longer than what a busy machine
// keeps a goroutine waiting.
const clusterTick = 25 * time.Millisecond

// rig is a cluster in one process. Each ordered pair of members has a line of
// its own that can be cut.
type rig struct {
	t     *testing.T
	nodes []*rigNode
	lines map[[2]int]*drivertest.Proxy // from, to
	seen  func()                       // tells the load which nodes there are
}

// rigNode is one member of a rig.
type rigNode struct {
	rig  *rig
	i    int
	cfg  NodeConfig
	disk *faultyStorage
	log  *logBuffer
	node *Node // nil: down
}

// dial goes by the line to a member, or straight to the node itself.
func (m *rigNode) dial(ctx context.Context, addr string) (net.Conn, error) {
	to := int(addr[0] - 'a')
	if to == m.i {
		return new(net.Dialer).DialContext(ctx, "tcp", m.node.port.Addr().String())
	}
	return new(net.Dialer).DialContext(ctx, "tcp", m.rig.lines[[2]int{m.i, to}].Addr())
}

func rigName(i int) string { return string(rune('a' + i)) }

// newClusterRig makes n members; none is started.
func newClusterRig(t *testing.T, n int, change ...func(*NodeConfig)) *rig {
	t.Helper()
	r := &rig{t: t, lines: map[[2]int]*drivertest.Proxy{}}
	var list []peer.Founder
	for i := range n {
		list = append(list, peer.Founder{Name: rigName(i), Addr: rigName(i) + ".test:7434"})
	}
	for i := range n {
		m := &rigNode{rig: r, i: i, disk: &faultyStorage{}, log: &logBuffer{}}
		m.cfg = NodeConfig{
			Dir: filepath.Join(t.TempDir(), "data"), Tick: clusterTick,
			Logger: slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			OnHang: func(reason string) { t.Errorf("%s: %s", rigName(i), reason) },
			Peers:  PeerConfig{Name: rigName(i), ClientAddr: rigName(i) + ".test:7433", PeerAddr: list[i].Addr, Founders: list},
		}
		faulty(m.disk)(&m.cfg)
		m.cfg.hooks.dial = m.dial
		for _, c := range change {
			c(&m.cfg)
		}
		r.nodes = append(r.nodes, m)
		for j := range n {
			if j != i {
				line := drivertest.NewProxy(t, "127.0.0.1:1")
				line.Refuse()
				r.lines[[2]int{i, j}] = line
			}
		}
	}
	t.Cleanup(func() {
		r.heal()
		for _, m := range r.nodes {
			m.stop()
		}
		if t.Failed() {
			for _, m := range r.nodes {
				t.Logf("log of %s:\n%s", rigName(m.i), m.log)
			}
		}
	})
	return r
}

// newCluster is a rig of n members that was founded and leads.
func newCluster(t *testing.T, n int, change ...func(*NodeConfig)) *rig {
	t.Helper()
	r := newClusterRig(t, n, change...)
	r.start(r.nodes...)
	r.leader()
	return r
}

// start starts members at the same time and waits until they run.
func (r *rig) start(members ...*rigNode) {
	r.t.Helper()
	failed := make(chan error, len(members))
	for _, m := range members {
		go func() { failed <- m.start(r.t.Context()) }()
	}
	for range members {
		if err := <-failed; err != nil {
			r.t.Fatal(err)
		}
	}
}

func (m *rigNode) start(ctx context.Context) (err error) {
	m.node, err = m.launch(ctx)
	return err
}

// launch is start for a goroutine of its own: it does not touch m.node.
func (m *rigNode) launch(ctx context.Context) (*Node, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	for pair, line := range m.rig.lines {
		if pair[1] == m.i {
			line.Retarget(l.Addr().String())
			line.Restore()
		}
	}
	cfg := m.cfg
	cfg.Peers.Listener = l
	node, err := StartNode(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rigName(m.i), err)
	}
	return node, nil
}

func (m *rigNode) stop() {
	if m.node == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.node.Stop(ctx); err != nil && !errors.Is(err, ErrPoisoned) {
		m.rig.t.Errorf("stopping %s: %v", rigName(m.i), err)
	}
	m.node = nil
}

// cut cuts the line from one member to another, in this direction.
func (r *rig) cut(from, to int) { r.lines[[2]int{from, to}].Cut() }

// isolate cuts all lines of a member.
func (r *rig) isolate(i int) {
	for pair, line := range r.lines {
		if pair[0] == i || pair[1] == i {
			line.Cut()
		}
	}
}

// heal ends every cut; lines that stood still are dialled anew.
func (r *rig) heal() {
	for _, line := range r.lines {
		line.Restore()
	}
}

// probing is an operator's call of a test's own.
func probing() *operation { return &operation{call: "test", by: "test"} }

// leader waits until one member leads and those that are up and reached by it
// know.
func (r *rig) leader() *rigNode {
	r.t.Helper()
	return r.leaderAmong(r.nodes...)
}

func (r *rig) leaderAmong(members ...*rigNode) *rigNode {
	r.t.Helper()
	var leader *rigNode
	eventually(r.t, "one leader", func() bool {
		leader = nil
		var id, term uint64
		for _, m := range members {
			if m.node == nil {
				continue
			}
			s := m.node.Status()
			if s.LeaderID == 0 || id != 0 && (s.LeaderID != id || s.Term != term) {
				return false
			}
			id, term = s.LeaderID, s.Term
			if s.NodeID == id && s.Role == "leader" && s.Ready {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

// other returns a member that is up and is none of these.
func (r *rig) other(but ...*rigNode) *rigNode {
next:
	for _, m := range r.nodes {
		for _, b := range but {
			if m == b {
				continue next
			}
		}
		if m.node != nil {
			return m
		}
	}
	r.t.Fatal("no other member is up")
	return nil
}

// do proposes a command at the leader, under the same name again while nobody
// can say what came of it.
func (r *rig) do(cmd core.Command) core.Result {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var err error = errors.New("no leader")
		for _, m := range r.nodes {
			if m.node == nil || m.node.Status().Role != "leader" {
				continue
			}
			ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
			var res core.Result
			res, err = m.node.Do(ctx, cmd)
			cancel()
			if err == nil {
				return res
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%T: %v", cmd, err)
		}
		r.leader()
	}
}

func (r *rig) open(name string, ttl time.Duration) core.SessionID {
	r.t.Helper()
	id := core.SessionID(sha256.Sum256([]byte(name))[0]) + 1
	res := r.do(core.Open{ID: id, SecretHash: sha256.Sum256([]byte(name)), TTL: ttl, Label: name})
	if res.Status != core.Done {
		r.t.Fatalf("open %s: %+v", name, res)
	}
	return res.Session
}

func (r *rig) acquire(s core.SessionID, n uint64, lock string) *core.Grant {
	r.t.Helper()
	res := r.do(core.Acquire{Session: s, Request: core.Request{N: n}, Lock: lock})
	if res.Status != core.Granted {
		r.t.Fatalf("acquire %s: %+v %+v", lock, res, res.Refusal)
	}
	return res.Grant
}

// view is what a member's state says.
func (m *rigNode) view(fn func(Reading)) {
	m.rig.t.Helper()
	ctx, cancel := context.WithTimeout(m.rig.t.Context(), patience)
	defer cancel()
	if err := m.node.View(ctx, true, fn); err != nil {
		m.rig.t.Fatalf("%s: %v", rigName(m.i), err)
	}
}

// equal waits until all members that are up have applied the same entry, and
// compares their states (invariant 8).
func (r *rig) equal() {
	r.t.Helper()
	r.do(core.Tick{})
	type version struct {
		index uint64
		hash  [32]byte
	}
	eventually(r.t, "equal states", func() bool {
		seen := map[uint64][32]byte{}
		for _, m := range r.nodes {
			if m.node == nil {
				continue
			}
			var v version
			m.view(func(x Reading) { v = version{x.State.Index(), x.State.Hash()} })
			if old, ok := seen[v.index]; ok && old != v.hash {
				r.t.Fatalf("two states at entry %d", v.index)
			}
			seen[v.index] = v.hash
		}
		return len(seen) == 1
	})
}

// says waits until a member's log has a text.
func (m *rigNode) says(text string) {
	m.rig.t.Helper()
	eventually(m.rig.t, fmt.Sprintf("%s logs %q", rigName(m.i), text), func() bool { return strings.Contains(m.log.String(), text) })
}
