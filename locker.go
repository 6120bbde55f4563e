package holdfast

import (
	"context"

	"holdfast/driver"
)

// A FencedLocker hands out locks whose grants carry fencing tokens, in queue
// order. It is safe for use by several goroutines.
//
// All grants of a locker live in one session, opened when the first lock is
// asked for; a new one is opened after a loss. There is no re-entrance: a
// second Acquire of a name that this locker holds waits like any other.
type FencedLocker struct {
	c *client
}

// An EfficiencyLocker hands out locks without tokens: good where a double run
// costs work, and not truth. It is safe for use by several goroutines.
type EfficiencyLocker struct {
	c *client
}

// NewFencedLocker returns a locker on an engine with fencing tokens, and takes
// the driver over: Close closes it. A nil o means all defaults. Settings that
// cannot work are refused with an error that wraps [ErrInvalid] and shows the
// broken inequality. Nothing is sent before the first lock is asked for.
func NewFencedLocker(d driver.Fenced, o *Options) (*FencedLocker, error) {
	c, err := newClient(d, o)
	if err != nil {
		return nil, err
	}
	return &FencedLocker{c: c}, nil
}

// NewEfficiencyLocker is [NewFencedLocker] for the other species; any engine
// will do.
func NewEfficiencyLocker(d driver.Driver, o *Options) (*EfficiencyLocker, error) {
	c, err := newClient(d, o)
	if err != nil {
		return nil, err
	}
	return &EfficiencyLocker{c: c}, nil
}

// Efficiency returns the same locks without tokens, for code that should not
// depend on fencing. Both lockers share one session; closing one closes both.
func (l *FencedLocker) Efficiency() *EfficiencyLocker {
	return &EfficiencyLocker{c: l.c}
}

// Acquire waits in the lock's queue until the lock is granted, arms the gates
// given with [Arm], and returns the grant. It waits as long as ctx lets it.
//
// If it returns an error, nothing stays held: a request that ctx cut short is
// cancelled at the service, in the background if the service does not answer
// at once. The returned grant does not depend on ctx; end it with
// [Grant.Release].
//
// Errors: [ErrUnavailable], [ErrOverloaded], [ErrClosed], [ErrLimit],
// [ErrSessionLost] (the session ended while the request stood in the queue),
// [ErrSuperseded] and [*ArmError], [ErrLockerClosed], [ErrInvalid], or the
// cause of ctx.
func (l *FencedLocker) Acquire(ctx context.Context, name string, opts ...AcquireOption) (*Grant, error) {
	return l.c.grant(ctx, "acquire", name, false, opts)
}

// TryAcquire is Acquire without the wait: if the lock is not free, it returns
// [ErrBusy], or [ErrHeldByYou] if this locker itself holds it.
func (l *FencedLocker) TryAcquire(ctx context.Context, name string, opts ...AcquireOption) (*Grant, error) {
	return l.c.grant(ctx, "try", name, true, opts)
}

// Run acquires the lock, calls fn, and releases the lock after fn returned,
// also if fn panics. The context given to fn is cancelled with the cause when
// ctx ends or the grant is lost; the lock is not released before fn returned.
// The release reports success exactly if fn returned nil.
//
// Run returns what Acquire or fn returned. If the grant was lost before fn
// returned, or the release failed, that is joined to it.
func (l *FencedLocker) Run(ctx context.Context, name string, fn func(ctx context.Context, g *Grant) error, opts ...AcquireOption) error {
	g, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return runGuarded(ctx, g.h, g.Context(), func(ctx context.Context) error { return fn(ctx, g) })
}

// Close ends the session: all that this locker holds or waits for is free,
// contexts of grants are cancelled with cause "closed", and the driver is
// closed. It ignores a cancelled ctx, is bounded like [Grant.Release], and is
// idempotent.
func (l *FencedLocker) Close(ctx context.Context) error {
	return l.c.close(ctx)
}

// Stats returns what this locker has counted so far.
func (l *FencedLocker) Stats() Stats { return l.c.stats() }

// Acquire waits until the lock is granted; see [FencedLocker.Acquire].
func (l *EfficiencyLocker) Acquire(ctx context.Context, name string, opts ...HoldOption) (*Hold, error) {
	return l.c.hold(ctx, "acquire", name, false, opts)
}

// TryAcquire is Acquire without the wait; see [FencedLocker.TryAcquire].
func (l *EfficiencyLocker) TryAcquire(ctx context.Context, name string, opts ...HoldOption) (*Hold, error) {
	return l.c.hold(ctx, "try", name, true, opts)
}

// Run acquires the lock, calls fn and releases the lock after fn returned; see
// [FencedLocker.Run].
func (l *EfficiencyLocker) Run(ctx context.Context, name string, fn func(ctx context.Context, h *Hold) error, opts ...HoldOption) error {
	h, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return runGuarded(ctx, h.h, h.Context(), func(ctx context.Context) error { return fn(ctx, h) })
}

// Close ends the session and closes the driver; see [FencedLocker.Close].
func (l *EfficiencyLocker) Close(ctx context.Context) error {
	return l.c.close(ctx)
}

// Stats returns what this locker has counted so far.
func (l *EfficiencyLocker) Stats() Stats { return l.c.stats() }

// Stats counts what a locker did since it was made.
type Stats struct {
	Sessions          uint64 // sessions opened
	Keepalives        uint64 // keepalives sent
	KeepaliveFailures uint64 // keepalives that were not answered "alive"
	Losses            uint64 // grants lost
}
