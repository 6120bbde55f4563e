package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"holdfast/engine/cluster"
	"holdfast/lab/stage"
)

// drillPatience bounds each thing that the drill waits for at its cluster: that
// it is founded, that it elects, that a node catches up.
const drillPatience = 60 * time.Second

// A drillCluster is the nodes that the drill is played on, each a process. It
// tells nothing by itself.
type drillCluster struct {
	nodes []*drillNode
	start func(*drillNode) error // ended with the drill
}

// A drillNode is one of them; its process is nil while it is dead.
type drillNode struct {
	name, addr string
	command    []string
	*stage.Node
}

// foundCluster starts n nodes with their data below dir, and waits until they
// are a cluster. Somebody may take a port that was free a moment ago.
func foundCluster(ctx context.Context, n int, dir string) (c *drillCluster, err error) {
	for try := range 3 {
		c, err = foundOnce(ctx, n, filepath.Join(dir, fmt.Sprint("nodes-", try)))
		if err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			break
		}
	}
	return c, err
}

func foundOnce(ctx context.Context, n int, dir string) (*drillCluster, error) {
	serve, err := ownCommand("serve")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	env := os.Environ()
	// The settings of somebody's server are not those of these nodes; an empty
	// variable counts as not set.
	serveCmd().Flags().VisitAll(func(f *pflag.Flag) { env = append(env, environmentName(f.Name)+"=") })
	c := &drillCluster{start: func(node *drillNode) (err error) {
		node.Node, err = stage.StartNode(ctx, node.name, node.command, env)
		return err
	}}
	var founders []string
	for i := range n {
		founders = append(founders, fmt.Sprintf("n%d=%s", i+1, ports[n+i]))
	}
	for i := range n {
		name := fmt.Sprint("n", i+1)
		c.nodes = append(c.nodes, &drillNode{name: name, addr: ports[i], command: append(serve[:len(serve):len(serve)],
			"--name", name, "--data", filepath.Join(dir, name), "--listen", ports[i], "--peer-listen", ports[n+i],
			"--initial-cluster", strings.Join(founders, ","), "--log-level", "error")})
	}
	for _, node := range c.nodes {
		if err == nil {
			err = c.start(node)
		}
	}
	for _, node := range c.nodes {
		if err == nil {
			_, err = c.caughtUp(ctx, node, 0)
		}
	}
	if err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// freePorts are addresses on which nobody listens, outside of the ports that
// kernels give to connections: a node that was dead must find its own again.
func freePorts(n int) (addrs []string, err error) {
	for range 100 * n {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		l, failed := net.Listen("tcp", addr)
		if failed != nil {
			err = failed
			continue
		}
		defer l.Close()
		if addrs = append(addrs, addr); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("no free ports: %w", err)
}

// kill ends all nodes.
func (c *drillCluster) kill() {
	for _, node := range c.nodes {
		if node.Node != nil {
			node.Kill()
		}
	}
}

// endpoints are the addresses of all nodes, for clients.
func (c *drillCluster) endpoints() string {
	var all []string
	for _, node := range c.nodes {
		all = append(all, node.addr)
	}
	return strings.Join(all, ",")
}

// ask asks one node for what it says of the cluster, by itself.
func (node *drillNode) ask(ctx context.Context, o cluster.ClusterStatusOptions) (*cluster.ClusterStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := cluster.Dial(ctx, node.addr, &cluster.Options{Label: "holdfast drill", OpenTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer closeClient(client)
	st, err := client.ClusterStatus(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, m := range st.Members {
		if m.ID == st.NodeID && m.Name != node.name {
			return nil, fmt.Errorf("asked %s, and %s answered", node.name, m.Name) // the client was sent on to the leader
		}
	}
	return st, nil
}

// until asks again and again, until ok; nodes that end meanwhile end it.
func (c *drillCluster) until(ctx context.Context, what string, ok func(ctx context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drillPatience, fmt.Errorf("%s did not come to be within %v", what, drillPatience))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		for _, node := range c.nodes {
			if node.Node != nil && node.Ended() != nil {
				return node.Ended()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// leader waits until a living node leads in a term above one, and is ready.
func (c *drillCluster) leader(ctx context.Context, above uint64) (lead *drillNode, term uint64, err error) {
	err = c.until(ctx, "a leader", func(ctx context.Context) bool {
		for _, node := range c.nodes {
			if node.Node == nil {
				continue
			}
			if st, err := node.ask(ctx, cluster.ClusterStatusOptions{}); err == nil && st.LeaderID == st.NodeID && st.Ready && st.Term > above {
				lead, term = node, st.Term
				return true
			}
		}
		return false
	})
	return lead, term, err
}

// caughtUp waits until a node is ready and has applied the log up to an entry,
// and returns how far it has come.
func (c *drillCluster) caughtUp(ctx context.Context, node *drillNode, entry uint64) (applied uint64, err error) {
	err = c.until(ctx, "node "+node.name+" with the whole log", func(ctx context.Context) bool {
		st, err := node.ask(ctx, cluster.ClusterStatusOptions{})
		if err != nil || !st.Ready || st.Applied < entry {
			return false
		}
		applied = st.Applied
		return true
	})
	return applied, err
}

// states asks all nodes for the hash of their state as of one entry of the log.
func (c *drillCluster) states(ctx context.Context) (hashes []string, entry uint64, err error) {
	err = c.until(ctx, "the states of all nodes as of one entry", func(ctx context.Context) bool {
		entry, hashes = 0, nil
		for _, node := range c.nodes {
			st, err := node.ask(ctx, cluster.ClusterStatusOptions{})
			if err != nil {
				return false
			}
			entry = max(entry, st.Applied)
		}
		for _, node := range c.nodes {
			st, err := node.ask(ctx, cluster.ClusterStatusOptions{WithHash: true, HashIndex: entry})
			if err != nil {
				return false // it is past that entry already
			}
			hashes = append(hashes, st.StateHash)
		}
		return true
	})
	return hashes, entry, err
}

// names lists the nodes for people: n1, n2 and n3.
func (c *drillCluster) names() string {
	var all []string
	for _, node := range c.nodes {
		all = append(all, node.name)
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " and " + all[last]
}

// commit is how far the log of the cluster is known to be common.
func (c *drillCluster) commit(ctx context.Context) (uint64, error) {
	lead, _, err := c.leader(ctx, 0)
	if err != nil {
		return 0, err
	}
	st, err := lead.ask(ctx, cluster.ClusterStatusOptions{})
	if err != nil {
		return 0, err
	}
	return st.Commit, nil
}

// giveTo hands leadership over to a node, however often somebody else takes it
// meanwhile.
func (c *drillCluster) giveTo(ctx context.Context, client *cluster.Client, node *drillNode) (term uint64, err error) {
	err = c.until(ctx, "node "+node.name+" as the leader", func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if _, err := client.TransferLeadership(ctx, node.name, 0, "holdfast drill"); err != nil {
			return false
		}
		st, err := node.ask(ctx, cluster.ClusterStatusOptions{})
		if err != nil || st.LeaderID != st.NodeID || !st.Ready {
			return false
		}
		term = st.Term
		return true
	})
	return term, err
}
