package main

import (
	"context"
	"sync"
	"time"

	"holdfast/engine/cluster"
)

// probe takes a lock and gives it back, again and again, and knows the longest
// time between two grants.
type probe struct {
	client *cluster.Client
	stop   context.CancelFunc
	ended  chan struct{}

	mu struct {
		sync.Mutex
		began, last time.Time
		longest     time.Duration
		grants      int
		failures    int
	}
}

func startProbe(ctx context.Context, addresses string, ttl time.Duration) (*probe, error) {
	client, err := cluster.Dial(ctx, addresses, &cluster.Options{TTL: ttl, Label: "probe", OpenTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &probe{client: client, stop: stop, ended: make(chan struct{})}
	p.reset()
	go p.run(ctx)
	return p, nil
}

func (p *probe) run(ctx context.Context) {
	defer close(p.ended)
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		g, err := p.client.Locker().Acquire(ctx, "probe")
		if err == nil {
			p.granted()
			_ = g.Release(ctx) // if it failed the next acquire waits
		} else {
			p.mu.Lock()
			p.mu.failures++
			p.mu.Unlock()
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

func (p *probe) granted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.mu.longest = max(p.mu.longest, now.Sub(p.mu.last))
	p.mu.last = now
	p.mu.grants++
}

// reset begins a measurement.
func (p *probe) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.began = time.Now()
	p.mu.last, p.mu.longest, p.mu.grants = p.mu.began, 0, 0
}

// gap is the longest time without a grant since reset, the present one
// included.
func (p *probe) gap() (longest time.Duration, grants int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.mu.longest, time.Since(p.mu.last)), p.mu.grants
}

func (p *probe) close() {
	p.stop()
	<-p.ended
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = p.client.Close(ctx) // the nodes go next
}
