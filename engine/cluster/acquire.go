package cluster

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"holdfast"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// AcquireOptions are what this service offers beyond the portable locker. The
// zero value is a plain exclusive lock, waited for.
type AcquireOptions struct {
	// Try asks for an answer at once: the grant, or [holdfast.ErrBusy].
	Try bool
	// Shared asks to hold the lock beside other shared holders.
	Shared bool
	// Limit is the number of permits, each with a slot and a mark of its own
	// at the gate; 0 and 1 are a plain lock. It must be the same for all who
	// hold or wait, and excludes Shared.
	Limit uint32
	// Value is published with the grant, for [Client.Get] and watchers, and
	// removed when the grant ends; nil for none. At most 4096 bytes.
	Value []byte
	// LockDelay keeps the lock closed for this long after the grant ended
	// without its holder confirming it (expired, revoked at once).
	LockDelay time.Duration
	// OncePer closes the lock for 0.9 × OncePer from the grant, however the
	// run ends: others, waiting or not, get [holdfast.ErrClosed].
	OncePer time.Duration
	// RetryFailed, with OncePer, closes the lock only on a release that
	// reports success (no [holdfast.Failed]).
	RetryFailed bool
	// MaxHold revokes the grant after this long.
	MaxHold time.Duration
}

// Acquire acquires a lock with this service's options, through the client's
// locker: leases, gates, losses and errors are as described at
// [holdfast.FencedLocker.Acquire].
func (c *Client) Acquire(ctx context.Context, name string, o AcquireOptions, opts ...holdfast.AcquireOption) (*holdfast.Grant, error) {
	op := "acquire"
	if o.Try {
		op = "try"
	}
	if err := o.check(); err != nil {
		return nil, &holdfast.Error{Op: op, Lock: name, Kind: holdfast.ErrInvalid, Err: err}
	}
	o.Value = bytes.Clone(o.Value) // the request may be sent again later
	// A full slice expression, so that append never writes into the caller's.
	opts = append(opts[:len(opts):len(opts)], holdfast.WithExtension(&extension{o}))
	if o.Try {
		return c.locker.TryAcquire(ctx, name, opts...)
	}
	return c.locker.Acquire(ctx, name, opts...)
}

// maxValue is the longest value of a lock, in bytes (DESIGN §3).
const maxValue = 4096

// check refuses what makes no sense together, where the client can say it
// better than the service, and what no frame could carry: that would break the
// line, again and again, on which all sessions of the client are kept alive.
// The service checks everything.
func (o *AcquireOptions) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"LockDelay", o.LockDelay}, {"OncePer", o.OncePer}, {"MaxHold", o.MaxHold}} {
		if d.value < 0 || (d.value > 0 && d.value < time.Millisecond) {
			return fmt.Errorf("%s %v: want 0, or at least 1ms", d.name, d.value)
		}
	}
	switch {
	case len(o.Value) > maxValue:
		return fmt.Errorf("value of %d bytes: at most %d are allowed", len(o.Value), maxValue)
	case o.Shared && o.Limit > 1:
		return fmt.Errorf("option Shared with Limit %d: a lock with permits has no shared holders; choose one", o.Limit)
	case o.RetryFailed && o.OncePer == 0:
		return fmt.Errorf("option RetryFailed without OncePer: set the period that a successful run closes the lock for")
	}
	return nil
}

// extension carries AcquireOptions through the portable locker.
type extension struct{ o AcquireOptions }

// Engine implements driver.Extension.
func (*extension) Engine() string { return engineName }

// put sets the options in a request. Durations are rounded up to the wire's
// milliseconds.
func (x *extension) put(m *holdfastv1.AcquireRequest) {
	m.Shared = x.o.Shared
	m.Limit = x.o.Limit
	if x.o.Value != nil {
		m.Value = x.o.Value
	}
	m.LockDelayMs = wire.MillisUp(x.o.LockDelay)
	m.OncePerMs = wire.MillisUp(x.o.OncePer)
	m.RetryFailed = x.o.RetryFailed
	m.MaxHoldMs = wire.MillisUp(x.o.MaxHold)
}
