package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"holdfast"
	"holdfast/engine/cluster"
)

// grantsOf tells, in their order, the grants of one lock, as a watch that
// began before them sees them through whatever becomes of the nodes.
type grantsOf struct {
	seen chan cluster.Event
	err  chan error
}

func watchGrants(t *testing.T, c *cluster.Client, lock string) *grantsOf {
	t.Helper()
	w := &grantsOf{seen: make(chan cluster.Event, 1000), err: make(chan error, 1)}
	stands := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		first := true
		for batch, err := range c.Watch(ctx, cluster.WatchOptions{Lock: lock}) {
			if err != nil {
				w.err <- err
				return
			}
			if first {
				close(stands)
				first = false
			}
			for _, e := range batch.Events {
				if e.Kind == "granted" {
					w.seen <- e
				}
			}
		}
	}()
	select {
	case <-stands:
	case err := <-w.err:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("the watch does not stand")
	}
	return w
}

func (w *grantsOf) next(t *testing.T) cluster.Event {
	t.Helper()
	select {
	case e := <-w.seen:
		return e
	case err := <-w.err:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("the watch shows no further grant")
	}
	return cluster.Event{}
}

// asQueued checks what the watch shows against the queue: the same sessions in
// the same order, with the tokens that they were told, and numbers that rise.
func (q *queue) asQueued(w *grantsOf, first *holdfast.Grant) {
	t := q.t
	t.Helper()
	last := first.Token().Number
	for i, p := range q.places {
		e := w.next(t)
		if e.SessionID != p.session || e.Shared != p.shared || e.Token != p.grant.Token() {
			t.Errorf("grant %d is that of session %d, %s, %v; in the queue stood session %d, %s, which was told %v",
				i+1, e.SessionID, mode(e.Shared), e.Token, p.session, mode(p.shared), p.grant.Token())
		}
		if e.Grant <= last {
			t.Errorf("grant %d has number %d after %d", i+1, e.Grant, last)
		}
		last = e.Grant
	}
}

// TestQueueOrderThroughLeadersDeath: sessions wait for a lock, shared and
// exclusive, and while it goes from one to the next the leader is killed, at
// any moment of a hand-off; in one round all nodes have restarted just before.
// They are granted in the order in which they came, each once, and the tokens
// rise in that order.
//
// It is not parallel: its load would be one for the tests that measure times.
func TestQueueOrderThroughLeadersDeath(t *testing.T) {
	p := newFleet(t, 3, "--log-level", "warn", "--snapshot-every", "100")
	defer p.hangUp()
	load := newLoad(t, p.client("load"))
	for i := range 2 {
		load.wg.Go(func() { load.work(fmt.Sprint("own/", i)) })
	}
	var clients []*cluster.Client
	for i := range 12 {
		clients = append(clients, p.client(fmt.Sprint("waiter ", i+1)))
	}
	rounds := 3
	if os.Getenv(soakVariable) != "" {
		rounds = 40
	}
	left := 0
	for round := range rounds {
		lock := fmt.Sprint("order/", round)
		grants := watchGrants(t, load.client, lock)
		first, err := load.client.Acquire(t.Context(), lock, cluster.AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		grants.next(t)
		q := newQueue(t, lock)
		modes := rand.Perm(len(clients)) // half of them share, some side by side
		for i, c := range clients {
			q.join(c, modes[i]%2 == 0)
		}
		before := takePicture(t, load.client, "sessions only")
		if round == 0 { // the queue comes from snapshots, too
			load.progress(250)
			p.kill(p.nodes...)
			p.start(p.nodes...)
		}
		victim := p.leader()
		q.letGo()
		begun := make(chan error, 1)
		go func() { begun <- released(context.Background(), first) }()
		after := rand.IntN(6)
		for range after {
			q.next()
		}
		p.kill(victim)
		left += len(clients) - after - len(q.came)
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		q.ended()
		q.inOrder(first)
		q.asQueued(grants, first)
		p.start(victim)
		if changes := before.changes(takePicture(t, load.client, "sessions only")); changes != "" {
			t.Errorf("round %d, these have changed:\n%s", round, changes)
		}
	}
	load.halt()
	p.equal()
	t.Logf("%d rounds of %d waiters; %d of them were not granted yet when the leader died", rounds, len(clients), left)
}
