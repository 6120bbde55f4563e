package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/internal/watchdog"
)

// handle is what a Grant and a Hold are made of. It must not lead back to
// them, nor to a locker, so that the runtime can tell when these are dropped.
type handle struct {
	s         *session
	id        string
	lock      string
	token     fence.Token
	contended chan struct{}
	ctx       context.Context // ends with the grant
	cancel    context.CancelCauseFunc
	confirmed chan struct{} // closed when the release is confirmed

	// dropped is set when neither a Grant nor its context leads here any
	// more. The session's next tick sees it: the runtime's own goroutine
	// must not touch timers of a testing/synctest bubble.
	dropped atomic.Bool

	// Guarded by s.mu:
	asked    bool // Release was called
	done     bool // confirmed is closed
	ended    bool // contended is closed
	loss     *Lost
	fault    error           // what the liveness callback said last
	values   context.Context // of the first Release
	released error           // why the last attempt to release failed
	refused  chan struct{}   // closed when the service refuses the release
}

func newHandle(s *session, w *waiter, g driver.Grant) *handle {
	ctx, cancel := context.WithCancelCause(w.values)
	return &handle{
		s: s, id: g.ID, lock: w.lock, token: g.Token, ctx: ctx, cancel: cancel,
		contended: make(chan struct{}, 1), confirmed: make(chan struct{}), refused: make(chan struct{}),
	}
}

// drops says that nothing leads to the handle any more.
func (h *handle) drops() {
	h.dropped.Store(true)
	h.s.drops.Store(true) // after the handle's own: the tick looks here first
}

// lose, contend, confirm and attempted are called with s.mu held.

func (h *handle) lose(a watchdog.Action, err error) {
	h.loss = &Lost{Lock: h.lock, Cause: Cause(a.Cause), By: a.By, Err: cmp.Or(h.fault, err)}
	h.s.c.losses.Add(1)
	h.s.say("lock lost", "lock", h.lock, "grant", h.id, "cause", a.Cause.String(), "by", a.By, "error", h.loss.Err)
	h.end(h.loss)
}

func (h *handle) contend() {
	select {
	case h.contended <- struct{}{}:
	default:
	}
}

// confirm is called once, when the service has confirmed the release.
func (h *handle) confirm() {
	h.done = true
	delete(h.s.mu.handles, h.id)
	close(h.confirmed)
}

func (h *handle) attempted(err error, v watchdog.Verdict) {
	h.released = err
	if v == watchdog.Refused {
		close(h.refused)
		h.refused = make(chan struct{})
	}
}

func (h *handle) end(cause error) {
	h.cancel(cause)
	if !h.ended {
		h.ended = true
		close(h.contended)
	}
}

func (h *handle) state() State {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	now := h.s.recheck()
	switch {
	case h.loss != nil:
		return StateLost
	case h.done:
		return StateReleased
	case h.asked:
		return StateReleasing
	}
	return State(h.s.mu.m.State(now, h.id))
}

func (h *handle) lost() *Lost {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.recheck()
	return h.loss
}

func (h *handle) err() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.recheck()
	switch {
	case h.loss != nil:
		return h.loss
	case h.asked:
		return ErrReleased
	}
	return nil
}

func (h *handle) left() time.Duration {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	left := h.s.left()
	if h.loss != nil || h.asked {
		return 0
	}
	return left
}

// release gives the grant back and waits a bounded time.
func (h *handle) release(ctx context.Context, opts []ReleaseOption) error {
	var o releaseOptions
	for _, opt := range opts {
		if opt != nil {
			opt.applyRelease(&o)
		}
	}
	refused := h.ask(ctx, o.failed)
	bound := time.NewTimer(h.s.c.releaseBound())
	defer bound.Stop()
	select {
	case <-h.confirmed:
		return nil
	case <-h.s.finished:
		return nil
	case <-refused:
		err := h.lastRelease()
		return wrap("release", h.lock, kindOf(err), err)
	case <-bound.C:
		return wrap("release", h.lock, ErrReleasePending, cmp.Or(h.lastRelease(), errNoAnswer))
	}
}

var errNoAnswer = errors.New("no answer from the service")

// ask starts or hurries the release.
func (h *handle) ask(ctx context.Context, failed bool) (refused <-chan struct{}) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.recheck()
	if !h.asked {
		h.asked = true
		h.values = context.WithoutCancel(ctx)
		h.end(ErrReleased)
	}
	refused = h.refused
	h.s.perform(h.s.mu.m.Release(h.s.now(), h.id, failed), outcome{})
	return refused
}

func (h *handle) lastRelease() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.released
}

// drop gives up a grant to which nothing leads any more. s.mu is held.
func (h *handle) drop() {
	switch {
	case h.asked || h.done:
	case h.loss != nil:
		h.asked = true
		h.s.perform(h.s.mu.m.Release(h.s.now(), h.id, true), outcome{})
	default:
		h.s.say("grant dropped without a release", "lock", h.lock, "grant", h.id)
		h.s.perform(h.s.mu.m.Fail(h.s.now(), h.id, watchdog.Dropped), outcome{})
	}
}

// prepare makes a granted handle ready to hand out: its gates are armed and
// its liveness is watched. If that fails, the grant is released.
func (h *handle) prepare(ctx context.Context, op string, o acquireOptions) (err error) {
	ready := false
	defer func() {
		if !ready { // also when a gate panics
			_ = h.release(ctx, []ReleaseOption{Failed()}) // if not confirmed, it goes on in the background
		}
	}()
	if len(o.gates) > 0 {
		if err := h.arm(ctx, o.gates); err != nil {
			var kind error
			if _, stale := errors.AsType[*fence.StaleError](err); stale {
				kind = ErrSuperseded
			}
			return wrap(op, h.lock, kind, err)
		}
	}
	if ctx.Err() != nil {
		return wrap(op, h.lock, nil, endOf(ctx))
	}
	if loss := h.lost(); loss != nil {
		return wrap(op, h.lock, nil, loss)
	}
	if o.alive != nil {
		go h.watch(*o.alive)
	}
	ready = true
	return nil
}

// arm arms all gates in order, within ctx and the lease (E3).
func (h *handle) arm(ctx context.Context, gates []Gate) error {
	armCtx, cancel := context.WithCancelCause(h.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(endOf(ctx)) })()
	lease := h.s.c.o.TTL - h.s.c.o.Margin
	armCtx, stop := context.WithTimeoutCause(armCtx, lease, fmt.Errorf("%w: arming took longer than a lease is good for, %v", context.DeadlineExceeded, lease))
	defer stop()
	for i, g := range gates {
		if err := armOne(armCtx, g, h.token); err != nil {
			if armCtx.Err() != nil {
				err = fmt.Errorf("%w (%w)", context.Cause(armCtx), err)
			}
			return &ArmError{Gate: g, Index: i, Err: err}
		}
	}
	return nil
}

// armOne returns at the latest when ctx ends, whatever the gate does. A gate
// that arms later raises its mark to a dead number, which harms nobody (E3).
func armOne(ctx context.Context, g Gate, t fence.Token) error {
	type result struct {
		err      error
		panicked any
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: errors.New("the gate ended its goroutine")}
		defer func() {
			r.panicked = recover()
			done <- r
		}()
		r.err = g.Arm(ctx, t)
	}()
	select {
	case r := <-done:
		if r.panicked != nil {
			panic(r.panicked) // in the caller's goroutine, where it can be recovered
		}
		return r.err
	case <-ctx.Done():
		return errors.New("the gate did not answer in time")
	}
}

// aliveCheck is a liveness callback; see [Alive].
type aliveCheck struct {
	every    time.Duration
	failures int
	fn       func() error
}

// watch asks the liveness callback until the grant ends.
func (h *handle) watch(a aliveCheck) {
	ticker := time.NewTicker(a.every)
	defer ticker.Stop()
	answers := make(chan error, 1)
	asking, failed := false, 0
	for {
		select {
		case <-h.ctx.Done():
			return
		case err := <-answers:
			asking = false
			if err == nil {
				failed = 0
				continue
			}
			failed++
			if failed >= a.failures {
				h.fail(err)
				return
			}
		case <-ticker.C:
			switch {
			case asking && len(answers) > 0:
				continue // it came in time, and is read next
			case asking:
				failed++
				if failed >= a.failures {
					h.fail(fmt.Errorf("no answer within %v", a.every))
					return
				}
				continue
			}
			asking = true
			go func() {
				if h.ctx.Err() != nil {
					return // the tick and the end came at the same moment
				}
				answers <- a.fn()
			}()
		}
	}
}

// fail gives the grant up because its owner shows no sign of life.
func (h *handle) fail(err error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.fault = err
	h.s.perform(h.s.mu.m.Fail(h.s.now(), h.id, watchdog.Liveness), outcome{})
}

// runGuarded calls fn and releases after it returned, panicked, or ended its
// goroutine (C33).
func runGuarded(ctx context.Context, h *handle, lease context.Context, fn func(context.Context) error) (err error) {
	runCtx, cancel := context.WithCancelCause(lease)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(endOf(ctx)) })()
	failed := true
	defer func() {
		loss := h.lost()
		var opts []ReleaseOption
		if failed {
			opts = append(opts, Failed())
		}
		released := h.release(ctx, opts)
		if loss != nil {
			released = wrap("run", h.lock, nil, loss)
		}
		if released != nil {
			err = errors.Join(err, released)
		}
	}()
	err = fn(runCtx)
	failed = err != nil
	return err
}

// leaseContext is the context of a grant. It asks the clock at every look, so
// that no work starts on a lease that ran out while the machine slept (C36).
type leaseContext struct {
	context.Context
	h *handle
}

func (c *leaseContext) check() {
	c.h.s.mu.Lock()
	defer c.h.s.mu.Unlock()
	c.h.s.recheck()
}

func (c *leaseContext) Done() <-chan struct{} {
	c.check()
	return c.Context.Done()
}

func (c *leaseContext) Err() error {
	c.check()
	return c.Context.Err()
}

func (c *leaseContext) Value(key any) any {
	c.check()
	return c.Context.Value(key)
}
