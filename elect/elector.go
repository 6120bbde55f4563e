package elect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"holdfast"
	"holdfast/fence"
)

// Errors, and causes of an end of the function's context beside a
// [*holdfast.Lost] and the end of Run's own.
var (
	// ErrSteppedDown: StepDown was called.
	ErrSteppedDown = errors.New("stepped down")
	// ErrPreferred: a preferred candidate has asked for the office.
	ErrPreferred = errors.New("a preferred candidate asks for the office")
	// ErrNotPrimary: this candidate is not in office.
	ErrNotPrimary = errors.New("not in office")
	// ErrNotStanding: this candidate is neither in office nor in the queue.
	ErrNotStanding = errors.New("not standing")
	// ErrRunning: Run was called while it runs.
	ErrRunning = errors.New("this elector runs already")
)

// An Elector is one candidate of one election. Its methods may be called by
// several goroutines at once. It has no goroutine while Run does not run.
type Elector struct {
	locker *holdfast.FencedLocker
	name   string
	o      Options // complete

	mu struct {
		sync.Mutex
		position
		running bool
		office  *office // nil while not in office
		value   []byte
		passed  fence.Token // the request for the office that was last met
		asksNot bool        // preferred, but it left office by its own will
	}
	puts chan struct{} // holds the right to put a value, so that puts are in order
}

// New returns a candidate for the election of this name, which is the name of
// the lock. A nil o means all defaults. Nothing is sent before [Elector.Run].
func New(l *holdfast.FencedLocker, name string, o *Options) (*Elector, error) {
	e := &Elector{locker: l, name: name, puts: make(chan struct{}, 1)}
	var err error
	switch {
	case l == nil:
		err = fmt.Errorf("%w: no locker", holdfast.ErrInvalid)
	default:
		if err = fence.ValidateLockName(name); err != nil {
			err = fmt.Errorf("%w: %w", holdfast.ErrInvalid, err)
			break
		}
		e.o, err = o.complete(name)
	}
	if err != nil {
		return nil, e.fail(err)
	}
	e.mu.value = bytes.Clone(e.o.Value)
	e.mu.out, e.mu.since = time.Now(), time.Now()
	e.mu.why = errNotRunning
	return e, nil
}

// fail names the election in an error.
func (e *Elector) fail(err error) error { return fmt.Errorf("elect %q: %w", e.name, err) }

// Name returns the name of the election.
func (e *Elector) Name() string { return e.name }

// Run stands for election until ctx ends, and calls work whenever this
// candidate is in office: once for each time in office, on the goroutine of
// Run. work must return soon after its context has ended; the cause of that
// context says why: a [*holdfast.Lost] when the office is lost (then somebody
// else may be in office as soon as the lease allows it), [ErrSteppedDown] or
// [ErrPreferred] when it is to be handed over (then nobody else is in office
// before work has returned), or the end of ctx. g is for its token, its
// deadline and [holdfast.Grant.Contended]; Run releases it.
//
// After work was told to end, and has, the candidate stands again, whatever
// work returned. If work returns by itself, StopOnReturn and StopOnFailure
// decide; but an error that wraps [ErrSteppedDown] or [holdfast.ErrLost] counts
// as if work had been told to end by it, so that work can leave office of its
// own accord (because somebody waits, say). If the lock cannot be asked for, or a session is lost, it is tried
// again for ever. If work panics, the lock is released and the panic goes on.
//
// Run returns what work returned when that ends it, as the options say, and
// else why this candidate stands no more: the end of ctx, a closed locker, or,
// before it was ever in office, a request that the engine calls invalid or
// unknown, so that asking again cannot help.
func (e *Elector) Run(ctx context.Context, work func(ctx context.Context, g *holdfast.Grant) error) error {
	if err := e.begin(); err != nil {
		return err
	}
	why := errAborted
	defer func() { e.stopped(why) }()
	tries := 0
	for {
		end := e.stand(ctx, work)
		e.log(ctx, end)
		stop, err := e.isLast(ctx, end)
		if stop {
			why = cmp.Or(err, errReturned)
			return err
		}
		switch {
		case end.rests():
			tries = 0
			e.wait(ctx, e.o.Rest, end.why())
			continue
		case end.held >= e.o.Backoff || end.passed || errors.Is(end.told, ErrPreferred):
			tries = 0
		}
		e.wait(ctx, e.pause(tries), end.why())
		if end.err != nil || end.told != nil {
			tries++
		}
	}
}

// begin marks the Elector as running.
func (e *Elector) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.running {
		return e.fail(ErrRunning)
	}
	e.mu.running, e.mu.asksNot = true, false
	e.mu.move(Asking, errFirst)
	return nil
}

// stopped says that nobody stands any more, and why.
func (e *Elector) stopped(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.running = false
	e.mu.move(Stopped, why)
}

// isLast reports whether Run returns after this, and what.
func (e *Elector) isLast(ctx context.Context, end ending) (stop bool, _ error) {
	switch {
	case end.worked && end.told == nil && end.err == nil && e.o.StopOnReturn:
		return true, nil
	case end.worked && end.told == nil && end.err != nil && e.o.StopOnFailure:
		return true, end.err
	case ctx.Err() != nil:
		return true, e.fail(endOf(ctx))
	case errors.Is(end.err, holdfast.ErrLockerClosed) && !end.worked:
		return true, e.fail(end.err)
	case errors.Is(end.told, holdfast.ErrLost) && e.closed(end.told):
		return true, e.fail(end.told)
	case !end.worked && (errors.Is(end.err, holdfast.ErrInvalid) || errors.Is(end.err, holdfast.ErrUnsupported)):
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.mu.offices == 0, e.fail(end.err)
	}
	return false, nil
}

// closed reports whether the office was lost because the locker was closed.
func (e *Elector) closed(told error) bool {
	lost, ok := errors.AsType[*holdfast.Lost](told)
	return ok && lost.Cause == holdfast.CauseClosed
}

// pause is the pause before a try, after as many that came to nothing: none,
// then doubling from a sixteenth of Backoff up to it, less up to a half.
func (e *Elector) pause(tries int) time.Duration {
	if tries == 0 {
		return 0
	}
	d := e.o.Backoff
	if tries <= 4 {
		d >>= 5 - tries
	}
	return max(d/2+rand.N(d/2+1), time.Microsecond)
}

// wait lets time pass before the next try.
func (e *Elector) wait(ctx context.Context, d time.Duration, why error) {
	e.mu.Lock()
	e.mu.move(Pausing, why)
	e.mu.Unlock()
	sleep(ctx, d)
}

// sleep waits, and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// StepDown ends the present time in office: the function's context ends with
// cause [ErrSteppedDown], and when the function has returned, the lock is
// released. Others then have a chance: this candidate stands again, at the end
// of the queue, after Options.Rest. StepDown returns nil when the office was
// left, and an error that wraps [ErrNotPrimary] if there was none. It must not
// be called by the function itself without a ctx that ends: return instead.
func (e *Elector) StepDown(ctx context.Context) error {
	e.mu.Lock()
	o := e.mu.office
	e.mu.Unlock()
	if o == nil {
		return e.fail(ErrNotPrimary)
	}
	o.end(ErrSteppedDown)
	select {
	case <-o.left:
		return nil
	case <-ctx.Done():
		return e.fail(fmt.Errorf("the function was told to end, and has not returned: %w", endOf(ctx)))
	}
}

// SetValue changes the value that this candidate publishes: at once, under its
// token, if it is in office, and with each later grant. An error says that the
// present value stands unchanged, or may; a later grant has the new one all
// the same.
func (e *Elector) SetValue(ctx context.Context, value []byte) error {
	if e.o.Board == nil {
		return e.fail(errNoBoard)
	}
	value = append([]byte{}, value...)
	if _, err := e.o.Board.Value(value); err != nil {
		return e.fail(err)
	}
	e.mu.Lock()
	e.mu.value = value
	o := e.mu.office
	e.mu.Unlock()
	if o == nil {
		return nil
	}
	if err := e.put(ctx, o); err != nil {
		return e.fail(err)
	}
	return nil
}

// put publishes the newest value under the token of an office.
func (e *Elector) put(ctx context.Context, o *office) error {
	select {
	case e.puts <- struct{}{}:
		defer func() { <-e.puts }()
	case <-ctx.Done():
		return endOf(ctx)
	}
	e.mu.Lock()
	value := e.mu.value
	e.mu.Unlock()
	return e.o.Board.Put(ctx, e.name, o.grant.Token(), value)
}

// endOf returns why ctx ended, such that both ctx.Err and its cause are wrapped.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
