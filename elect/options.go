package elect

import (
	"fmt"
	"log/slog"
	"time"

	"holdfast"
	"holdfast/fence"
)

// Defaults of [Options].
const (
	DefaultRest      = 5 * time.Second
	DefaultBackoff   = time.Second
	DefaultTolerance = 2 * holdfast.DefaultTTL
	DefaultSettle    = 10 * time.Second
)

// Options are the settings of an [Elector]. A zero field means its default.
type Options struct {
	// Board publishes Value and shows the primary; nil does without. All
	// candidates of an election should have one or none: who has none does
	// not hand over to a preferred candidate.
	Board Board
	// Value is published while this candidate is primary; nil for none. It
	// needs a Board. [Elector.SetValue] changes it.
	Value []byte
	// Prefer makes this the candidate that should be in office whenever it
	// can. It needs a Board. These rules keep the office from going to and
	// fro:
	//
	//   - A preferred candidate asks for the office once it has stood in the
	//     queue for Settle without a break. It asks by holding the lock
	//     NAME/preferred, in the same session.
	//   - A primary that is not preferred then hands over: its function's
	//     context ends with cause [ErrPreferred], and the lock is released
	//     when the function has returned, in its own time. Who is granted
	//     the lock before the preferred one passes it on unused, once, and
	//     queues again (observers may see it as primary for that moment). So one request for the office ends at most one time
	//     in office, and one that comes to nothing leaves the next candidate
	//     of the queue in office.
	//   - A preferred primary hands over to nobody. Of several preferred
	//     candidates one asks at a time.
	//   - A preferred candidate that left office by its own will (StepDown,
	//     a revoke, its function's return) does not ask again in this Run:
	//     it stands as any other.
	Prefer bool
	// Settle is how long a preferred candidate stands before it asks;
	// default 10 s.
	Settle time.Duration
	// StopOnReturn ends Run when the function returns nil without being told
	// to end; otherwise the candidate rests, and stands again.
	StopOnReturn bool
	// StopOnFailure ends Run when the function returns an error without
	// being told to end; otherwise the candidate rests, and stands again.
	StopOnFailure bool
	// Rest is how long a candidate does not stand after it left office by its
	// own will or an operator's (StepDown, a revoke, its function's return),
	// so that also those have a chance that did not wait in the queue just
	// then; default 5 s. After any other loss it stands again at once.
	Rest time.Duration
	// Backoff is the longest pause between two tries when the lock cannot be
	// asked for, or times in office are very short; default 1 s. There is
	// always a next try.
	Backoff time.Duration
	// Tolerance is how long a candidate may be out of office and out of the
	// queue before [Elector.Check] fails; default 30 s, twice the default
	// TTL.
	Tolerance time.Duration
	// Acquire are further options of each acquire: gates to arm, a liveness
	// callback. With a Value, options of the engine have no room.
	Acquire []holdfast.AcquireOption
	// Logger gets what happens to this candidate; nil means silence.
	Logger *slog.Logger
}

// markerSuffix makes the name of the lock that a preferred candidate holds
// while it asks.
const markerSuffix = "/preferred"

// complete returns a copy with the defaults filled in, or the broken rule.
func (o *Options) complete(name string) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"Settle", &c.Settle, DefaultSettle}, {"Rest", &c.Rest, DefaultRest},
		{"Backoff", &c.Backoff, DefaultBackoff}, {"Tolerance", &c.Tolerance, DefaultTolerance},
	} {
		switch {
		case *d.value < 0:
			return c, fmt.Errorf("%w: %s %v: must be above 0", holdfast.ErrInvalid, d.name, *d.value)
		case *d.value == 0:
			*d.value = d.standard
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("election", name)
	if c.Board == nil {
		if c.Value != nil || c.Prefer {
			return c, errNoBoard
		}
		return c, nil
	}
	if longest := fence.MaxLockName - len(markerSuffix); len(name) > longest {
		return c, fmt.Errorf("%w: name of %d bytes: with a Board at most %d are allowed, since %s is added to it", holdfast.ErrInvalid, len(name), longest, markerSuffix)
	}
	_, err := publishing(c.Board, c.Value)
	return c, err
}

// publishing is the option that publishes a value; nil is none.
func publishing(b Board, value []byte) ([]holdfast.AcquireOption, error) {
	if value == nil {
		return nil, nil
	}
	opt, err := b.Value(value)
	if err != nil {
		return nil, err
	}
	return []holdfast.AcquireOption{opt}, nil
}
