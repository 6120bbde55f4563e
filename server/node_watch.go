package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"holdfast/server/core"
)

// hubKeeps is how many recent events watchers can read without asking the
// loop.
const hubKeeps = 4096

// watchBatch is how many events one call of Next returns at most, unless one
// revision alone has more.
const watchBatch = 1000

// hub tells watchers of events. A watcher costs no memory here, however slow
// it is: it remembers how far it came, reads the recent events from one shared
// list, older ones from the state, and is told to reload when these are gone.
type hub struct {
	mu struct {
		sync.Mutex
		after    core.Revision // recent has everything above this revision …
		revision core.Revision // … up to this one
		recent   []core.Event
		changed  chan struct{} // closed at the next change; nil if nobody waits
		err      error         // why no more events come
	}
}

// start sets the revision from which on publish is called.
func (h *hub) start(at core.Revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.after, h.mu.revision, h.mu.recent = at, at, nil
	h.broadcast()
}

// publish appends the events of one entry, in order, whole revisions.
func (h *hub) publish(events []core.Event) {
	if len(events) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.recent = append(h.mu.recent, events...)
	h.mu.revision = events[len(events)-1].Revision
	if len(h.mu.recent) > 2*hubKeeps {
		cut := len(h.mu.recent) - hubKeeps
		for cut < len(h.mu.recent) && h.mu.recent[cut].Revision == h.mu.recent[cut-1].Revision {
			cut++
		}
		h.mu.after = h.mu.recent[cut-1].Revision
		h.mu.recent = slices.Clone(h.mu.recent[cut:])
	}
	h.broadcast()
}

// end makes every Next return err.
func (h *hub) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.err == nil {
		h.mu.err = err
	}
	h.broadcast()
}

func (h *hub) broadcast() {
	if h.mu.changed != nil {
		close(h.mu.changed)
		h.mu.changed = nil
	}
}

// read returns recent events after a revision. kept is false if they must be
// asked from the state; with no events, wait is closed at the next change.
func (h *hub) read(after core.Revision) (events []core.Event, kept bool, wait <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.mu.err != nil:
		return nil, false, nil, h.mu.err
	case after >= h.mu.revision:
		if h.mu.changed == nil {
			h.mu.changed = make(chan struct{})
		}
		return nil, true, h.mu.changed, nil
	case after < h.mu.after:
		return nil, false, nil, nil
	}
	from, _ := slices.BinarySearchFunc(h.mu.recent, after+1, func(e core.Event, r core.Revision) int {
		switch {
		case e.Revision < r:
			return -1
		case e.Revision > r:
			return 1
		}
		return 0
	})
	to := min(from+watchBatch, len(h.mu.recent))
	for to < len(h.mu.recent) && h.mu.recent[to].Revision == h.mu.recent[to-1].Revision {
		to++
	}
	return slices.Clone(h.mu.recent[from:to]), true, nil, nil
}

// Watch is one watcher's place in the stream of events. Its methods must not
// be called by two goroutines at once. It needs no closing.
type Watch struct {
	node  *Node
	after core.Revision
}

// Watch starts to watch the events after a revision, on any node; it may lag
// behind the leader there, but never skips. A revision that the node has not
// reached yet is waited for. The error is [ErrCompacted], ErrStopped or
// ErrPoisoned.
func (n *Node) Watch(after core.Revision) (*Watch, error) {
	w := &Watch{node: n, after: after}
	_, kept, _, err := n.hub.read(after)
	if err != nil {
		return nil, err
	}
	if !kept {
		if _, err := w.older(context.Background()); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Next waits for events and returns them in order, the events of one revision
// always together, with the revision up to which the watcher has now seen
// everything. A watcher that fell behind what is kept gets [ErrCompacted]:
// it must load the state anew and watch from its revision.
func (w *Watch) Next(ctx context.Context) ([]core.Event, core.Revision, error) {
	for {
		events, kept, wait, err := w.node.hub.read(w.after)
		if err == nil && !kept {
			// This does not wait for anything to happen, so a caller that
			// does not want to wait either gets its answer too.
			events, err = w.older(context.WithoutCancel(ctx))
		}
		if err != nil {
			return nil, w.after, err
		}
		if len(events) > 0 {
			w.after = events[len(events)-1].Revision
			return events, w.after, nil
		}
		if wait == nil && ctx.Err() == nil {
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, w.after, fmt.Errorf("watching for events: %w", context.Cause(ctx))
		}
	}
}

// older asks the state for events that are no longer in the hub.
func (w *Watch) older(ctx context.Context) ([]core.Event, error) {
	var events []core.Event
	var ok bool
	err := w.node.View(ctx, true, func(r Reading) {
		events, ok = r.State.EventsAfter(w.after, watchBatch)
	})
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("%w: revision %d", ErrCompacted, w.after)
	}
	return events, nil
}
