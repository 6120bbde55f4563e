//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"
)

// A fault is one way to break something. Its function breaks it, waits, and
// mends it; when it returns nothing of it is left but what the service must cope
// with.
type fault struct {
	kind   string
	weight int
	root   bool // needs namespaces or mounts
	do     func(context.Context, *blow) error
}

// A blow is one fault as it happens. What it claimed is freed when it is over.
type blow struct {
	*run
	rng   *rand.Rand
	frees []func()
}

// errTaken says that another fault has what this one needs, or that there is no
// such thing now.
var errTaken = errors.New("taken")

// between draws a duration.
func (b *blow) between(least, most time.Duration) time.Duration {
	return least + time.Duration(b.rng.Int64N(int64(most-least)))
}

// one claims a server that satisfies a condition.
func (b *blow) one(ok func(*server) bool) (*server, error) {
	for _, i := range b.rng.Perm(len(b.servers)) {
		v := b.servers[i]
		if !ok(v) || !v.claim() {
			continue
		}
		b.frees = append(b.frees, v.free)
		return v, nil
	}
	return nil, errTaken
}

func (b *blow) any() (*server, error) { return b.one(func(*server) bool { return true }) }

// lead claims the leader.
func (b *blow) lead(ctx context.Context) (*server, error) {
	lead := b.leader(ctx)
	return b.one(func(v *server) bool { return v == lead })
}

// some claims so many servers.
func (b *blow) some(n int) (all []*server, err error) {
	for range n {
		v, err := b.any()
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

// someClients claims so many clients.
func (b *blow) someClients(n int) (all []*client, err error) {
	for _, i := range b.rng.Perm(len(b.clients)) {
		if c := b.clients[i]; len(all) < n && c.claim() {
			b.frees = append(b.frees, c.free)
			all = append(all, c)
		}
	}
	if len(all) < n {
		return all, errTaken
	}
	return all, nil
}

func (b *blow) over() {
	for _, free := range b.frees {
		free()
	}
}

const halfOfClients = "SIGSTOP: half of the clients"

// faults are all kinds. The weight says how often one is drawn.
var faults = []fault{
	{"kill -9: the leader", 4, false, killLeader},
	{"kill -9: one server", 2, false, func(ctx context.Context, b *blow) error { return b.killServers(ctx, 1) }},
	{"kill -9: a majority", 2, false, func(ctx context.Context, b *blow) error { return b.killServers(ctx, len(b.servers)/2+1) }},
	{"kill -9: all servers", 2, false, func(ctx context.Context, b *blow) error { return b.killServers(ctx, len(b.servers)) }},
	{"kill -9: a client", 3, false, killClient},
	{"SIGSTOP: the leader", 3, false, stopLeader},
	{"SIGSTOP: one server", 2, false, func(ctx context.Context, b *blow) error { return b.stopServers(ctx, 1) }},
	{"SIGSTOP: all servers", 2, false, func(ctx context.Context, b *blow) error { return b.stopServers(ctx, len(b.servers)) }},
	{"SIGSTOP: one client", 5, false, func(ctx context.Context, b *blow) error { return b.stopClients(ctx, 1) }},
	{halfOfClients, 3, false, func(ctx context.Context, b *blow) error { return b.stopClients(ctx, len(b.clients)/2) }},
	{"SIGSTOP: all clients", 2, false, func(ctx context.Context, b *blow) error { return b.stopClients(ctx, len(b.clients)) }},
	{"partition: the leader alone", 4, true, isolateLeader},
	{"partition: two halves", 4, true, halves},
	{"partition: one pair of servers", 2, true, pair},
	{"one-way: nothing reaches the leader", 3, true, deafLeader},
	{"one-way: nothing leaves the leader", 3, true, muteLeader},
	{"one-way: half of all pairs", 2, true, oneWays},
	{"partition: a client from all servers", 3, true, lonelyClient},
	{"partition: the clients from the leader", 3, true, clientsFromLeader},
	{"loss: up to 30 % of all packets", 3, true, loss},
	{"resets of all connections of a server", 3, true, resets},
	{"delay of up to 400 ms", 3, true, late},
	{"reordered and doubled packets", 3, true, overtaken},
	{"disk: too little space", 2, true, lowDisk},
	{"disk: no space, then kill -9", 2, true, fullDisk},
	{"kill -9: while it takes a snapshot", 3, false, lagging},
	{"certificates of a server expire", 3, false, expired},
	{"certificates of all are replaced", 1, false, renewed},
}

// draw picks a kind.
func draw(rng *rand.Rand, all []fault) fault {
	sum := 0
	for _, f := range all {
		sum += f.weight
	}
	n := rng.IntN(sum)
	for _, f := range all {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	return all[0]
}

func killLeader(ctx context.Context, b *blow) error {
	v, err := b.lead(ctx)
	if err != nil {
		return err
	}
	return b.kill(ctx, []*server{v})
}

func (b *blow) killServers(ctx context.Context, n int) error {
	all, err := b.some(n)
	if err != nil {
		return err
	}
	return b.kill(ctx, all)
}

// kill kills servers, and starts them again after a while.
func (b *blow) kill(ctx context.Context, all []*server) error {
	for _, v := range all {
		v.process().signal(syscall.SIGKILL)
	}
	for _, v := range all {
		v.kill()
	}
	pause(ctx, b.between(0, 2*ttl))
	var errs error
	for _, v := range all {
		errs = errors.Join(errs, v.begin())
	}
	return errs
}

func killClient(ctx context.Context, b *blow) error {
	all, err := b.someClients(1)
	if err != nil {
		return err
	}
	_ = all[0].process().end(syscall.SIGKILL, time.Minute)
	pause(ctx, b.between(0, ttl))
	return b.run.begin(all[0])
}

func stopLeader(ctx context.Context, b *blow) error {
	v, err := b.lead(ctx)
	if err != nil {
		return err
	}
	b.stop(ctx, []*process{v.process()})
	return nil
}

func (b *blow) stopServers(ctx context.Context, n int) error {
	all, err := b.some(n)
	if err != nil {
		return err
	}
	var list []*process
	for _, v := range all {
		list = append(list, v.process())
	}
	b.stop(ctx, list)
	return nil
}

func (b *blow) stopClients(ctx context.Context, n int) error {
	all, err := b.someClients(n)
	if err != nil {
		return err
	}
	var list []*process
	for _, c := range all {
		list = append(list, c.process())
	}
	b.stop(ctx, list)
	return nil
}

// stop stops processes for up to 5 × TTL.
func (b *blow) stop(ctx context.Context, list []*process) {
	for _, p := range list {
		p.signal(syscall.SIGSTOP)
	}
	if b.gated {
		pause(ctx, b.between(ttl/4, 5*ttl))
	} else {
		pause(ctx, b.between(ttl*5/4, ttl*7/4)) // for damage, only just longer than a lease
	}
	for _, p := range list {
		p.signal(syscall.SIGCONT)
	}
}

// impose breaks the network for a while.
func (b *blow) impose(ctx context.Context, rules map[string]ruleSet) error {
	undo, err := b.net.impose(rules)
	if err == nil {
		pause(ctx, b.between(ttl/4, 4*ttl))
	}
	return errors.Join(err, undo())
}

// others are all sites but one.
func (b *blow) others(v *server) []*site {
	var all []*site
	for _, s := range b.net.sites {
		if s != v.site {
			all = append(all, s)
		}
	}
	return all
}

func isolateLeader(ctx context.Context, b *blow) error {
	v := b.leader(ctx)
	if v == nil {
		return errTaken
	}
	me, rest := []*site{v.site}, b.others(v)
	return b.impose(ctx, both(cut(me, rest), cut(rest, me)))
}

func deafLeader(ctx context.Context, b *blow) error {
	v := b.leader(ctx)
	if v == nil {
		return errTaken
	}
	return b.impose(ctx, cut(b.others(v), []*site{v.site}))
}

func muteLeader(ctx context.Context, b *blow) error {
	v := b.leader(ctx)
	if v == nil {
		return errTaken
	}
	return b.impose(ctx, cut([]*site{v.site}, b.others(v)))
}

// halves puts each site on one of two sides.
func halves(ctx context.Context, b *blow) error {
	var sides [2][]*site
	for _, s := range b.net.sites {
		i := b.rng.IntN(2)
		sides[i] = append(sides[i], s)
	}
	return b.impose(ctx, both(cut(sides[0], sides[1]), cut(sides[1], sides[0])))
}

// pair cuts the line between two servers that others still reach.
func pair(ctx context.Context, b *blow) error {
	i := b.rng.Perm(len(b.servers))
	x, y := []*site{b.servers[i[0]].site}, []*site{b.servers[i[1]].site}
	return b.impose(ctx, both(cut(x, y), cut(y, x)))
}

// oneWays cuts one direction of half of all pairs of sites.
func oneWays(ctx context.Context, b *blow) error {
	rules := map[string]ruleSet{}
	for _, from := range b.net.sites {
		for _, to := range b.net.sites {
			if from != to && b.rng.IntN(4) == 0 {
				rules = both(rules, cut([]*site{from}, []*site{to}))
			}
		}
	}
	return b.impose(ctx, rules)
}

// serverSites are those of the servers.
func (b *blow) serverSites() []*site { return b.net.sites[:len(b.servers)] }

func lonelyClient(ctx context.Context, b *blow) error {
	c := []*site{b.clients[b.rng.IntN(len(b.clients))].site}
	return b.impose(ctx, both(cut(c, b.serverSites()), cut(b.serverSites(), c)))
}

func clientsFromLeader(ctx context.Context, b *blow) error {
	v := b.leader(ctx)
	if v == nil {
		return errTaken
	}
	return b.impose(ctx, cut(b.net.sites[len(b.servers):], []*site{v.site}))
}
