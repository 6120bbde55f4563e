package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/engine/cluster"
)

// An acquisition is how a run comes to its lock.
type acquisition struct {
	*runRequest
	client *cluster.Client
	last   *lastRefusal
	opened uint64 // sessions, before the present try
	say    func(format string, args ...any)
}

// dial connects. That has a time-out of its own: --wait is for the lock.
func (r *runRequest) dial(ctx context.Context, w *wrapper) (*acquisition, error) {
	last := &lastRefusal{}
	client, err := r.connect(ctx, w.renewed, last, nil)
	if err != nil {
		return nil, err
	}
	return &acquisition{runRequest: r, client: client, last: last, say: w.say}, nil
}

// requeuePause spaces the tries of a run whose sessions are lost one after
// another.
const requeuePause = 100 * time.Millisecond

// get acquires the lock, or says why not and who has it. The end of a session
// that only waits takes nothing from the command, so it is not final: run
// queues again, at the tail, as long as --wait lets it.
func (a *acquisition) get(ctx context.Context) (*holdfast.Grant, error) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if a.wait > 0 {
		wait, cancel = context.WithTimeout(ctx, a.wait)
	}
	defer cancel()
	for {
		a.last.take()
		a.opened = a.client.Locker().Stats().Sessions
		grant, err := a.client.Acquire(wait, a.name, a.acquire)
		switch {
		case err == nil:
			return grant, nil
		case ctx.Err() != nil:
			return nil, err // a signal
		case !errors.Is(err, holdfast.ErrSessionLost):
			return nil, a.refused(wait, err)
		}
		a.say("%s; asking again in a new session, at the end of the queue", plainText(err))
		pause(wait, requeuePause)
	}
}

// refused gives an answer that is final its exit code.
func (a *acquisition) refused(wait context.Context, err error) error {
	switch {
	case errors.Is(err, holdfast.ErrClosed):
		return withCode(a.conflictCode, a.closed(err))
	case errors.Is(err, holdfast.ErrUnavailable):
		return unreachable(a.servers, err)
	case errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrUnsupported):
		return withCode(exitUsage, plain(err))
	case errors.Is(err, holdfast.ErrBusy), errors.Is(err, holdfast.ErrHeldByYou),
		errors.Is(err, holdfast.ErrLimit), errors.Is(err, holdfast.ErrOverloaded):
		return withCode(a.conflictCode, plain(err))
	case wait.Err() != nil:
		return a.timedOut()
	}
	return plain(err)
}

// timedOut says what stood in the way of a wait that ran out.
func (a *acquisition) timedOut() error {
	vain := fmt.Sprintf("lock %q was not granted within %v", a.name, a.wait)
	if err := a.last.take(); err != nil && a.client.Locker().Stats().Sessions == a.opened {
		return withCode(a.conflictCode, fmt.Errorf("%s: %w; try again later", vain, err))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	l, err := a.client.Get(ctx, a.name, cluster.GetOptions{})
	switch {
	case driver.KindOf(err) == driver.Unavailable:
		return unreachable(a.servers, fmt.Errorf("%s, and now: %w", vain, err))
	case err != nil && !isNotFound(err):
		return withCode(a.conflictCode, fmt.Errorf("%s, and now: %w", vain, err))
	case err != nil || len(l.Holders) == 0:
		return withCode(a.conflictCode, fmt.Errorf("%s; nobody holds it now: give --wait more time", vain))
	}
	h := l.Holders[0]
	return withCode(a.conflictCode, fmt.Errorf("%s: it is held by %s for %v (grant %d), %d waiting; see 'holdfast lock get %s'",
		vain, holderName(h.Label, h.Host, h.SessionID), h.Held.Round(time.Millisecond), h.Grant, l.Waiters, shellQuote(a.name)))
}

// closed says that the lock is closed, why, and when it opens.
func (a *acquisition) closed(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	why := "it ran already in this period"
	if a.acquire.OncePer > 0 {
		why += fmt.Sprintf(" (--once-per %v)", a.acquire.OncePer)
	}
	if l, err := a.client.Get(ctx, a.name, cluster.GetOptions{QueueLimit: 1}); err == nil && l.Closed && l.ClosedCause != "once-per" {
		why = "its last holder did not give it back (" + l.ClosedCause + ")"
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok && e.OpensIn > 0 {
		return fmt.Errorf("lock %q is closed: %s; it opens in %v, at %s", a.name, why, e.OpensIn.Round(time.Millisecond), time.Now().Add(e.OpensIn).Format(time.DateTime))
	}
	return fmt.Errorf("lock %q is closed: %s; see when it opens with 'holdfast lock get %s'", a.name, why, shellQuote(a.name))
}

// lastRefusal is a log that keeps one thing: why the last session that was
// asked for was refused. The locker tries again by itself, and so the error of
// a wait that ran out says only that it did.
type lastRefusal struct {
	mu  sync.Mutex
	err error
}

// Enabled implements slog.Handler, as the other methods do.
func (r *lastRefusal) Enabled(context.Context, slog.Level) bool { return true }

// Handle looks for an error that says that the service takes no new work.
func (r *lastRefusal) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		if ok && (driver.KindOf(err) == driver.Overloaded || driver.KindOf(err) == driver.Limit) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.err = err
		}
		return true
	})
	return nil
}

// take returns the last refusal, and forgets it.
func (r *lastRefusal) take() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.err
	r.err = nil
	return err
}

// WithAttrs and WithGroup change nothing: only errors are looked for.
func (r *lastRefusal) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup is like WithAttrs.
func (r *lastRefusal) WithGroup(string) slog.Handler { return r }
