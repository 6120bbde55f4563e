package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// A server process that is killed is no more than a pause: watches go on
// without a gap, and calls that were under way are made again.
func TestCallsAndWatchesGoOnOverAKill(t *testing.T) {
	t.Parallel()
	p := startProcess(t)
	c := dial(t, p.addr, &Options{TTL: 10 * time.Second})
	const watches = 8
	started, got, ended := make(chan struct{}, watches), make(chan Event, 1000), make(chan error, watches)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range watches {
		go func() {
			for b, err := range c.Watch(ctx, WatchOptions{Lock: fmt.Sprint("w/", i)}) {
				if err != nil {
					ended <- err
					return
				}
				if len(b.Events) == 0 {
					started <- struct{}{}
				}
				for _, e := range b.Events {
					got <- e
				}
			}
		}()
	}
	for range watches {
		<-started
	}
	for round := range 3 {
		p.kill()
		outcomes := callAtOnce(ctx, c, watches, byte(round))
		p.start()
		for range 2 * watches {
			if err := <-outcomes; err != nil {
				t.Errorf("round %d: a call over a kill: %v", round, err)
			}
		}
		seen := map[string]bool{}
		for len(seen) < watches {
			select {
			case e := <-got:
				if e.Kind != "put" || e.Value[0] != byte(round) || seen[e.Lock] {
					t.Fatalf("round %d: event %+v", round, e)
				}
				seen[e.Lock] = true
			case err := <-ended:
				t.Fatalf("round %d: a watch ended: %v", round, err)
			case <-time.After(10 * time.Second):
				t.Fatalf("round %d: only %d of %d watches saw the put", round, len(seen), watches)
			}
		}
	}
	cancel()
	for range watches {
		if err := <-ended; err != context.Canceled {
			t.Errorf("a watch ended with %v", err)
		}
	}
}

// callAtOnce makes n puts and n lists, and returns how each ends.
func callAtOnce(ctx context.Context, c *Client, n int, value byte) <-chan error {
	outcomes := make(chan error, 2*n)
	for i := range n {
		go func() {
			call, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, err := c.Put(call, fmt.Sprint("w/", i), []byte{value}, PutOptions{})
			outcomes <- err
		}()
		go func() {
			call, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			var failed error
			for _, failed = range c.List(call, "w/", ListOptions{}) {
			}
			outcomes <- failed
		}()
	}
	return outcomes
}
