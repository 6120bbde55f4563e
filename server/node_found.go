package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/replica"
	"holdfast/server/store"
)

// ErrBelongs is wrapped by the error of a node that was to found a cluster
// with nodes of which one belongs to a cluster already.
var ErrBelongs = errors.New("cannot found a cluster: there is one")

// identity is what a node tells whoever asks who it is.
type identity struct {
	mu      sync.Mutex
	facts   peer.Facts
	state   peer.State
	list    []peer.Founder
	agreed  *peer.Plan // the latest plan that this node agreed to
	plan    *peer.Plan // what it was founded with
	cluster uint64     // incarnation
	members []peer.Facts
	removed []uint64
	// supports is the newest cluster version that the node can apply.
	supports uint32
}

func factsOf(m core.Member) peer.Facts {
	return peer.Facts{ID: m.ID, Name: m.Name, ClientAddr: m.ClientAddr, PeerAddr: m.PeerAddr}
}

func (i *identity) setMembers(members []core.Member, removed []uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.members = nil
	for _, m := range members {
		i.members = append(i.members, factsOf(m))
		if m.ID == i.facts.ID {
			i.facts = factsOf(m)
		}
	}
	i.removed = slices.Clone(removed)
}

// belongs says that the node is a member now.
func (i *identity) belongs(meta store.Meta, plan *peer.Plan) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state, i.facts.ID, i.cluster = peer.IsMember, meta.NodeID, meta.Incarnation
	if plan != nil && plan.Incarnation == meta.Incarnation {
		i.plan = plan
	}
}

// answer says who listens here, and whether the node agrees to a plan.
func (i *identity) answer(q peer.Question) peer.Answer {
	i.mu.Lock()
	defer i.mu.Unlock()
	a := peer.Answer{State: i.state, Facts: i.facts, List: i.list, Incarnation: i.cluster, Members: i.members, Plan: i.plan, Removed: i.removed, Supports: i.supports}
	if q.Plan == nil {
		return a
	}
	if a.Why = i.objection(q.Plan); a.Why == "" {
		a.Agreed, i.agreed = true, q.Plan
	}
	return a
}

// objection says why the node does not agree to a plan; empty if it does. It
// compares the plan with what the node knows of itself and with its list.
func (i *identity) objection(p *peer.Plan) string {
	switch {
	case i.state != peer.IsNew:
		return "the node belongs to a cluster, or is about to"
	case p.Incarnation == 0 || len(p.Members) != len(i.list):
		return fmt.Sprintf("the plan has %d members, its list %d", len(p.Members), len(i.list))
	case !slices.Contains(p.Members, i.facts):
		return fmt.Sprintf("the plan does not have it as it is now: ID %016x, name %s, addresses %s and %s", i.facts.ID, i.facts.Name, i.facts.ClientAddr, i.facts.PeerAddr)
	}
	for _, m := range p.Members {
		if !slices.Contains(i.list, peer.Founder{Name: m.Name, Addr: m.PeerAddr}) {
			return fmt.Sprintf("its list does not have %s at %s", m.Name, m.PeerAddr)
		}
	}
	return ""
}

// decide moves the node from new to founding, if it may take part in this
// plan: once it has agreed to one, it takes part in no other.
func (i *identity) decide(p *peer.Plan) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.state != peer.IsNew || (i.agreed != nil && i.agreed.Incarnation != p.Incarnation) {
		return false
	}
	i.state = peer.IsFounding
	return true
}

// founding is a new node that looks for the other founders (D7). Why it is
// done so, and what each crash leaves, is in docs/adr/0022.
type founding struct {
	newcomer
	plan *peer.Plan // this node's own, if it is the one that makes it
}

// found waits until all founders agree, and returns what all write.
func found(ctx context.Context, cfg NodeConfig, me *identity) (*peer.Plan, error) {
	f := &founding{newcomer: newNewcomer(cfg, me)}
	f.task, f.news = "founding the cluster", "the cluster is not founded yet"
	f.state = f.news
	// What follows may have a number that changes each time.
	f.gist = func(reason string) string { what, _, _ := strings.Cut(reason, ": "); return what }
	return f.until(ctx, f.round)
}

// heard is what one founder answered.
type heard struct {
	founder peer.Founder
	answer  peer.Answer
	err     error
}

// ask puts a question to all other founders at once.
func (f *founding) ask(ctx context.Context, q peer.Question) []heard {
	ctx, cancel := context.WithTimeout(ctx, max(2*electionTicks*f.cfg.Tick, 2*time.Second))
	defer cancel()
	var all []heard
	for _, x := range f.cfg.Peers.Founders {
		if x.Name != f.cfg.Peers.Name {
			all = append(all, heard{founder: x})
		}
	}
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() { all[i].answer, all[i].err = peer.Ask(ctx, f.dial, all[i].founder.Addr, q) })
	}
	asked.Wait()
	return all
}

// round asks everybody once. It returns the plan that this node must write, or
// what it waits for, or why it cannot go on.
func (f *founding) round(ctx context.Context) (plan *peer.Plan, waits string, err error) {
	all := f.ask(ctx, peer.Question{})
	for _, h := range all {
		if h.err == nil && h.answer.State == peer.IsMember {
			return f.follow(h)
		}
	}
	smallest := f.me.facts.ID
	for _, h := range all {
		if waits, err := f.unlike(h); waits != "" || err != nil {
			return nil, waits, err
		}
		smallest = min(smallest, h.answer.ID)
	}
	if smallest != f.me.facts.ID {
		i := slices.IndexFunc(all, func(h heard) bool { return h.answer.ID == smallest })
		return nil, fmt.Sprintf("%s, which has the smallest ID, decides", all[i].founder.Name), nil
	}
	return f.propose(ctx, all)
}

// unlike says why a founder that answered, or did not, keeps the cluster from
// being founded.
func (f *founding) unlike(h heard) (waits string, err error) {
	switch a := h.answer; {
	case h.err != nil:
		return fmt.Sprintf("%s does not answer at %s: %v", h.founder.Name, h.founder.Addr, h.err), nil
	case a.Facts == f.me.facts:
		return "", fmt.Errorf("cannot found a cluster: the list has %s at %s, and there this node itself answers, which is %s: correct the address of %s in --initial-cluster, or this node's --peer-listen", h.founder.Name, h.founder.Addr, a.Name, h.founder.Name)
	case a.ID == f.me.facts.ID:
		return "", fmt.Errorf("cannot found a cluster: the node at %s has the same ID as this one, %016x: its data directory is a copy; give one of the two an empty directory", h.founder.Addr, a.ID)
	case a.Name != h.founder.Name:
		return fmt.Sprintf("at %s, where this node's list has %s, answers %q: the list or the node's --name is wrong", h.founder.Addr, h.founder.Name, a.Name), nil
	case a.State != peer.IsNew:
		return fmt.Sprintf("%s is about to write what was decided", h.founder.Name), nil
	case !sameFounders(a.List, f.cfg.Peers.Founders):
		return fmt.Sprintf("the lists differ: %s has %s, and this node %s: give all the same --initial-cluster", h.founder.Name, founders(a.List), founders(f.cfg.Peers.Founders)), nil
	}
	return "", nil
}

// propose asks everybody to agree to a plan, and decides it if all do.
func (f *founding) propose(ctx context.Context, all []heard) (*peer.Plan, string, error) {
	members := []peer.Facts{f.me.facts}
	for _, h := range all {
		members = append(members, h.answer.Facts)
	}
	slices.SortFunc(members, func(a, b peer.Facts) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	if f.plan == nil || !slices.Equal(f.plan.Members, members) {
		f.plan = drawPlan(members)
	}
	// The own agreement is asked for as everybody's is.
	if own := f.me.answer(peer.Question{Plan: f.plan}); !own.Agreed {
		return nil, "this node itself does not agree: " + own.Why, nil
	}
	for _, h := range f.ask(ctx, peer.Question{Plan: f.plan}) {
		if h.err != nil {
			return nil, fmt.Sprintf("%s does not answer at %s: %v", h.founder.Name, h.founder.Addr, h.err), nil
		}
		if !h.answer.Agreed {
			return nil, fmt.Sprintf("%s does not agree: %s", h.founder.Name, h.answer.Why), nil
		}
	}
	if !f.me.decide(f.plan) {
		return nil, "another plan was agreed to meanwhile", nil
	}
	return f.plan, "", nil
}

// follow is for a founder that finds a member. Either the others went on after
// this node had agreed, and it takes the plan that they wrote; or it is a
// stranger to them.
func (f *founding) follow(h heard) (*peer.Plan, string, error) {
	a, me := h.answer, f.me.facts
	isMe := func(x peer.Facts) bool { return x.ID == me.ID }
	switch {
	case slices.Contains(a.Removed, me.ID):
		return nil, "", fmt.Errorf("%w: %s says that this node, %016x, was removed from it; %s", ErrBelongs, h.founder.Name, me.ID, f.replaceAdvice(h))
	case a.Plan == nil || !slices.ContainsFunc(a.Plan.Members, isMe) || len(a.Members) > 0 && !slices.ContainsFunc(a.Members, isMe):
		return nil, "", fmt.Errorf("%w: %s at %s is a member of one (incarnation %016x), in which this node, %016x, has no part; %s", ErrBelongs, h.founder.Name, h.founder.Addr, a.Incarnation, me.ID, f.replaceAdvice(h))
	case !f.me.decide(a.Plan):
		return nil, fmt.Sprintf("%s wrote another plan than the one that this node agreed to", h.founder.Name), nil
	}
	i := slices.IndexFunc(a.Plan.Members, isMe)
	if was := a.Plan.Members[i]; was != me {
		f.log.Warn("the cluster was founded with other addresses of this node", "name", was.Name, "clients", was.ClientAddr, "members", was.PeerAddr)
	}
	return a.Plan, "", nil
}

// replaceAdvice says how a node without its data comes back.
func (f *founding) replaceAdvice(h heard) string {
	lines := []string{"if its data were lost, or it is to take another's place, run against that cluster:"}
	for _, m := range h.answer.Members {
		if m.Name == f.me.facts.Name && m.ID != f.me.facts.ID {
			lines = append(lines, "  holdfast cluster remove "+m.Name)
		}
	}
	lines = append(lines,
		fmt.Sprintf("  holdfast cluster add %s --peer %s", f.me.facts.Name, f.me.facts.PeerAddr),
		fmt.Sprintf("and start this node with --join %s in place of --initial-cluster", cmp.Or(h.answer.PeerAddr, h.founder.Addr)))
	return strings.Join(lines, "\n")
}

// drawPlan draws what names a new cluster.
func drawPlan(members []peer.Facts) *peer.Plan {
	var random [24]byte
	rand.Read(random[:]) // never fails
	return &peer.Plan{
		Incarnation: binary.BigEndian.Uint64(random[16:])>>1 | 1,
		Domain:      hex.EncodeToString(random[:16]), Members: members,
	}
}

// firstState is the snapshot that each founder writes: the same for all. Who
// founds alone knows what all members can apply, and begins with the newest
// cluster version; else it is raised by agreement.
func firstState(p *peer.Plan, newest uint32) (*raftpb.Snapshot, error) {
	domain, err := hex.DecodeString(p.Domain)
	if err != nil || len(domain) != 16 || p.Incarnation == 0 || len(p.Members) == 0 {
		return nil, errors.New("the plan of the founders is damaged")
	}
	c := core.Config{Incarnation: p.Incarnation, Domain: [16]byte(domain)}
	if len(p.Members) == 1 {
		c.Version = newest
	}
	var voters []uint64
	for _, m := range p.Members {
		c.Members = append(c.Members, core.Member{ID: m.ID, Name: m.Name, ClientAddr: m.ClientAddr, PeerAddr: m.PeerAddr})
		voters = append(voters, m.ID)
	}
	return replica.Bootstrap(core.New(c), voters)
}

func sameFounders(a, b []peer.Founder) bool {
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		if !slices.Contains(b, x) {
			return false
		}
	}
	return true
}

func founders(list []peer.Founder) string {
	var parts []string
	for _, x := range list {
		parts = append(parts, x.Name+"="+x.Addr)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
