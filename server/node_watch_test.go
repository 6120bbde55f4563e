package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/server/core"
)

func (n *testNode) revision() core.Revision { return n.settled().Revision }

func (n *testNode) nextEvents(w *Watch) []core.Event {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	events, rev, err := w.Next(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	if rev != events[len(events)-1].Revision {
		n.t.Errorf("revision %d behind events up to %d", rev, events[len(events)-1].Revision)
	}
	return events
}

func TestWatch(t *testing.T) {
	n := startTestNode(t, nil)
	a := n.open("a", 10*time.Second)
	w, err := n.Watch(n.revision())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a quiet watch ends with %v", err)
	}
	g := n.granted(n.acquire(a, 0, 1, "l"))
	if e := n.nextEvents(w); e[len(e)-1].Kind != core.EventGranted || e[len(e)-1].Lock != "l" {
		t.Errorf("events are %+v", e)
	}
	n.do(core.Release{Session: a, Grant: g.Number})
	all, err := n.Watch(0)
	if err != nil {
		t.Fatal(err)
	}
	events := n.nextEvents(all)
	if events[0].Kind != core.EventOpened || events[len(events)-1].Kind != core.EventReleased {
		t.Errorf("all events are %+v", events)
	}
	// After a restart the state still has them, and the hub does not.
	n.restart()
	again, err := n.Watch(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.nextEvents(again); !slices.EqualFunc(got, events, func(a, b core.Event) bool { return a.Revision == b.Revision && a.Kind == b.Kind }) {
		t.Errorf("after a restart: %+v", got)
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := again.Next(context.Background()); !errors.Is(err, ErrStopped) {
		t.Errorf("a watch of a stopped node says %v", err)
	}
	if _, err := n.Watch(0); !errors.Is(err, ErrStopped) {
		t.Errorf("Watch of a stopped node says %v", err)
	}
}

// TestSlowWatcher: a watcher that sleeps costs nothing and is told to reload;
// one that keeps up sees every revision, whole and in order.
func TestSlowWatcher(t *testing.T) {
	n := startTestNode(t, nil)
	slow, err := n.Watch(0)
	if err != nil {
		t.Fatal(err)
	}
	fast, err := n.Watch(0)
	if err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for i := range 64 {
		writers.Go(func() {
			for k := range 250 {
				n.do(core.Put{Lock: fmt.Sprint("v", i), Value: fmt.Append(nil, k)})
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	var last core.Revision
	count := 0
	for running := true; running || last < n.Status().Revision; {
		select {
		case <-done:
			running = false
			if last >= n.revision() {
				continue
			}
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		events, rev, err := fast.Next(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Revision != last && e.Revision != last+1 {
				t.Fatalf("revision %d follows %d", e.Revision, last)
			}
			last = e.Revision
		}
		count += len(events)
		if rev != last {
			t.Fatalf("told revision %d after events up to %d", rev, last)
		}
	}
	if count < 64*250 {
		t.Errorf("%d events of %d", count, 64*250)
	}
	if _, _, err := slow.Next(context.Background()); !errors.Is(err, ErrCompacted) {
		t.Errorf("the slow watcher gets %v", err)
	}
	if _, err := n.Watch(1); !errors.Is(err, ErrCompacted) {
		t.Errorf("Watch from long ago says %v", err)
	}
}

// TestHubKeepsRevisionsWhole: events of one revision are read together, however
// many there are, and the list of recent ones stays bounded.
func TestHubKeepsRevisionsWhole(t *testing.T) {
	var h hub
	h.start(7)
	rev := core.Revision(7)
	for i := range 30 {
		var events []core.Event
		for range 1 + i%3*700 {
			events = append(events, core.Event{Revision: rev + 1})
		}
		rev++
		h.publish(events)
		if len(h.mu.recent) > 2*hubKeeps {
			t.Fatalf("%d events are kept", len(h.mu.recent))
		}
	}
	after := h.mu.after
	if _, kept, _, _ := h.read(after - 1); kept {
		t.Error("what is gone is given out")
	}
	for after < rev {
		events, kept, _, err := h.read(after)
		if err != nil || !kept || len(events) == 0 || events[0].Revision != after+1 {
			t.Fatalf("after %d: %d events, %v, %v", after, len(events), kept, err)
		}
		after = events[len(events)-1].Revision
		if next, _, _, _ := h.read(after); len(next) > 0 && next[0].Revision == after {
			t.Fatalf("revision %d was cut", after)
		}
	}
}
