package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast"
	"holdfast/engine/cluster"
)

// A queue is that of one lock, made by one session after the other.
type queue struct {
	t      *testing.T
	lock   string
	places []*place    // in the order of the queue
	came   chan *place // each of them once it is granted
}

// A place is one waiter.
type place struct {
	queue   *queue
	client  *cluster.Client
	session uint64
	shared  bool
	grant   *holdfast.Grant // set before it is sent to came
	let     chan struct{}   // closed when it may release
	done    chan error      // gets one value
}

func newQueue(t *testing.T, lock string) *queue {
	return &queue{t: t, lock: lock, came: make(chan *place, 100)}
}

// join puts a client at the end of the queue, and waits until it
// stands there. Somebody must hold the lock.
func (q *queue) join(c *cluster.Client, shared bool) {
	t := q.t
	t.Helper()
	p := &place{queue: q, client: c, shared: shared, let: make(chan struct{}), done: make(chan error, 1)}
	queued := make(chan struct{}, 1)
	go func() { p.done <- p.wait(queued) }()
	select {
	case <-queued:
	case err := <-p.done:
		t.Fatalf("a waiter of %s: %v", q.lock, err)
	case <-time.After(patience):
		t.Fatalf("a waiter of %s has no place", q.lock)
	}
	look, err := c.Get(t.Context(), q.lock, cluster.GetOptions{})
	if err != nil || len(look.Queue) != len(q.places)+1 {
		t.Fatalf("the queue is %+v, %v; want %d places", look, err, len(q.places)+1)
	}
	p.session = look.Queue[len(q.places)].SessionID
	q.places = append(q.places, p)
}

// wait acquires the lock, holds it until it may release, and releases.
func (p *place) wait(queued chan<- struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	g, err := p.client.Acquire(ctx, p.queue.lock, cluster.AcquireOptions{Shared: p.shared}, holdfast.Queued(queued))
	if err != nil {
		return err
	}
	p.grant = g
	p.queue.came <- p
	<-p.let
	if err := holds(ctx, p.client, g); err != nil {
		return err
	}
	return released(ctx, g)
}

// letGo lets all of them release as soon as they are granted.
func (q *queue) letGo() {
	for _, p := range q.places {
		close(p.let)
	}
}

// next waits for one more grant to come to a waiter.
func (q *queue) next() *place {
	q.t.Helper()
	select {
	case p := <-q.came:
		return p
	case <-time.After(patience):
		q.t.Fatalf("%s: nobody is granted", q.lock)
		return nil
	}
}

// ended waits until all have been granted and have released.
func (q *queue) ended() {
	q.t.Helper()
	for i, p := range q.places {
		select {
		case err := <-p.done:
			if err != nil {
				q.t.Errorf("%s: place %d, session %d: %v", q.lock, i+1, p.session, err)
			}
		case <-time.After(patience):
			q.t.Fatalf("%s: place %d, session %d: not granted and released in time", q.lock, i+1, p.session)
		}
	}
}

// inOrder checks the tokens that the waiters got: they rise from place to
// place, from a first one on, and those who hold together have the same.
func (q *queue) inOrder(first *holdfast.Grant) {
	q.t.Helper()
	last, together := first.Token().Number, false
	for i, p := range q.places {
		if p.grant == nil {
			q.t.Errorf("%s: place %d has no grant", q.lock, i+1)
			return
		}
		n := p.grant.Token().Number
		if p.shared && together && n != last || !(p.shared && together) && n <= last {
			q.t.Errorf("%s: place %d, %s, has token %d after %d", q.lock, i+1, mode(p.shared), n, last)
		}
		last, together = n, p.shared
	}
}

// holds asks the service whether it knows a grant that was acknowledged and not
// released.
func holds(ctx context.Context, c *cluster.Client, g *holdfast.Grant) error {
	l, err := c.Get(ctx, g.Lock(), cluster.GetOptions{QueueLimit: 1})
	if err != nil {
		return fmt.Errorf("acknowledged grant %d: %w", g.Token().Number, err)
	}
	for _, h := range l.Holders {
		if h.Token == g.Token() && (h.Shared || len(l.Holders) == 1) {
			return g.Err()
		}
	}
	return fmt.Errorf("acknowledged grant %d is lost: the lock is %+v", g.Token().Number, l)
}

// released gives a grant back. While nobody leads a release may stay pending;
// it is repeated.
func released(ctx context.Context, g *holdfast.Grant) error {
	err := g.Release(ctx)
	for errors.Is(err, holdfast.ErrReleasePending) && ctx.Err() == nil {
		err = g.Release(ctx)
	}
	return err
}
