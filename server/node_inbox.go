package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/server/core"
)

// request is one thing that came to the loop from outside. One of cmd, pulse,
// view, ask and drained is set.
type request struct {
	cmd   core.Command
	audit *core.Audit // the record of cmd, for the same entry; or nil
	sink  func(Answer)

	session core.SessionID
	pulse   func(Pulse)
	arrived time.Duration // on the node's monotonic clock

	view *viewing

	ask *asking

	drained uint64 // the drain that is done; 0: none
}

// refusal is a request that was turned away at the door. The loop answers it,
// so that a sink is never called by the goroutine that submitted.
type refusal struct {
	req request
	err error
}

// answer tells the request's owner that it failed with err.
func (r *request) answer(err error) {
	switch {
	case r.sink != nil:
		r.sink(Answer{Err: err})
	case r.pulse != nil:
		r.pulse(Pulse{Err: err})
	case r.view != nil:
		r.view.finish(err)
	case r.ask != nil:
		r.ask.done(err)
	}
}

// inbox holds what arrived since the loop last looked. It is bounded: new
// work is refused first; what keeps sessions alive or frees locks has room for
// as much again, and is taken first.
type inbox struct {
	// signal has room for one value: "look into the inbox".
	signal chan struct{}
	limit  int

	mu struct {
		sync.Mutex
		urgent   []request
		ordinary []request
		refused  []refusal
		closed   error // once set, nothing is taken
	}
}

func (in *inbox) wake() {
	select {
	case in.signal <- struct{}{}:
	default:
	}
}

// put gives r to the loop, or refuses it: in any case r is answered once, and
// never by this goroutine.
func (in *inbox) put(r request, urgent bool) {
	in.mu.Lock()
	waiting := len(in.mu.urgent) + len(in.mu.ordinary)
	switch {
	case in.mu.closed != nil:
		err := in.mu.closed
		in.mu.Unlock()
		go r.answer(err)
		return
	case urgent && waiting < 2*in.limit:
		in.mu.urgent = append(in.mu.urgent, r)
	case !urgent && waiting < in.limit:
		in.mu.ordinary = append(in.mu.ordinary, r)
	case r.drained != 0:
		in.mu.urgent = append(in.mu.urgent, r)
	default:
		in.mu.refused = append(in.mu.refused, refusal{r, fmt.Errorf("%w: %d requests wait: try again later", ErrOverloaded, waiting)})
	}
	in.mu.Unlock()
	in.wake()
}

// take empties the inbox into the given slices, whose memory is reused.
func (in *inbox) take(urgent, ordinary []request) (u, o []request, refused []refusal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	u, in.mu.urgent = in.mu.urgent, urgent[:0]
	o, in.mu.ordinary = in.mu.ordinary, ordinary[:0]
	refused, in.mu.refused = in.mu.refused, nil
	return u, o, refused
}

// close makes put refuse everything with err from now on.
func (in *inbox) close(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.closed == nil {
		in.mu.closed = err
	}
}

// urgent reports whether a command frees something or keeps it alive: such
// commands are taken before new work and when new work is refused. So is the
// record of an operator's call: a leader whose disk is full must let itself be
// replaced, and only so many records are kept.
func urgent(cmd core.Command) bool {
	switch cmd.(type) {
	case core.Release, core.Cancel, core.End, core.Revoke, core.Clear, core.Audit:
		return true
	}
	return false
}

// Submit proposes one command, on behalf of anybody and from any goroutine.
// sink is called exactly once with a final answer, and before that at most
// once with a Waiting one (only for [core.Acquire]). It is called on the
// node's loop (once the node has stopped, on a goroutine of its own), never by
// the goroutine that calls Submit, and must not block.
//
// Submitting an acquire with the same session, lane and number again while it
// waits is the same request: the older sink gets [ErrReplaced], the new one
// the answer. An open beyond MaxSessions is refused with [ErrOverloaded].
func (n *Node) Submit(cmd core.Command, sink func(Answer)) {
	n.in.put(request{cmd: cmd, sink: sink}, urgent(cmd))
}

// Keepalive says that the client of a session was heard at this instant. The
// sink is called exactly once, under the same rules as that of
// [Node.Submit], once leadership was confirmed after this instant (B5).
func (n *Node) Keepalive(session core.SessionID, sink func(Pulse)) {
	n.in.put(request{session: session, pulse: sink, arrived: n.now()}, true)
}

// viewing is one call of [Node.View].
type viewing struct {
	stale bool
	fn    func(Reading)
	// state goes from 0 to 1 when the loop runs fn, or to 2 when the caller
	// gave up before that.
	state atomic.Int32
	done  chan error
}

func (v *viewing) finish(err error) { v.done <- err } // has room

// run calls fn unless the caller has gone.
func (v *viewing) run(r Reading) {
	if v.state.CompareAndSwap(0, 1) {
		v.fn(r)
		v.finish(nil)
	}
}

// View calls fn once, on the node's loop, with the current state. Unless stale
// is set that happens after leadership was confirmed by a quorum, so fn sees
// everything that was answered before View was called. fn must be short, must
// not block, and must not keep the Reading.
//
// The error is nil if and only if fn was called: else a [*NotLeaderError],
// ErrOverloaded, ErrStopped, ErrPoisoned, or that of ctx.
func (n *Node) View(ctx context.Context, stale bool, fn func(Reading)) error {
	return n.view(ctx, stale, false, fn)
}

// view is View; urgent is for what must be read before something urgent can be
// submitted.
func (n *Node) view(ctx context.Context, stale, urgent bool, fn func(Reading)) error {
	v := &viewing{stale: stale, fn: fn, done: make(chan error, 1)}
	n.in.put(request{view: v}, urgent)
	select {
	case err := <-v.done:
		return err
	case <-ctx.Done():
		if v.state.CompareAndSwap(0, 2) {
			return fmt.Errorf("reading the state: %w", context.Cause(ctx))
		}
		return <-v.done // fn runs already
	}
}
