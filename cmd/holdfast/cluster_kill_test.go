package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
)

// freeAddress is an address on which nobody listens, outside of the ports that
// the kernel gives to connections.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// fleet is the nodes of one cluster, each a real process.
type fleet struct {
	t       *testing.T
	nodes   []*fleetNode
	clients []*cluster.Client // by client
}

type fleetNode struct {
	*program // nil: down
	args     []string
	addr     string
	paused   bool // by SIGSTOP
}

// newFleet founds a cluster of n nodes.
func newFleet(t *testing.T, n int, flags ...string) *fleet {
	t.Helper()
	p := &fleet{t: t}
	var list, peers []string
	for i := range n {
		peers = append(peers, freeAddress(t))
		list = append(list, fmt.Sprintf("n%d=%s", i+1, peers[i]))
	}
	for i := range n {
		addr := freeAddress(t)
		p.nodes = append(p.nodes, &fleetNode{addr: addr, args: append([]string{
			"serve", "--name", fmt.Sprint("n", i+1), "--data", filepath.Join(t.TempDir(), "data"), "--listen", addr,
			"--peer-listen", peers[i], "--initial-cluster", strings.Join(list, ","),
		}, flags...)})
	}
	p.start(p.nodes...)
	return p
}

// start starts nodes at the same time and waits until each is ready.
func (p *fleet) start(nodes ...*fleetNode) {
	p.t.Helper()
	for _, n := range nodes {
		n.program = newProgram(p.t, nil, n.args...)
		n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		n.program.start()
	}
	for _, n := range nodes {
		eventually(p.t, "a node that is ready", func() bool {
			if n.ended() {
				p.t.Fatalf("%v ended: %s", n.args, n.stderr)
			}
			st, ok := n.status(false)
			return ok && st.Ready
		})
	}
}

// kill kills nodes with SIGKILL.
func (p *fleet) kill(nodes ...*fleetNode) {
	for _, n := range nodes {
		kill(n.cmd.Process.Pid, unix.SIGKILL)
	}
	for _, n := range nodes {
		n.wait()
		n.program = nil
	}
}

// nodeStatus is what a node says of itself.
type nodeStatus struct {
	Role, NodeID, LeaderID, AppliedIndex, StateHash, Term string
	Ready                                                 bool
}

func (n *fleetNode) status(hash bool) (st nodeStatus, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.addr+"/holdfast.v1.LockService/GetStatus",
		bytes.NewReader(fmt.Appendf(nil, `{"withHash":%v}`, hash)))
	if err != nil {
		return st, false
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, false
	}
	defer res.Body.Close()
	return st, res.StatusCode == http.StatusOK && json.NewDecoder(res.Body).Decode(&st) == nil
}

// leader waits until a node leads.
func (p *fleet) leader() *fleetNode {
	p.t.Helper()
	var lead *fleetNode
	eventually(p.t, "a leader", func() bool {
		for _, n := range p.nodes {
			if n.program == nil {
				continue
			}
			if st, ok := n.status(false); ok && st.Role == "leader" && st.Ready {
				lead = n
				return true
			}
		}
		return false
	})
	return lead
}

// equal waits until all nodes have applied the same entry, and compares their
// states. Nothing may be written meanwhile.
func (p *fleet) equal() {
	p.t.Helper()
	eventually(p.t, "equal states", func() bool {
		seen := map[string]string{}
		for _, n := range p.nodes {
			st, ok := n.status(true)
			if !ok {
				return false
			}
			if old, ok := seen[st.AppliedIndex]; ok && old != st.StateHash {
				p.t.Fatalf("two states at entry %s: %s and %s", st.AppliedIndex, old, st.StateHash)
			}
			seen[st.AppliedIndex] = st.StateHash
		}
		return len(seen) == 1
	})
}

func (p *fleet) addresses() string {
	var all []string
	for _, n := range p.nodes {
		all = append(all, n.addr)
	}
	return strings.Join(all, ",")
}

// Kill -9 of the leader under load, then of all nodes: no acknowledged grant is
// lost, tokens only rise, what was held and who waited is as before, no
// session of a living client ends, and all nodes have the same state.
//
// It is not parallel: its load would be one for the tests that measure times.
func TestLeaderKilledUnderLoad(t *testing.T) {
	p := newFleet(t, 3, "--log-level", "warn", "--snapshot-every", "100")
	defer p.hangUp()
	h := p.hold([]string{serverVariable + "=" + p.addresses()})
	kills := 3
	if os.Getenv(soakVariable) != "" {
		kills = 40
	}
	for round := range kills {
		if round == kills-1 {
			p.kill(p.nodes...)
			p.start(p.nodes...)
			h.check("all killed")
			break
		}
		dead := p.leader()
		p.kill(dead)
		h.check(fmt.Sprintf("round %d: with two of three", round))
		p.start(dead)
		h.check(fmt.Sprintf("round %d: with all three", round))
	}
	h.release()
}
