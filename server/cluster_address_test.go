package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// moves lets members of a rig move: an address that was left is dead.
type moves struct {
	mu   sync.Mutex
	left map[string]bool
}

func (m *moves) watch(c *NodeConfig) {
	dial := c.hooks.dial
	c.hooks.dial = func(ctx context.Context, addr string) (net.Conn, error) {
		m.mu.Lock()
		gone := m.left[addr]
		m.mu.Unlock()
		if gone {
			return nil, fmt.Errorf("dial %s: nobody is there any more", addr)
		}
		return dial(ctx, addr)
	}
}

// move starts a member that is down with other addresses.
func (m *moves) move(n *rigNode, client, peer string) {
	m.mu.Lock()
	if peer != n.cfg.Peers.PeerAddr {
		m.left[n.cfg.Peers.PeerAddr] = true
	}
	m.mu.Unlock()
	n.cfg.Peers.ClientAddr, n.cfg.Peers.PeerAddr = client, peer
	n.rig.start(n)
}

// knownAt waits until every member that is up knows a member's addresses.
func (r *rig) knownAt(n *rigNode) {
	r.t.Helper()
	for _, m := range r.nodes {
		eventually(r.t, fmt.Sprintf("%s knows the addresses of %s", rigName(m.i), rigName(n.i)), func() (ok bool) {
			m.view(func(x Reading) {
				members, _ := x.State.Members()
				for _, k := range members {
					ok = ok || k.Name == n.cfg.Peers.Name && k.ClientAddr == n.cfg.Peers.ClientAddr && k.PeerAddr == n.cfg.Peers.PeerAddr
				}
			})
			return ok
		})
	}
}

// TestMemberThatMoved: a follower comes back with other addresses, at first for
// clients, then for members too, where nobody could find it. The others learn
// it though it never leads, and it keeps its place. Then the leader moves.
func TestMemberThatMoved(t *testing.T) {
	m := &moves{left: map[string]bool{}}
	r := newCluster(t, 3, m.watch)
	s := r.open("holder", time.Hour)
	g := r.acquire(s, 1, "l")
	lead := r.leader()
	term := lead.node.Status().Term
	f := r.other(lead)

	f.stop()
	m.move(f, rigName(f.i)+"2.test:1", f.cfg.Peers.PeerAddr)
	r.knownAt(f)
	f.stop()
	m.move(f, rigName(f.i)+"3.test:1", rigName(f.i)+"3.test:2")
	r.knownAt(f)
	f.stop() // what it knows now it knows from the log
	r.start(f)
	r.knownAt(f)
	if st := r.leader().node.Status(); st.Term != term {
		t.Errorf("term %d, was %d: somebody had to be elected", st.Term, term)
	}
	r.equal()

	lead.stop()
	m.move(lead, rigName(lead.i)+"4.test:1", rigName(lead.i)+"4.test:2")
	r.knownAt(lead)
	r.equal()
	if again := r.acquire(s, 1, "l"); again.Number != g.Number {
		t.Errorf("the grant is %d, was %d", again.Number, g.Number)
	}
}

// An address that is another member's is not taken, and the log says so once.
func TestMemberThatMovedToAnothersAddress(t *testing.T) {
	r := newCluster(t, 3)
	lead := r.leader()
	f := r.other(lead)
	f.stop()
	was := f.cfg.Peers.PeerAddr
	f.cfg.Peers.PeerAddr = lead.cfg.Peers.PeerAddr
	r.start(f)
	lead.says("the addresses of a member are not put right yet")
	r.equal()
	f.stop()
	f.cfg.Peers.PeerAddr = was
	r.start(f)
	r.knownAt(f)
}
