package holdfast

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/internal/watchdog"
)

// Limits and defaults of [Options].
const (
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 15 * time.Second
	// MaxLabel is the longest Label and Host, in bytes.
	MaxLabel = 256
	// DefaultOpenTimeout is the default of Options.OpenTimeout.
	DefaultOpenTimeout = 5 * time.Second
)

// Options are the settings of a locker. A zero field means its default.
type Options struct {
	// TTL is how long the service keeps the session's locks after it last
	// heard of it: 1 s – 24 h, default 15 s.
	TTL time.Duration
	// Margin is how long before the end of the TTL the client gives up:
	// above 0 and below TTL, default TTL/10. While clock rates differ by
	// less than Margin ÷ TTL, the client gives up first.
	Margin time.Duration
	// KeepaliveInterval is how often the session is kept alive, default
	// TTL/6.
	KeepaliveInterval time.Duration
	// CallTimeout bounds each single call to the service, default
	// KeepaliveInterval. KeepaliveInterval + 2 × CallTimeout ≤ TTL − Margin
	// must hold, so that one lost keepalive costs nothing.
	CallTimeout time.Duration
	// OpenTimeout bounds the search for a service that opens a session,
	// with its retries; default 5 s.
	OpenTimeout time.Duration
	// Label says, for people, who holds a lock ("billing run on db7"); at
	// most 256 bytes of UTF-8. It never decides ownership.
	Label string
	// Host is the machine's name, for people; at most 256 bytes of UTF-8.
	Host string
	// Clock tells the time since any fixed start, and must count the time
	// that the machine sleeps. The default is CLOCK_BOOTTIME on Linux. Only
	// differences of its readings are used. It must not be a wall clock:
	// being set forward looks like a sleep, and costs the lease; being set
	// back loses the time since the last look, at most a second.
	// Tests on virtual time give one that follows package time.
	Clock func() time.Duration
	// Logger gets losses and failures; nil means silence.
	Logger *slog.Logger
	// OnPulse, if not nil, is called after each keepalive is settled, by a
	// goroutine of the locker. It must return soon.
	OnPulse func(PulseInfo)
}

// A PulseInfo tells how one keepalive went, for people who watch.
type PulseInfo struct {
	// Err is nil if the service answered, and why not otherwise.
	Err error
	// Took is how long the answer, or the failure, took.
	Took time.Duration
	// Left is how long the lease is still good for, after this pulse.
	Left time.Duration
	// Failures counts the keepalives that failed in a row, with this one.
	Failures int
	// Locks are the names of the locks that the session holds.
	Locks []string
}

// timing returns the settings of the watchdog with defaults filled in.
func (o *Options) timing() watchdog.Settings {
	return watchdog.Settings{
		TTL: o.TTL, Margin: o.Margin, Interval: o.KeepaliveInterval, CallTimeout: o.CallTimeout,
	}.WithDefaults()
}

// complete returns a copy with defaults filled in, or what is wrong.
func (o *Options) complete() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	s := c.timing()
	if err := s.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c.TTL, c.Margin, c.KeepaliveInterval, c.CallTimeout = s.TTL, s.Margin, s.Interval, s.CallTimeout
	if c.OpenTimeout == 0 {
		c.OpenTimeout = DefaultOpenTimeout
	}
	switch {
	case c.OpenTimeout < 0:
		return c, fmt.Errorf("%w: open timeout %v: must be above 0", ErrInvalid, c.OpenTimeout)
	case len(c.Label) > MaxLabel:
		return c, fmt.Errorf("%w: label has %d bytes: at most %d are allowed", ErrInvalid, len(c.Label), MaxLabel)
	case len(c.Host) > MaxLabel:
		return c, fmt.Errorf("%w: host has %d bytes: at most %d are allowed", ErrInvalid, len(c.Host), MaxLabel)
	case !utf8.ValidString(c.Label):
		return c, fmt.Errorf("%w: label %q is not UTF-8", ErrInvalid, c.Label)
	case !utf8.ValidString(c.Host):
		return c, fmt.Errorf("%w: host %q is not UTF-8", ErrInvalid, c.Host)
	}
	if c.Clock == nil {
		c.Clock = sinceBoot
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// CheckGrace refuses a grace period, the time between asking guarded work to
// stop and ending it by force, that does not fit the other settings: unless
// Margin + grace + 3 × KeepaliveInterval ≤ TTL (so that two keepalives may
// fail before the work is asked to stop), CallTimeout ≤ KeepaliveInterval, and
// grace ≤ TTL/2 (F1). The error wraps [ErrInvalid] and shows the broken
// inequality. A nil o means all defaults.
func CheckGrace(o *Options, grace time.Duration) error {
	c, err := o.complete()
	if err != nil {
		return err
	}
	if err := c.timing().CheckGrace(grace); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// RunTiming derives settings for guarded work that is ended by force when its
// lease runs out, as holdfast run does (F1): from a TTL (0: 15 s) and a grace
// period (0: the smaller of 5 s and TTL/3) it returns Options whose keepalive
// interval leaves room for the grace, and the grace that counts. A grace above
// TTL/2 is refused.
func RunTiming(ttl, grace time.Duration) (Options, time.Duration, error) {
	s, grace, err := watchdog.ForGrace(ttl, grace)
	if err != nil {
		return Options{}, 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Options{TTL: s.TTL, Margin: s.Margin, KeepaliveInterval: s.Interval, CallTimeout: s.CallTimeout}, grace, nil
}

// An AcquireOption changes one call of [FencedLocker.Acquire], TryAcquire or
// Run.
type AcquireOption interface {
	apply(*acquireOptions)
}

// A HoldOption is an [AcquireOption] that makes sense without a token, so that
// an [EfficiencyLocker] takes it too.
type HoldOption interface {
	AcquireOption
	withoutToken()
}

// acquireOptions is what the options of one call add up to.
type acquireOptions struct {
	gates     []Gate
	alive     *aliveCheck
	extension driver.Extension
	queued    chan<- struct{}
	err       error
}

type optionFunc func(*acquireOptions)

func (f optionFunc) apply(o *acquireOptions) { f(o) }

type holdOptionFunc func(*acquireOptions)

func (f holdOptionFunc) apply(o *acquireOptions) { f(o) }
func (f holdOptionFunc) withoutToken()           {}

// Arm has the lock's gates armed with the new token, in this order, before the
// grant is handed out (E3). If one cannot be armed, the grant is released and
// Acquire fails with an [*ArmError].
func Arm(gates ...Gate) AcquireOption {
	return optionFunc(func(o *acquireOptions) {
		for i, g := range gates {
			if g == nil {
				o.err = fmt.Errorf("%w: gate %d given to Arm is nil: leave it out, or pass a gate", ErrInvalid, i+1)
			}
		}
		o.gates = append(o.gates, gates...)
	})
}

// Alive has fn called every so often while the lock is held, to ask whether
// the guarded work gets on. When fn has failed that many times in a row (an
// error, or no return before the next call is due), the grant is lost with
// cause "liveness": its context is cancelled, and it is released when its
// lease would have run out, as if its holder had died. fn may be called until
// Release returns; it is not called twice at a time.
func Alive(every time.Duration, failures int, fn func() error) HoldOption {
	return holdOptionFunc(func(o *acquireOptions) {
		switch {
		case every <= 0:
			o.err = fmt.Errorf("%w: Alive every %v: must be above 0", ErrInvalid, every)
		case failures < 1:
			o.err = fmt.Errorf("%w: Alive after %d failures: must be at least 1", ErrInvalid, failures)
		case fn == nil:
			o.err = fmt.Errorf("%w: Alive without a function to call", ErrInvalid)
		case o.alive != nil:
			o.err = fmt.Errorf("%w: Alive given twice: join both checks in one function", ErrInvalid)
		}
		o.alive = &aliveCheck{every: every, failures: failures, fn: fn}
	})
}

// WithExtension passes options that only one engine understands; the client
// types of engines use it. Another engine refuses it with [ErrUnsupported] or
// [ErrInvalid].
func WithExtension(x driver.Extension) HoldOption {
	return holdOptionFunc(func(o *acquireOptions) {
		if o.extension != nil && x != nil {
			o.err = fmt.Errorf("%w: options of engine %s given twice", ErrInvalid, x.Engine())
		}
		o.extension = x
	})
}

// Queued has c get a value when the service has said that the request stands in
// the lock's queue; a request that is granted at once never stands there. The
// value is not waited for: give c room for one. A request that is begun anew
// in another session is told of again.
func Queued(c chan<- struct{}) HoldOption {
	return holdOptionFunc(func(o *acquireOptions) {
		if c == nil {
			o.err = fmt.Errorf("%w: Queued without a channel to tell", ErrInvalid)
		}
		o.queued = c
	})
}

// nameError refuses a lock's name, in the words of package fence.
type nameError struct{ err error }

func (e *nameError) Error() string {
	return "invalid: " + strings.TrimPrefix(e.err.Error(), fence.ErrMalformed.Error()+": ")
}

func (e *nameError) Unwrap() []error { return []error{ErrInvalid, e.err} }

// collect adds the options up and checks them and the lock's name.
func collect[O AcquireOption](name string, opts []O) (acquireOptions, error) {
	var o acquireOptions
	for i, opt := range opts {
		if AcquireOption(opt) == nil {
			return o, fmt.Errorf("%w: option %d is nil: leave it out", ErrInvalid, i+1)
		}
		opt.apply(&o)
	}
	if o.err != nil {
		return o, o.err
	}
	if err := fence.ValidateLockName(name); err != nil {
		return o, &nameError{err}
	}
	return o, nil
}
