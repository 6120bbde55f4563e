package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast/engine/cluster"
)

// rateSeconds is the time over which rates are taken, and rateLocks of how many
// locks each second is kept.
const (
	rateSeconds = 10
	rateLocks   = 4096
)

// topRates counts events of the last seconds.
type topRates struct {
	mu      sync.Mutex
	began   time.Time
	slots   [rateSeconds]topCounts
	skipped bool          // the service did not keep all events since
	poke    chan struct{} // something happened
}

// topCounts are the events of one second.
type topCounts struct {
	second                         int64
	granted, queued, ended, lapsed int
	byLock                         map[string]int
}

func newTopRates(now time.Time) *topRates {
	return &topRates{began: now, poke: make(chan struct{}, 1)}
}

// reset begins anew: other locks are watched from now on.
func (r *topRates) reset(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began, r.skipped, r.slots = now, false, [rateSeconds]topCounts{}
}

// add counts events.
func (r *topRates) add(now time.Time, events []cluster.Event) {
	if len(events) == 0 {
		return
	}
	r.mu.Lock()
	s := &r.slots[now.Unix()%rateSeconds]
	if s.second != now.Unix() {
		*s = topCounts{second: now.Unix(), byLock: map[string]int{}}
	}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case "granted":
			s.granted++
			if _, ok := s.byLock[e.Lock]; ok || len(s.byLock) < rateLocks {
				s.byLock[e.Lock]++
			}
		case "queued":
			s.queued++
		case "released":
			s.ended++
			if e.Cause == "expired" {
				s.lapsed++
			}
		}
	}
	r.mu.Unlock()
	r.wake()
}

func (r *topRates) wake() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// topRate is what happened a second, over the last ten or since the start.
type topRate struct {
	granted, queued, ended, lapsed float64
	byLock                         map[string]float64
	skipped                        bool
}

func (r *topRates) rate(now time.Time) topRate {
	r.mu.Lock()
	defer r.mu.Unlock()
	span := min(now.Sub(r.began), (rateSeconds-1)*time.Second+time.Duration(now.Nanosecond()))
	per := 1 / max(span.Seconds(), 1)
	out := topRate{byLock: map[string]float64{}, skipped: r.skipped}
	for i := range r.slots {
		s := &r.slots[i]
		if now.Unix()-s.second >= rateSeconds {
			continue
		}
		out.granted += float64(s.granted) * per
		out.queued += float64(s.queued) * per
		out.ended += float64(s.ended) * per
		out.lapsed += float64(s.lapsed) * per
		for lock, n := range s.byLock {
			out.byLock[lock] += float64(n) * per
		}
	}
	return out
}

// follow counts the events of the locks with a prefix until ctx ends, over
// every outage.
func (r *topRates) follow(ctx context.Context, client *cluster.Client, prefix string) {
	o := cluster.WatchOptions{Prefix: prefix}
	for ctx.Err() == nil {
		for batch, err := range client.Watch(ctx, o) {
			if errors.Is(err, cluster.ErrCompacted) {
				r.mu.Lock()
				r.skipped = true
				r.mu.Unlock()
				o.After = nil
			}
			if err != nil {
				break
			}
			o.After = &batch.Revision
			r.add(time.Now(), batch.Events)
		}
		if ctx.Err() == nil {
			pause(ctx, watchRetry)
		}
	}
}
