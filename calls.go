package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/driver"
	"holdfast/internal/watchdog"
)

// outcome is what one call brought, beside what the machine must know.
type outcome struct {
	err   error
	grant driver.Grant
}

// start makes one call on a goroutine that ends with it. It is called with
// s.mu held.
func (s *session) start(a watchdog.Action) {
	if s.mu.killed {
		return
	}
	values := context.Background()
	var w *waiter
	switch a.Send {
	case watchdog.CallAcquire:
		w = s.mu.waiters[a.Request]
		values = w.values
	case watchdog.CallRelease:
		if h := s.mu.handles[a.Grant]; h.values != nil {
			values = h.values
		}
	}
	var ctx context.Context
	var cancel context.CancelFunc
	if a.Send == watchdog.CallAcquire && !a.Try {
		ctx, cancel = context.WithCancel(values)
	} else {
		ctx, cancel = context.WithTimeout(values, s.c.o.CallTimeout)
	}
	s.mu.calls[a.Call] = cancel
	go func() {
		defer cancel()
		began := time.Now()
		r, o := s.call(ctx, a, w)
		s.settle(a, r, o, time.Since(began))
	}()
}

// call makes the call and classifies what became of it.
func (s *session) call(ctx context.Context, a watchdog.Action, w *waiter) (watchdog.Reply, outcome) {
	var r watchdog.Reply
	var o outcome
	switch a.Send {
	case watchdog.CallKeepalive:
		var p driver.Pulse
		s.c.keepalives.Add(1)
		if p, o.err = s.ds.Keepalive(ctx); o.err == nil {
			r.Revoked, r.Contended = revocations(p.Revoked), p.Contended
		} else {
			s.c.failures.Add(1)
		}
	case watchdog.CallAcquire:
		id := driver.RequestID{Lane: a.Request.Lane, N: a.Request.N}
		o.grant, o.err = s.ds.Acquire(ctx, driver.AcquireRequest{
			ID: id, Lock: w.lock, Try: a.Try, Extension: w.extension,
			Queued: w.stands,
		})
		if o.err == nil && o.grant.ID == "" {
			o.err = &driver.Error{Kind: driver.Internal, Lock: w.lock, Msg: "the engine granted the lock without an ID for the grant"}
		}
		r.Grant = o.grant.ID
	case watchdog.CallCancel:
		o.err = s.ds.Cancel(ctx, driver.RequestID{Lane: a.Request.Lane, N: a.Request.N})
	case watchdog.CallRelease:
		o.err = s.ds.Release(ctx, driver.ReleaseRequest{Grant: a.Grant, Failed: a.Failed})
	case watchdog.CallEnd:
		o.err = s.ds.End(ctx)
	}
	r.Verdict = verdict(a.Send, o.err)
	return r, o
}

// verdict says what an error means for a call: whether asking again under the
// same name can help. Only an error that claims outcome No is final, and not
// even that if it is about the attempt rather than the request.
func verdict(kind watchdog.CallKind, err error) watchdog.Verdict {
	if err == nil {
		return watchdog.Done
	}
	switch driver.KindOf(err) {
	case driver.SessionLost:
		return watchdog.SessionLost
	case driver.NotHeld:
		if kind == watchdog.CallRelease {
			return watchdog.Done // already done
		}
	case driver.Unavailable, driver.Overloaded:
		return watchdog.Retry
	}
	switch driver.OutcomeOf(err) {
	case driver.No:
		return watchdog.Refused
	case driver.Yes:
		if kind == watchdog.CallAcquire {
			return watchdog.Retry // what was granted is told when asked again
		}
		return watchdog.Done
	}
	return watchdog.Retry
}

func revocations(in []driver.Revocation) []watchdog.Revocation {
	var out []watchdog.Revocation
	for _, r := range in {
		cause := watchdog.Revoked
		if r.Cause == "max-hold" {
			cause = watchdog.MaxHold
		}
		out = append(out, watchdog.Revocation{Grant: r.Grant, Cause: cause, By: r.By, Gone: r.Gone})
	}
	return out
}

// settle tells the machine what became of a call.
func (s *session) settle(a watchdog.Action, r watchdog.Reply, o outcome, took time.Duration) {
	s.mu.Lock()
	delete(s.mu.calls, a.Call)
	switch a.Send {
	case watchdog.CallKeepalive:
		s.mu.pulses = ranInto(o.err)
	case watchdog.CallAcquire:
		if w := s.mu.waiters[a.Request]; w != nil {
			w.last = ranInto(o.err)
		}
	case watchdog.CallRelease:
		if h := s.mu.handles[a.Grant]; h != nil {
			h.attempted(ranInto(o.err), r.Verdict)
		}
	case watchdog.CallEnd:
		s.mu.ends = ranInto(o.err)
	}
	s.perform(s.mu.m.Settle(s.now(), a.Call, r), o)
	if a.Send != watchdog.CallKeepalive || s.c.o.OnPulse == nil {
		s.mu.Unlock()
		return
	}
	info := PulseInfo{Err: o.err, Took: took, Failures: s.mu.m.Failures(), Left: s.left()}
	for _, h := range s.mu.handles {
		if h.loss == nil && !h.asked {
			info.Locks = append(info.Locks, h.lock)
		}
	}
	s.mu.Unlock()
	slices.Sort(info.Locks)
	s.c.o.OnPulse(info)
}

// ranInto is what a call ran into, without the end of the call's own context,
// which must not be taken for that of the caller's.
func ranInto(err error) error {
	switch {
	case errors.Is(err, context.Canceled): // the machine gave the call up
		return errNoAnswer
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case err.Error() == context.DeadlineExceeded.Error():
		return errNoAnswer
	}
	return &driver.Error{Kind: driver.KindOf(err), Outcome: driver.OutcomeOf(err), Msg: err.Error()}
}

// left is how long the lease is good for; s.mu is held.
func (s *session) left() time.Duration {
	now := s.recheck()
	if _, over := s.mu.m.Over(); over {
		return 0
	}
	return max(s.mu.m.Deadline()-now, 0)
}

// grant makes the handle of a granted request; s.mu is held.
func (s *session) grant(id watchdog.Request, g driver.Grant) {
	w := s.mu.waiters[id]
	delete(s.mu.waiters, id)
	h := newHandle(s, w, g)
	s.mu.handles[g.ID] = h
	w.h = h
	close(w.done)
	close(w.settled)
}

// checkToken refuses a grant whose token cannot be this lock's.
func checkToken(h *handle) error {
	if err := h.token.Validate(); err != nil {
		return fmt.Errorf("the engine gave an unusable token: %w", err)
	}
	if h.token.Lock != h.lock {
		return fmt.Errorf("the engine gave a token for lock %q", h.token.Lock)
	}
	return nil
}
