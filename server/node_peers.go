package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/replica"
)

// PeerConfig says how a node talks to the other members of its cluster. The
// zero value is for a node that is alone.
type PeerConfig struct {
	// Listener is the port for members; nil: none. The node closes it.
	Listener net.Listener
	// Name is the node's name in its cluster, 1–64 of a–z, 0–9 and "-".
	Name string
	// ClientAddr and PeerAddr are where clients and members reach it.
	ClientAddr, PeerAddr string
	// Founders is the list that a new cluster is founded from, the node itself
	// among it. It is of no effect on a node that is a member already.
	Founders []peer.Founder
	// Join are addresses of members of a cluster that runs, to which a new
	// node is to be added: it waits until it is. It excludes Founders.
	Join []string
	// ListenTLS, DialTLS and Verify are as in [peer.Config].
	ListenTLS, DialTLS func() *tls.Config
	Verify             func(state tls.ConnectionState, name string) error
	// Waits, if set, is told what the start waits for.
	Waits func(reason string)
}

// The bounds of what other members sent and the loop has not looked at yet.
// What exceeds them is dropped: raft sends what matters again.
const (
	maxPeerMessages = 8192
	maxPeerBytes    = 64 << 20
)

// peerBox holds what came from other members since the loop last looked.
type peerBox struct {
	wake func()

	mu struct {
		sync.Mutex
		messages    []replica.Message
		bytes       int
		unreachable map[uint64]bool
		snapshots   []snapshotEnd
		refused     map[uint64]*peer.Refusal
		told        map[uint64]peer.Facts
	}
}

// snapshotEnd is the end of a snapshot's transfer to a member.
type snapshotEnd struct {
	to uint64
	ok bool
}

func (b *peerBox) receive(m peer.Message) {
	size := 64
	for _, e := range m.Raft.GetEntries() {
		size += len(e.GetData())
	}
	b.mu.Lock()
	taken := len(b.mu.messages) < maxPeerMessages && b.mu.bytes+size <= maxPeerBytes
	if taken {
		b.mu.messages = append(b.mu.messages, replica.Message{Group: m.Group, Message: m.Raft})
		b.mu.bytes += size
	}
	b.mu.Unlock()
	if taken {
		b.wake()
	}
}

func (b *peerBox) unreachable(id uint64) {
	b.mu.Lock()
	if b.mu.unreachable == nil {
		b.mu.unreachable = map[uint64]bool{}
	}
	b.mu.unreachable[id] = true
	b.mu.Unlock()
	b.wake()
}

func (b *peerBox) snapshotSent(id uint64, ok bool) {
	b.mu.Lock()
	b.mu.snapshots = append(b.mu.snapshots, snapshotEnd{id, ok})
	b.mu.Unlock()
	b.wake()
}

func (b *peerBox) refused(id uint64, why *peer.Refusal) {
	b.mu.Lock()
	if b.mu.refused == nil {
		b.mu.refused = map[uint64]*peer.Refusal{}
	}
	b.mu.refused[id] = why
	b.mu.Unlock()
	b.wake()
}

// peering is what the loop knows of the other members.
type peering struct {
	port    *peer.Port // nil: the node is alone
	members map[uint64]core.Member
	// handed is when leadership was last handed over; 0: never.
	handed time.Duration
	// received is the index of the newest snapshot that came from a peer.
	received uint64
	// told is the leader that clients were last sent to.
	told uint64
}

// openPort starts the port for members, on which until the node is a member
// only questions are answered.
func openPort(cfg NodeConfig, answer func(peer.Question) peer.Answer) *peer.Port {
	if cfg.Peers.Listener == nil {
		return nil
	}
	c := cfg.Peers.dialing()
	c.Listener, c.Answer = cfg.Peers.Listener, answer
	c.Dir = filepath.Join(cfg.Dir, "incoming")
	c.Election, c.Logger = electionTicks*cfg.Tick, cfg.Logger
	c.ListenTLS = cfg.Peers.ListenTLS
	if cfg.hooks.dial != nil {
		c.Dial = cfg.hooks.dial
	}
	return peer.New(c)
}

// dialing is what is needed to dial other members.
func (c PeerConfig) dialing() peer.Config {
	return peer.Config{DialTLS: c.DialTLS, Verify: c.Verify}
}

// join starts the lines to the other members.
func (l *loop) join(incarnation, group uint64, name string) {
	if l.net.port == nil {
		l.refreshMembers()
		return
	}
	status := &l.n.status
	l.members.supports = l.net.port.Supports
	l.net.port.Join(peer.Self{
		Incarnation: incarnation, ID: l.id, Group: group, Name: name, Supports: l.supports(),
		Version: func() uint32 { return status.Load().Version },
	}, peer.Events{
		Receive: l.n.box.receive, Unreachable: l.n.box.unreachable,
		SnapshotSent: l.n.box.snapshotSent, Refused: l.n.box.refused, Told: l.n.box.told,
	})
	l.refreshMembers()
}

// refreshMembers follows the list of members in the state.
func (l *loop) refreshMembers() {
	members, removed := l.m.State().Members()
	l.net.members = map[uint64]core.Member{}
	var list []peer.Member
	for _, m := range members {
		l.net.members[m.ID] = m
		list = append(list, peer.Member{ID: m.ID, Name: m.Name, Addr: m.PeerAddr})
	}
	l.n.identity.setMembers(members, removed)
	if l.net.port != nil {
		l.net.port.SetMembers(list, removed)
	}
}

// Send implements replica.Effects. A silent node sends nothing (D2).
func (l *loop) Send(m replica.Message) {
	if l.net.port != nil && !l.health.silent {
		l.net.port.Send(peer.Message{Group: m.Group, Raft: m.Message})
		return
	}
	if m.GetType() == raftpb.MsgSnap {
		l.n.box.snapshotSent(m.GetTo(), false)
	}
}

// takePeers looks at everything that came from other members.
func (l *loop) takePeers() {
	b := &l.n.box
	b.mu.Lock()
	messages, unreachable, snapshots, refused, told := b.mu.messages, b.mu.unreachable, b.mu.snapshots, b.mu.refused, b.mu.told
	b.mu.messages, b.mu.bytes, b.mu.unreachable, b.mu.snapshots, b.mu.refused, b.mu.told = nil, 0, nil, nil, nil, nil
	b.mu.Unlock()
	for _, m := range messages {
		l.n.beat.Add(1)
		l.step(m)
	}
	for _, id := range slices.Sorted(maps.Keys(unreachable)) {
		l.m.Unreachable(id)
	}
	for _, s := range snapshots {
		l.m.SnapshotSent(s.to, s.ok)
	}
	l.takeAddresses(told)
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		if errors.Is(refused[id], peer.ErrRemoved) {
			l.wasRemoved(fmt.Sprintf("%s says so", l.named(id)))
			continue
		}
		l.log.Debug("a member refuses this node", "member", l.named(id), "reason", refused[id])
	}
}

// step hands one message to raft, unless this node must not hear it now.
func (l *loop) step(m replica.Message) {
	switch t := m.GetType(); {
	case t == raftpb.MsgTimeoutNow && (l.health.silent || l.health.stopping || l.health.low || l.leaving):
		return // it would stand for election at once, and must not lead
	case t == raftpb.MsgApp && len(m.GetEntries()) > 0 && l.health.starved() && !l.leading:
		return // as a follower it lets its log not grow (D3)
	case t == raftpb.MsgSnap && l.health.starved():
		return // it came when the port still took snapshots
	}
	if role := l.m.Role(); m.GetFrom() == role.Leader && role.Leader != 0 {
		l.heardAt = l.n.now()
	}
	l.m.Step(m)
}

// named is a member as logs show it.
func (l *loop) named(id uint64) string {
	if m, ok := l.net.members[id]; ok && m.Name != "" {
		return m.Name
	}
	return fmt.Sprintf("%016x", id)
}

// others reports whether somebody else could lead.
func (l *loop) others() bool { return l.net.port != nil && !l.m.Alone() }

// handOver moves leadership to the most caught-up member that is reached and
// fit to lead. It reports whether that was begun, by this call or lately.
func (l *loop) handOver(why string) bool {
	if !l.m.Role().Elected || !l.others() {
		return false
	}
	now := l.n.now()
	if l.net.handed != 0 && now-l.net.handed < electionTicks*l.n.cfg.Tick {
		return true
	}
	progress := l.m.Progress()
	var able []core.Member
	for id, m := range l.net.members { // sorted below
		if id != l.id && !m.Learner && progress[id].Active && l.net.port.Fit(id) {
			able = append(able, m)
		}
	}
	if len(able) == 0 {
		return false
	}
	best := slices.MaxFunc(able, func(a, b core.Member) int {
		return cmp.Or(cmp.Compare(progress[a.ID].Match, progress[b.ID].Match), cmp.Compare(b.ID, a.ID))
	})
	l.net.handed = now
	l.log.Info("leadership is handed over", "to", replica.Called(best), "reason", why)
	l.m.TransferTo(best.ID)
	l.moved = true
	return true
}

// sendAway tells those who serve connections when another node leads, so that
// clients who wait for something here go there.
func (l *loop) sendAway(r replica.Role) {
	if r.Leader == l.net.told {
		return
	}
	l.net.told = r.Leader
	if r.Leader == 0 || r.Leader == l.id {
		return
	}
	away := &NotLeaderError{Leader: r.Leader, Addr: l.net.members[r.Leader].ClientAddr, Term: r.Term}
	l.n.drains.Lock()
	fns := slices.Clone(l.n.drains.away)
	l.n.drains.Unlock()
	for _, fn := range fns {
		go fn(away)
	}
}

// OnAway registers who is told, on a goroutine of its own, each time this node
// learns that another one leads.
func (n *Node) OnAway(fn func(*NotLeaderError)) {
	n.drains.Lock()
	defer n.drains.Unlock()
	n.drains.away = append(n.drains.away, fn)
}

// away says who leads, if that is another member that clients can go to.
func (n *Node) away() error {
	s := n.status.Load()
	if s.LeaderAddr == "" || s.LeaderID == s.NodeID {
		return nil
	}
	return &NotLeaderError{Leader: s.LeaderID, Addr: s.LeaderAddr, Term: s.Term}
}

// stepAside hands leadership over, if this node leads and another one can, and
// waits until it is done, but not for long: it stops.
func (n *Node) stepAside(ctx context.Context) {
	limit := 2 * electionTicks * n.cfg.Tick
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun, err := question(ctx, n, true, func(l *loop, done func(bool, error)) {
		l.leaving = true
		done(l.handOver("this node stops"), nil)
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for err == nil && begun && n.status.Load().Role == "leader" {
		select {
		case <-tick.C:
		case <-n.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// PeerStats counts what the port for members did; the zero value without one.
func (n *Node) PeerStats() peer.Stats {
	if n.port == nil {
		return peer.Stats{}
	}
	return n.port.Stats()
}

// changesMembers reports whether an entry changes the list of members.
func changesMembers(cmds []core.Command) bool {
	for _, c := range cmds {
		if _, ok := c.(core.Members); ok {
			return true
		}
	}
	return false
}

// handing reports whether leadership is being handed over: raft takes no
// proposals then, and what waits has its answer when that is decided.
func (l *loop) handing(now time.Duration) bool {
	return l.net.handed != 0 && now-l.net.handed < electionTicks*l.n.cfg.Tick
}

// ownName is this node's name in its cluster.
func (l *loop) ownName(members []core.Member) string {
	for _, m := range members {
		if m.ID == l.id && m.Name != "" {
			return m.Name
		}
	}
	return l.n.cfg.Peers.Name
}

// checkMember refuses a configuration that cannot be that of the member whose
// data the directory holds.
func checkMember(cfg NodeConfig, id uint64, members []core.Member) error {
	otherList(cfg, members)
	for _, m := range members {
		if m.ID != id {
			continue
		}
		if p := cfg.Peers; p.Name != "" && m.Name != "" && p.Name != m.Name {
			return fmt.Errorf("%s holds the data of member %s, and this node is to be %s: give it its own directory or its own name", cfg.Dir, m.Name, p.Name)
		}
		for _, a := range []struct{ what, is, was string }{{"clients", cfg.Peers.ClientAddr, m.ClientAddr}, {"members", cfg.Peers.PeerAddr, m.PeerAddr}} {
			if a.is != "" && a.was != "" && a.is != a.was {
				cfg.Logger.Warn("the cluster knows this node by another address, and is told the new one", "for", a.what, "cluster", a.was, "now", a.is)
			}
		}
	}
	if len(members) > 1 && cfg.Peers.Listener == nil {
		return fmt.Errorf("%s holds the data of a member of a cluster of %d: it needs its port for members (--peer-listen)", cfg.Dir, len(members))
	}
	return nil
}

// otherList says that the list to found a cluster from is not that of the
// members whose cluster the directory's data are of, and is of no effect. Of a
// service that is alone that is most likely not what was meant.
func otherList(cfg NodeConfig, members []core.Member) {
	list := cfg.Peers.Founders
	same := len(list) == len(members)
	for _, f := range list {
		same = same && slices.ContainsFunc(members, func(m core.Member) bool { return m.Name == f.Name || m.Name == "" })
	}
	switch {
	case len(list) == 0 || same:
	case len(members) == 1:
		cfg.Logger.Warn("this node runs ALONE: its data are those of a service of one, and a list of founders changes nothing about that; to make it a cluster, start the other nodes with --join and empty directories, and run 'holdfast cluster add NAME --peer HOST:PORT' for each; to found a new one, give all an empty directory",
			"dir", cfg.Dir, "initial_cluster", founders(list))
	default:
		cfg.Logger.Info("the list of founders differs from the members and is of no effect", "initial_cluster", founders(list), "members", len(members))
	}
}
