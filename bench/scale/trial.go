package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/engine/cluster"
)

// trial is one run of all measurements on one cluster.
type trial struct {
	settings
	figures
	fleet *fleet
	lines []*line
	probe *probe
	dir   string

	// took is what the leader's death cost.
	took struct{ elected, heard time.Duration }

	beating sync.WaitGroup
	beats   context.CancelFunc
	missed  chan error // of a keepalive; has room for one
}

func (t *trial) close() {
	t.pauseBeats()
	for _, l := range t.lines {
		l.disconnect()
	}
	if t.probe != nil {
		t.probe.close()
	}
}

func (t *trial) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		t.machine, t.found, t.load, t.weigh, t.hash, t.snapshot, t.restartFollower, t.regrowFollower,
		t.killLeader, t.backup, t.restartAll, t.weigh, t.settle,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) found(ctx context.Context) error {
	t.doing("founding three nodes")
	began := time.Now()
	for _, n := range t.fleet.nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	if _, err := awaitReady(ctx, began, t.fleet.nodes...); err != nil {
		return err
	}
	if t.pprof {
		for _, n := range t.fleet.nodes {
			t.doing("%s: pid %d, http://%s/debug/pprof/", n.name, n.cmd.Process.Pid, n.addr)
		}
	}
	var err error
	t.probe, err = startProbe(ctx, t.fleet.addresses(), t.ttl)
	return err
}

// eachLine does something on all lines at once.
func (t *trial) eachLine(do func(l *line) error) error {
	failed := make(chan error, len(t.lines))
	for _, l := range t.lines {
		go func() { failed <- do(l) }()
	}
	var all error
	for range t.lines {
		all = errors.Join(all, <-failed)
	}
	return all
}

func (t *trial) newLine(number, sessions int) *line {
	return newLine(number, sessions, t.ttl, strings.Split(t.fleet.addresses(), ","), func(why error) { t.doing("line %d: %v; again", number, why) })
}

// load opens the sessions and lets each take its locks.
func (t *trial) load(ctx context.Context) error {
	share := func(of, i int) int { return (i+1)*of/t.settings.lines - i*of/t.settings.lines }
	for i := range t.settings.lines {
		t.lines = append(t.lines, t.newLine(i, share(t.sessions, i)))
	}
	if err := t.eachLine(func(l *line) error { return l.connect(ctx) }); err != nil {
		return err
	}
	t.doing("opening %d sessions on %d lines", t.sessions, len(t.lines))
	began := time.Now()
	if err := t.eachLine(func(l *line) error { return l.persist(ctx, func() error { return l.open(ctx) }) }); err != nil {
		return fmt.Errorf("opening sessions: %w", err)
	}
	took := time.Since(began)
	t.tell("sessions opened", "%d in %s, %.0f/s", t.sessions, seconds(took), float64(t.sessions)/took.Seconds())
	t.startBeats(ctx)
	t.probe.reset()
	began = time.Now()
	for n, left := 1, t.locks; left > 0; n++ {
		now := min(left, t.sessions)
		left -= now
		t.doing("each session's lock %d; %d locks are left", n, left)
		if err := t.eachLine(func(l *line) error {
			return l.persist(ctx, func() error { return l.acquire(ctx, n, share(now, l.number)) })
		}); err != nil {
			return fmt.Errorf("acquiring: %w", err)
		}
	}
	took = time.Since(began)
	t.tell("locks acquired", "%d in %s, %.0f/s", t.locks, seconds(took), float64(t.locks)/took.Seconds())
	gap, _ := t.probe.gap()
	t.tell("  longest time without a grant meanwhile", "%s", seconds(gap))
	return t.beatsMissed()
}

// startBeats keeps all sessions alive, as clients do.
func (t *trial) startBeats(ctx context.Context) {
	ctx, t.beats = context.WithCancel(ctx)
	t.missed = make(chan error, 1)
	for _, l := range t.lines {
		t.beating.Go(func() {
			tick := time.NewTicker(t.ttl / 6)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				if err := l.persist(ctx, func() error { return l.keepAlive(ctx) }); err != nil && ctx.Err() == nil {
					select {
					case t.missed <- fmt.Errorf("line %d: %w", l.number, err):
					default:
					}
					return
				}
			}
		})
	}
}

func (t *trial) pauseBeats() {
	if t.beats != nil {
		t.beats()
		t.beating.Wait()
		t.beats = nil
	}
}

// beatsMissed is what went wrong with a keepalive.
func (t *trial) beatsMissed() error {
	select {
	case err := <-t.missed:
		return fmt.Errorf("keeping the sessions alive: %w", err)
	default:
		return nil
	}
}

// weigh tells what each node takes.
func (t *trial) weigh(ctx context.Context) error {
	for _, n := range t.fleet.nodes {
		st, err := n.status(ctx, false)
		if err != nil {
			return err
		}
		m, err := n.metrics(ctx)
		if err != nil {
			return err
		}
		rss, most, err := n.memory()
		if err != nil {
			return err
		}
		t.tell(n.name+", "+st.Role, "%s resident (at most %s so far), Go heap %s in use; %s sessions, %s locks",
			megabytes(rss), megabytes(most), megabytes(m["go_memstats_heap_inuse_bytes"]), st.Sessions, st.Locks)
	}
	began := time.Now()
	if err := t.eachLine(func(l *line) error { return l.persist(ctx, func() error { return l.keepAlive(ctx) }) }); err != nil {
		return fmt.Errorf("a keepalive of all sessions: %w", err)
	}
	t.tell("one keepalive of each session", "%s, %.0f/s", seconds(time.Since(began)), float64(t.sessions)/time.Since(began).Seconds())
	return nil
}

// hash compares the states of all nodes, and tells what that costs.
func (t *trial) hash(ctx context.Context) error {
	t.doing("hashing the state of each node")
	var took time.Duration
	_, err := await(ctx, time.Now(), "equal states", t.fleet.nodes, func() bool {
		seen := map[string]string{}
		for _, n := range t.fleet.nodes {
			began := time.Now()
			st, err := n.status(ctx, true)
			if err != nil {
				return false
			}
			took = time.Since(began)
			seen[st.AppliedIndex] = st.StateHash
		}
		return len(seen) <= len(t.fleet.nodes)
	})
	t.tell("hash of one node's state", "%s", seconds(took))
	return err
}

const (
	snapshotsTaken = "holdfast_snapshots_total"
	churnValue     = 4096
)

// snapshot logs so much that each node writes a snapshot of the full state.
func (t *trial) snapshot(ctx context.Context) error {
	t.doing("writing until each node has taken a snapshot of all")
	before := map[*node]float64{}
	for _, n := range t.fleet.nodes {
		m, err := n.metrics(ctx)
		if err != nil {
			return err
		}
		before[n] = m[snapshotsTaken]
	}
	c := t.newLine(len(t.lines), 64)
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer c.disconnect()
	if err := c.open(ctx); err != nil {
		return err
	}
	t.probe.reset()
	began := time.Now()
	taken := map[*node]bool{}
	for n := uint64(1); len(taken) < len(t.fleet.nodes); n++ {
		if n > 4000 {
			return errors.New("no snapshot was taken")
		}
		if err := c.persist(ctx, func() error { return c.churn(ctx, n) }); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		if n%10 != 0 {
			continue
		}
		for _, node := range t.fleet.nodes {
			m, err := node.metrics(ctx)
			if err != nil {
				return err
			}
			if m[snapshotsTaken] > before[node] {
				taken[node] = true
			}
		}
	}
	gap, grants := t.probe.gap()
	t.tell("writing until all had a snapshot", "%s, in which the probe had %d grants", seconds(time.Since(began)), grants)
	t.tell("  longest time without a grant meanwhile", "%s", seconds(gap))
	for _, n := range t.fleet.nodes {
		m, err := n.metrics(ctx)
		if err != nil {
			return err
		}
		rss, most, err := n.memory()
		if err != nil {
			return err
		}
		t.tell("  "+n.name, "snapshot of %s; encoding them took %s a piece, writing %s; turns of the loop over 0.2 s: %.0f; %s resident, at most %s",
			megabytes(float64(n.snapshotBytes())), mean(m, "encode"), mean(m, "write"), longTurns(m), megabytes(rss), megabytes(most))
	}
	if err := c.endAll(ctx); err != nil {
		return err
	}
	return t.beatsMissed()
}

// mean is what one step of a snapshot took on average.
func mean(m map[string]float64, step string) string {
	const name = "holdfast_snapshot_duration_seconds"
	n := m[name+`_count{step="`+step+`"}`]
	if n == 0 {
		return "–"
	}
	return seconds(time.Duration(m[name+`_sum{step="`+step+`"}`] / n * float64(time.Second)))
}

// longTurns counts the turns of a node's loop that took long.
func longTurns(m map[string]float64) float64 {
	const name = "holdfast_loop_turn_duration_seconds"
	return m[name+"_count"] - m[name+`_bucket{le="0.2048"}`]
}

// restartFollower kills a follower and starts it again.
func (t *trial) restartFollower(ctx context.Context) error {
	lead, err := t.fleet.leader(ctx)
	if err != nil {
		return err
	}
	n := t.fleet.others(lead)[0]
	t.doing("killing %s, a follower, and starting it again", n.name)
	n.kill()
	began := time.Now()
	if err := n.start(); err != nil {
		return err
	}
	took, err := awaitReady(ctx, began, n)
	if err != nil {
		return err
	}
	t.tell("a follower, killed: started until ready", "%s", seconds(took))
	return t.beatsMissed()
}

// regrowFollower lets a follower start without its log and snapshots: it keeps
// who it is by joining as a new member.
func (t *trial) regrowFollower(ctx context.Context) error {
	lead, err := t.fleet.leader(ctx)
	if err != nil {
		return err
	}
	old := t.fleet.others(lead)[0]
	t.doing("%s loses its disk, and a new member takes its place", old.name)
	old.kill()
	var peers []string
	for _, n := range t.fleet.others(old) {
		peers = append(peers, n.peer)
	}
	command := func(args ...string) error {
		text, err := exec.CommandContext(ctx, t.binary, append([]string{"cluster"}, append(args, "--server", lead.addr)...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("cluster %s: %w: %s", args[0], err, text)
		}
		return nil
	}
	if err := command("remove", old.name); err != nil {
		return err
	}
	if err := os.RemoveAll(old.dir); err != nil {
		return err
	}
	old.name, old.dir = old.name+"-anew", filepath.Join(t.dir, old.name+"-anew")
	old.args = []string{
		"serve", "--name", old.name, "--data", old.dir, "--listen", old.addr, "--peer-listen", old.peer,
		"--join", strings.Join(peers, ","), "--max-sessions", strconv.Itoa(t.sessions + 100), "--log-format", "json",
	}
	t.probe.reset()
	began := time.Now()
	if err := old.start(); err != nil {
		return err
	}
	var refused error // until it listens
	if _, err := await(ctx, began, "the new member", t.fleet.nodes, func() bool {
		refused = command("add", old.name, "--peer", old.peer)
		return refused == nil || time.Since(began) > time.Minute
	}); err != nil || refused != nil {
		return errors.Join(err, refused)
	}
	took, err := awaitReady(ctx, began, old)
	if err != nil {
		return err
	}
	caught, err := await(ctx, began, "the new member to catch up", t.fleet.nodes, func() bool {
		a, err := lead.status(ctx, false)
		b, err2 := old.status(ctx, false)
		return err == nil && err2 == nil && b.Sessions == a.Sessions && b.Locks == a.Locks
	})
	if err != nil {
		return err
	}
	voter, err := await(ctx, began, "the new member's vote", t.fleet.nodes, func() bool {
		st, err := t.probe.client.ClusterStatus(ctx, cluster.ClusterStatusOptions{})
		return err == nil && !slices.ContainsFunc(st.Members, func(m cluster.Member) bool { return m.Learner })
	})
	if err != nil {
		return err
	}
	gap, _ := t.probe.gap()
	t.tell("a member without data: started until ready", "%s; until it had all, by a snapshot of %s: %s; until it had a vote: %s",
		seconds(took), megabytes(float64(old.snapshotBytes())), seconds(caught), seconds(voter))
	t.tell("  longest time without a grant meanwhile", "%s", seconds(gap))
	return t.beatsMissed()
}
