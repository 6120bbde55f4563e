package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"holdfast"
	"holdfast/driver"
)

// presence is the client's session for what is not a lock: it names puts and
// deletes, so that a repeated one is one request, and values bound to it live
// as long as the client does. It is opened when it is first needed.
type presence struct {
	link    *link
	request driver.OpenRequest
	turn    chan struct{}   // holds the right to open, so that no lock is held meanwhile
	ctx     context.Context // ends when closing begins
	stop    context.CancelFunc

	mu struct {
		sync.Mutex
		cur    *opened
		closed bool
	}
	loops sync.WaitGroup
}

// opened is one session of a presence, with its lanes (C1).
type opened struct {
	s    *session
	stop context.CancelFunc // of its keepalives

	mu struct {
		sync.Mutex
		free []uint32
		n    []uint64 // by lane, the last number used
	}
}

func newPresence(l *link, o *Options) *presence {
	p := &presence{link: l, turn: make(chan struct{}, 1)}
	p.ctx, p.stop = context.WithCancel(l.ctx)
	p.request = driver.OpenRequest{TTL: o.TTL, Label: o.Label, Host: o.host()}
	if p.request.TTL == 0 {
		p.request.TTL = holdfast.DefaultTTL
	}
	return p
}

// session returns the session that lives, and opens one if there is none.
func (p *presence) session(ctx context.Context) (*opened, *driver.Error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: ctx.Err()}
	}
	p.mu.Lock()
	cur, closed := p.mu.cur, p.mu.closed
	p.mu.Unlock()
	switch {
	case closed:
		return nil, &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: errClosed}
	case cur != nil && !cur.lost():
		return cur, nil
	case cur != nil:
		cur.stop()
	}
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	s, e := p.link.open(opening, p.request)
	if e != nil {
		// A session may stand without its opener; nothing of the caller's
		// request has happened.
		c := *e
		c.Outcome = driver.No
		return nil, &c
	}
	alive, stop := context.WithCancel(p.ctx)
	cur = &opened{s: s, stop: stop}
	p.mu.Lock()
	p.mu.cur = cur
	p.loops.Add(1)
	p.mu.Unlock()
	go func() { defer p.loops.Done(); cur.keepAlive(alive) }()
	return cur, nil
}

func (o *opened) lost() bool {
	select {
	case <-o.s.gone:
		return true
	default:
		return false
	}
}

// keepAlive keeps the session until it is lost or ctx ends. It has no lease to
// watch: nothing here claims to be held.
func (o *opened) keepAlive(ctx context.Context) {
	every := o.s.ttl / 4
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-o.s.gone:
			return
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, every)
		_, _ = o.s.Keepalive(call) // the next tick tries again; a loss closes gone
		cancel()
	}
}

// next names a request: the lowest free lane, and the next number on it.
func (o *opened) next() driver.RequestID {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.free) == 0 {
		o.mu.free = append(o.mu.free, uint32(len(o.mu.n)))
		o.mu.n = append(o.mu.n, 0)
	}
	lane := slices.Min(o.mu.free)
	o.mu.free = slices.DeleteFunc(o.mu.free, func(l uint32) bool { return l == lane })
	o.mu.n[lane]++
	return driver.RequestID{Lane: lane, N: o.mu.n[lane]}
}

// done frees the request's lane. That holds also for a request whose outcome
// is not known: it never waits in a queue, and a late copy of it has no effect
// once the service has seen the lane's next number.
func (o *opened) done(id driver.RequestID) {
	o.mu.Lock()
	o.mu.free = append(o.mu.free, id.Lane)
	o.mu.Unlock()
}

// close ends the session, in a bounded time.
func (p *presence) close(ctx context.Context) error {
	p.stop()
	p.turn <- struct{}{} // an open under way ends at once
	defer func() { <-p.turn }()
	p.mu.Lock()
	cur := p.mu.cur
	p.mu.closed, p.mu.cur = true, nil
	p.mu.Unlock()
	if cur == nil {
		return nil
	}
	cur.stop()
	p.loops.Wait()
	end, cancel := context.WithTimeout(ctx, min(cur.s.ttl/4, maxSilence))
	defer cancel()
	return cur.s.End(end)
}
