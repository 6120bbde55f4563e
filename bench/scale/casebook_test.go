package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// Very many sessions, and the leader dies: the next one serves soon, no session
// of a living client ends, then or once it suspects whom it has not heard. Then
// nearly all clients die at once: their sessions end within 2 T, none before
// T, and those of a client that lives are renewed in time all the while. (C13;
// 50,000 sessions with T = 30 s in make soak.)
func TestCasebookC13_VeryManySessionsThroughAFailOver(t *testing.T) {
	// A machine that others use stalls, and stalls lengthen leases (B9).
	sessions, ttl, bound, renewal := 5000, 6*time.Second, 30*time.Second, 12*time.Second
	if os.Getenv("HOLDFAST_SOAK") != "" {
		sessions, ttl, bound, renewal = 50_000, 30*time.Second, 65*time.Second, 5*time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	tr := newTestTrial(t, sessions, 5, ttl)
	for _, step := range []func(context.Context) error{tr.found, tr.load, tr.killLeader, tr.settle} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if tr.took.elected > ttl || tr.took.heard > ttl {
		t.Errorf("another leader served after %v, and had heard all after %v; T is %v", tr.took.elected, tr.took.heard, ttl)
	}

	// One of five clients lives on.
	tr.pauseBeats()
	alive := tr.lines[0]
	waits := renewing(t, ctx, alive)
	last := time.Now()
	for _, l := range tr.lines[1:] {
		if err := l.persist(ctx, func() error { return l.keepAlive(ctx) }); err != nil {
			t.Fatal(err)
		}
	}
	silent := time.Since(last)
	for _, l := range tr.lines[1:] {
		l.disconnect()
	}
	first, gone := ends(t, ctx, tr, last, len(alive.sessions)+1) // and the probe's
	slow := waits()
	t.Logf("T = %v; %d sessions ended between %v and %v after their clients' last keepalives, which took %v; those of the living took at most %v",
		ttl, sessions-len(alive.sessions), first, gone, silent, slow[len(slow)-1])
	if first < ttl || gone > bound+silent {
		t.Errorf("sessions with T = %v ended between %v and %v after their client's last keepalive", ttl, first, gone)
	}
	if p99 := slow[len(slow)*99/100]; p99 > renewal {
		t.Errorf("a keepalive of the living client took %v", p99)
	}
}

// ends waits until only so many sessions are left, and says when the first and
// the last ended.
func ends(t *testing.T, ctx context.Context, tr *trial, since time.Time, left int) (first, last time.Duration) {
	t.Helper()
	all := float64(tr.sessions)
	last, err := await(ctx, since, "the ends of the silent sessions", tr.fleet.nodes, func() bool {
		open := 0.0
		for _, n := range tr.fleet.nodes { // one of them leads
			m, err := n.metrics(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if m["holdfast_sessions_overdue"] > 0 {
				t.Errorf("%s says that sessions are overdue", n.name)
			}
			open = max(open, m["holdfast_sessions"])
		}
		if first == 0 && open < all {
			first = time.Since(since)
		}
		return open <= float64(left)
	})
	if err != nil {
		t.Fatal(err)
	}
	return first, last
}

// renewing keeps a line's sessions alive, very often, and returns what stops
// that and says how long each keepalive took, sorted.
func renewing(t *testing.T, ctx context.Context, l *line) (stop func() []time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var took []time.Duration
	var running sync.WaitGroup
	first := make(chan struct{})
	running.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			began := time.Now()
			if err := l.persist(ctx, func() error { return l.keepAlive(ctx) }); err != nil {
				if ctx.Err() == nil {
					t.Errorf("a living client: %v", err)
				}
				return
			}
			if took = append(took, time.Since(began)); len(took) == 1 {
				close(first)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	select {
	case <-first:
	case <-ctx.Done():
	}
	return func() []time.Duration {
		cancel()
		running.Wait()
		slices.Sort(took)
		return took
	}
}
