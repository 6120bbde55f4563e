package elect

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"holdfast"
	"holdfast/fence"
)

// An office is one time in office.
type office struct {
	grant *holdfast.Grant
	end   context.CancelCauseFunc // tells the function to end
	left  chan struct{}           // closed when the lock was given back
}

// An ending says what became of one try, from asking for the lock until it was
// given back.
type ending struct {
	worked bool          // the function was called
	passed bool          // the lock was granted, and passed on to a preferred candidate
	told   error         // the cause for which the function's context ended before it returned
	err    error         // worked: what the function returned; else why the lock was not granted
	held   time.Duration // how long the function ran
}

// rests reports whether the office was left by this candidate's own will, or
// by an operator's.
func (e ending) rests() bool {
	if !e.worked || e.told == nil {
		return e.worked
	}
	lost, ok := errors.AsType[*holdfast.Lost](e.told)
	return errors.Is(e.told, ErrSteppedDown) || ok && lost.Cause == holdfast.CauseRevoked
}

// why says why the candidate does not stand just now.
func (e ending) why() error {
	switch {
	case e.passed:
		return errPassed
	case e.told != nil:
		return e.told
	case e.err != nil:
		return e.err
	}
	return errReturned
}

// stand asks for the lock once, waits in its queue, and is in office if it is
// granted.
func (e *Elector) stand(ctx context.Context, work func(context.Context, *holdfast.Grant) error) (end ending) {
	var helpers sync.WaitGroup
	defer helpers.Wait()
	waiting, granted := context.WithCancel(ctx)
	defer granted()
	queued := make(chan struct{}, 1)
	e.mu.Lock()
	e.mu.move(Asking, nil)
	value := e.mu.value
	e.mu.Unlock()
	opts := append([]holdfast.AcquireOption{holdfast.Queued(queued)}, e.o.Acquire...)
	publish, err := publishing(e.o.Board, value)
	if err != nil {
		return ending{err: err}
	}
	helpers.Go(func() { e.queue(waiting, queued) })
	var o *office
	defer func() {
		if o != nil { // also when the function panics
			e.leave(o)
		}
	}()
	err = e.locker.Run(ctx, e.name, func(ctx context.Context, g *holdfast.Grant) error {
		granted()
		if e.passes(ctx) {
			end.passed = true
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		o = &office{grant: g, left: make(chan struct{})}
		e.serve(ctx, o, &end, value, work)
		return end.err
	}, append(opts, publish...)...)
	if !end.worked {
		end.err = err
	}
	return end
}

// queue follows a request that waits: it notes that it stands in the queue,
// and asks for the office if this is a preferred candidate.
func (e *Elector) queue(ctx context.Context, queued <-chan struct{}) {
	select {
	case <-queued:
	case <-ctx.Done():
		return
	}
	e.mu.Lock()
	if e.mu.state == Asking && ctx.Err() == nil {
		e.mu.move(Queued, nil)
	}
	prefers := e.o.Prefer && !e.mu.asksNot
	e.mu.Unlock()
	if prefers {
		e.ask(ctx)
	}
}

// serve is one time in office: it calls work, and sees to it that work's
// context ends when it must.
func (e *Elector) serve(lease context.Context, o *office, end *ending, published []byte, work func(context.Context, *holdfast.Grant) error) {
	ctx, cancel := context.WithCancelCause(lease)
	o.end = cancel
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel(nil)
	e.mu.Lock()
	e.mu.office = o
	e.mu.offices++
	e.mu.move(InOffice, nil)
	e.mu.Unlock()
	e.o.Logger.Info("in office", "token", o.grant.Token().String())
	defer context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.mu.office == o && e.mu.state == InOffice {
			e.mu.move(Leaving, context.Cause(ctx))
		}
	})()
	if e.o.Board != nil {
		helpers.Go(func() { e.republish(ctx, o, published) })
		if !e.o.Prefer {
			helpers.Go(func() { e.yield(ctx, o) })
		}
	}
	began := time.Now()
	end.worked = true
	end.err = work(ctx, o.grant)
	end.held = time.Since(began)
	if ctx.Err() != nil {
		end.told = context.Cause(ctx)
	}
	if lost := o.grant.Cause(); lost != nil { // also if only the clock knows yet
		end.told = lost
	}
	if end.told == nil && (errors.Is(end.err, ErrSteppedDown) || errors.Is(end.err, holdfast.ErrLost)) {
		end.told = end.err
	}
	if end.rests() {
		e.mu.Lock()
		e.mu.asksNot = true
		e.mu.Unlock()
	}
	e.mu.Lock()
	e.mu.move(Leaving, end.why())
	e.mu.Unlock()
}

// leave: the lock was given back, or goes back in the background.
func (e *Elector) leave(o *office) {
	e.mu.Lock()
	e.mu.office = nil
	if e.mu.state != Leaving {
		e.mu.move(Leaving, errAborted)
	}
	e.mu.Unlock()
	close(o.left)
}

// republish puts the value if it was changed between the request and the
// grant.
func (e *Elector) republish(ctx context.Context, o *office, published []byte) {
	e.mu.Lock()
	same := e.mu.value == nil || published != nil && bytes.Equal(e.mu.value, published)
	e.mu.Unlock()
	if same {
		return
	}
	if err := e.put(ctx, o); err != nil && ctx.Err() == nil {
		e.o.Logger.Warn("the value was not published", "error", err)
	}
}

// log tells what became of a try.
func (e *Elector) log(ctx context.Context, end ending) {
	switch {
	case !end.worked && ctx.Err() != nil:
	case end.passed:
		e.o.Logger.Info("passed the office on to a preferred candidate")
	case !end.worked:
		e.o.Logger.Warn("not granted", "error", end.err)
	case end.told != nil:
		e.o.Logger.Info("left office", "cause", end.told, "after", end.held)
	default:
		e.o.Logger.Info("the function returned", "error", end.err, "after", end.held)
	}
}

// marker is the lock that a preferred candidate holds while it asks.
func (e *Elector) marker() string { return e.name + markerSuffix }

// ask asks the primary to hand over, from when this candidate has settled in
// the queue until ctx ends. It gives up if an operator takes the marker away.
func (e *Elector) ask(ctx context.Context) {
	if !sleep(ctx, e.o.Settle) {
		return
	}
	for tries := 0; ; tries++ {
		err := e.locker.Run(ctx, e.marker(), func(ctx context.Context, _ *holdfast.Grant) error {
			e.o.Logger.Info("asking for the office, as the preferred candidate")
			<-ctx.Done()
			return nil
		})
		if lost, ok := errors.AsType[*holdfast.Lost](err); ok && lost.Cause == holdfast.CauseRevoked {
			return
		}
		if !sleep(ctx, e.pause(tries+1)) {
			return
		}
	}
}

// passes reports whether a preferred candidate asks for the office that was
// just granted to this one, which has not met that request before. The queue
// is in order, so passing it on once is enough: who is granted the lock again
// while the same request stands knows that the preferred one does not wait.
func (e *Elector) passes(ctx context.Context) bool {
	if e.o.Board == nil || e.o.Prefer {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	asked := false
	err := e.o.Board.Observe(ctx, e.marker(), func(by fence.Token, _, _ string, _ []byte) bool {
		asked = e.meets(by)
		return false
	})
	if err != nil && context.Cause(ctx) == nil {
		e.o.Logger.Warn("whether a preferred candidate asks is not known", "error", err)
	}
	return asked
}

// yield hands over when a preferred candidate asks.
func (e *Elector) yield(ctx context.Context, o *office) {
	err := e.o.Board.Observe(ctx, e.marker(), func(by fence.Token, _, _ string, _ []byte) bool {
		if e.meets(by) {
			o.end(ErrPreferred)
		}
		return ctx.Err() == nil
	})
	if err != nil && ctx.Err() == nil {
		e.o.Logger.Warn("preferred candidates are not seen any more", "error", err)
	}
}

// meets reports whether this is a request for the office that this candidate
// has not met before.
func (e *Elector) meets(by fence.Token) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if by.IsZero() || by == e.mu.passed {
		return false
	}
	e.mu.passed = by
	return true
}
