//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/engine/cluster"
)

// A watcher is told by the service of every change of a lock, from the hub.
type watcher struct {
	client *cluster.Client
	stop   context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	events   []grantEvent
	expired  int
	revision uint64
	holes    int // times that the service no longer had the next events
}

// newWatcher returns once the watch stands.
func (r *run) newWatcher(ctx context.Context) (*watcher, error) {
	c, err := cluster.Dial(ctx, r.endpoints(), &cluster.Options{Label: "watcher", TLSNow: r.tls.Client, Dialer: r.net.dial})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{client: c, stop: stop, done: make(chan struct{})}
	stands := make(chan struct{})
	go func() {
		defer close(w.done)
		w.watch(ctx, sync.OnceFunc(func() { close(stands) }))
	}()
	select {
	case <-stands:
		return w, nil
	case <-w.done:
		return nil, errors.New("the watch ended at once")
	}
}

func (w *watcher) watch(ctx context.Context, stands func()) {
	for ctx.Err() == nil {
		for b, err := range w.client.Watch(ctx, cluster.WatchOptions{Prefix: locksPrefix}) {
			if errors.Is(err, cluster.ErrCompacted) {
				w.mu.Lock()
				w.holes++
				w.mu.Unlock()
			}
			if err != nil {
				break
			}
			w.take(b)
			stands()
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func (w *watcher) take(b cluster.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision = b.Revision
	for _, e := range b.Events {
		if e.Token.IsZero() {
			continue // no grant
		}
		w.events = append(w.events, grantEvent{e.Kind, e.Cause, e.Lock, e.Token.Number})
		if e.Kind == "released" && e.Cause == "expired" {
			w.expired++
		}
	}
}

// end waits until the watcher knows all that there was, and closes it.
func (w *watcher) end(ctx context.Context) ([]grantEvent, error) {
	defer func() {
		w.stop()
		<-w.done
		_ = w.client.Close(ctx)
	}()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	last, err := w.client.Put(ctx, locksPrefix+"end", nil, cluster.PutOptions{})
	if err != nil {
		return nil, err
	}
	for {
		w.mu.Lock()
		revision, holes, events := w.revision, w.holes, w.events
		w.mu.Unlock()
		if revision >= last {
			if holes > 0 {
				return nil, nil
			}
			return events, nil
		}
		if !pause(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("the watcher is at revision %d, the service at %d", revision, last)
		}
	}
}
