package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/replica"
	"holdfast/server/store"
)

// ErrHasData is wrapped by the error of a node that was to join a cluster with
// a data directory that is not empty.
var ErrHasData = errors.New("cannot join a cluster: the data directory is in use")

// joinedFile is where a node that joined keeps the members that it knew then:
// until it has received the state it has their addresses from nowhere else.
const joinedFile = "JOINED"

// joining is a new node that waits until it is added to a cluster that runs.
type joining struct{ newcomer }

// join waits until the node is a member of the cluster to which one of
// cfg.Peers.Join belongs, and returns what that cluster says of itself.
func join(ctx context.Context, cfg NodeConfig, me *identity) (*peer.Plan, error) {
	j := &joining{newNewcomer(cfg, me)}
	j.task, j.news = "joining the cluster", "the node is no member yet"
	j.state = "this node waits to be added to a cluster"
	return j.until(ctx, j.round)
}

// round asks every address once.
func (j *joining) round(ctx context.Context) (plan *peer.Plan, waits string, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(2*electionTicks*j.cfg.Tick, 2*time.Second))
	defer cancel()
	var reasons []string
	for _, addr := range j.cfg.Peers.Join {
		a, err := peer.Ask(ctx, j.dial, addr, peer.Question{})
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("%s does not answer: %v", addr, err))
			continue
		case a.State != peer.IsMember:
			reasons = append(reasons, fmt.Sprintf("the node at %s belongs to no cluster itself", addr))
			continue
		case slices.Contains(a.Removed, j.me.facts.ID):
			return nil, "", fmt.Errorf("%w, of which %s is a member: %s", ErrRemoved, addr, removedAdvice)
		}
		i := slices.IndexFunc(a.Members, func(m peer.Facts) bool { return m.ID == j.me.facts.ID })
		if i < 0 {
			return nil, fmt.Sprintf("the cluster of %s has to add this node, %016x: run against it\n  holdfast cluster add %s --peer %s", addr, j.me.facts.ID, j.me.facts.Name, j.me.facts.PeerAddr), nil
		}
		if was := a.Members[i]; was != j.me.facts {
			return nil, "", fmt.Errorf("the cluster of %s knows this node as %s with the addresses %s for clients and %s for members, and it is %s with %s and %s: start it as it was added, or remove that member (holdfast cluster remove %s) and begin with an empty directory",
				addr, was.Name, was.ClientAddr, was.PeerAddr, j.me.facts.Name, j.me.facts.ClientAddr, j.me.facts.PeerAddr, was.Name)
		}
		return &peer.Plan{Incarnation: a.Incarnation, Members: a.Members}, "", nil
	}
	return nil, strings.Join(reasons, "; "), nil
}

// setUpJoined makes a new node's directory that of a member without a state.
func (n *Node) setUpJoined(ctx context.Context, s *store.Store) error {
	plan, err := join(ctx, n.cfg, &n.identity)
	if err != nil {
		return err
	}
	if err := writePlanTo(filepath.Join(n.cfg.Dir, joinedFile), plan); err != nil {
		return err
	}
	if err := s.Join(plan.Incarnation); err != nil {
		return err
	}
	n.identity.belongs(s.Meta(), nil)
	n.log.Info("the node joins a cluster", "dir", n.cfg.Dir, "node", fmt.Sprintf("%016x", s.Meta().NodeID), "members", len(plan.Members))
	return nil
}

// checkJoin refuses to join with data of another life. A node that joined
// before is a member: its --join has no effect any more.
func checkJoin(cfg NodeConfig, meta store.Meta) error {
	if len(cfg.Peers.Join) == 0 || !meta.Member || meta.Joined {
		return nil
	}
	return fmt.Errorf("%w: %s holds the data of a service that was founded there: choose an empty directory, or start it without --join", ErrHasData, cfg.Dir)
}

// firstOf is the snapshot that a replica begins with: the one that was found,
// or the blank one of a node that joined and has received nothing yet. That
// has the members' addresses, so that the node can answer them.
func firstOf(dir string, meta store.Meta, found *raftpb.Snapshot) (*raftpb.Snapshot, error) {
	if found != nil {
		return found, nil
	}
	c := core.Config{Incarnation: meta.Incarnation}
	if p := readPlanFrom(filepath.Join(dir, joinedFile)); p != nil && p.Incarnation == meta.Incarnation {
		for _, m := range p.Members {
			c.Members = append(c.Members, core.Member{ID: m.ID, Name: m.Name, ClientAddr: m.ClientAddr, PeerAddr: m.PeerAddr})
		}
	}
	return replica.Blank(c)
}

// lookUpTimeout bounds the search for a node that is to be added. It is far
// below what commands wait for their whole call.
const lookUpTimeout = 2 * time.Second

// lookUp asks who listens at an address, for a member that is to be added.
func (n *Node) lookUp(ctx context.Context, addr string) (peer.Answer, error) {
	if n.port == nil {
		return peer.Answer{}, fmt.Errorf("%w: this node has no port for members: start it with --name, --peer-listen and the addresses at which others reach it", replica.ErrBadMember)
	}
	dial := n.cfg.Peers.dialing()
	if n.cfg.hooks.dial != nil {
		dial.Dial = n.cfg.hooks.dial
	}
	// Whoever asked is to hear what is wrong, before its own time is up.
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	a, err := peer.Ask(ctx, dial, addr, peer.Question{})
	if err != nil {
		return a, fmt.Errorf("%w: no new node answers at %s: start the new node first, with --join: %w", replica.ErrBadMember, addr, err)
	}
	return a, nil
}
