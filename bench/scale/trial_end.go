package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// reconnect lets every line look for the leader, speak for its sessions again,
// and keep them alive at once, as clients do when they meet a new leader.
func (t *trial) reconnect(ctx context.Context) (attached time.Duration, err error) {
	began := time.Now()
	err = t.eachLine(func(l *line) error {
		if err := l.connect(ctx); err != nil {
			return err
		}
		return l.persist(ctx, func() error { return l.keepAlive(ctx) })
	})
	return time.Since(began), err
}

// killLeader kills the leader: what matters is when the next grant comes, and
// that no session of a living client ends, then or in the time after.
func (t *trial) killLeader(ctx context.Context) error {
	lead, err := t.fleet.leader(ctx)
	if err != nil {
		return err
	}
	t.doing("killing %s, the leader", lead.name)
	t.pauseBeats()
	t.probe.reset()
	began := time.Now()
	lead.kill()
	back := make(chan error, 1)
	var took time.Duration
	go func() {
		var err error
		took, err = t.reconnect(ctx)
		back <- err
	}()
	if _, err := t.fleet.leader(ctx); err != nil {
		return err
	}
	elected := time.Since(began)
	if err := <-back; err != nil {
		return fmt.Errorf("after the leader's death: %w", err)
	}
	t.took.elected, t.took.heard = elected, took
	t.startBeats(ctx)
	gap, _ := t.probe.gap()
	t.tell("the leader, killed: until another one serves", "%s", seconds(elected))
	t.tell("  until every session was heard by it", "%s", seconds(took))
	t.tell("  longest time without a grant", "%s", seconds(gap))
	if err := t.whole(ctx); err != nil {
		return err
	}
	if err := lead.start(); err != nil {
		return err
	}
	ready, err := awaitReady(ctx, time.Now(), lead)
	if err != nil {
		return err
	}
	t.tell("  the killed one: started until ready", "%s", seconds(ready))
	return t.beatsMissed()
}

// whole checks that no session and no lock is missing: each session is asked
// for, and the leader counts.
func (t *trial) whole(ctx context.Context) error {
	if err := t.eachLine(func(l *line) error { return l.persist(ctx, func() error { return l.keepAlive(ctx) }) }); err != nil {
		return err
	}
	n, err := t.fleet.leader(ctx)
	if err != nil {
		return err
	}
	st, err := n.status(ctx, false)
	if err != nil {
		return err
	}
	sessions, _ := strconv.Atoi(st.Sessions)
	locks, _ := strconv.Atoi(st.Locks)
	if sessions < t.sessions || locks < t.locks {
		return fmt.Errorf("%s has %d sessions and %d locks", n.name, sessions, locks)
	}
	t.tell("  sessions that ended", "0 of %d; %d locks are there", t.sessions, locks)
	return nil
}

// backup takes one from the running cluster, and verifies it.
func (t *trial) backup(ctx context.Context) error {
	t.doing("a backup")
	file := filepath.Join(t.dir, "backup")
	t.probe.reset()
	began := time.Now()
	if text, err := exec.CommandContext(ctx, t.binary, "backup", file, "--server", t.fleet.addresses()).CombinedOutput(); err != nil {
		return fmt.Errorf("backup: %w: %s", err, text)
	}
	took := time.Since(began)
	gap, _ := t.probe.gap()
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	t.tell("a backup", "%s in %s; longest time without a grant meanwhile %s", megabytes(float64(info.Size())), seconds(took), seconds(gap))
	began = time.Now()
	if text, err := exec.CommandContext(ctx, t.binary, "backup", "verify", file).CombinedOutput(); err != nil {
		return fmt.Errorf("backup verify: %w: %s", err, text)
	}
	t.tell("  verified", "in %s", seconds(time.Since(began)))
	return os.Remove(file)
}

// restartAll kills all nodes and starts them again.
func (t *trial) restartAll(ctx context.Context) error {
	t.doing("killing all nodes, and starting them again")
	t.pauseBeats()
	t.probe.reset()
	t.fleet.killAll()
	began := time.Now()
	for _, n := range t.fleet.nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	took, err := awaitReady(ctx, began, t.fleet.nodes...)
	if err != nil {
		return err
	}
	t.tell("all killed: started until all are ready", "%s", seconds(took))
	heard, err := t.reconnect(ctx)
	if err != nil {
		return fmt.Errorf("after all were restarted: %w", err)
	}
	t.startBeats(ctx)
	t.tell("  until every session was heard again", "%s", seconds(time.Since(began)))
	t.tell("  of it, attaching and one keepalive of each", "%s", seconds(heard))
	gap, _ := t.probe.gap()
	t.tell("  longest time without a grant", "%s", seconds(gap))
	return t.whole(ctx)
}

// settle waits long enough for whoever was not heard by the new leader to be
// suspected, and looks once more.
func (t *trial) settle(ctx context.Context) error {
	t.doing("waiting T/8, after which a leader suspects whom it has not heard")
	select {
	case <-time.After(t.ttl/8 + time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := t.beatsMissed(); err != nil {
		return err
	}
	return t.whole(ctx)
}
