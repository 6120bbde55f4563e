package server

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// Acquire implements the service: a call that may wait. A caller that goes
// away leaves its place in the queue behind (C3): it asks again under the same
// name, cancels, or lets its session end.
func (s *service) Acquire(ctx context.Context, req *connect.Request[holdfastv1.AcquireRequest]) (*connect.Response[holdfastv1.AcquireResponse], error) {
	cmd, wait, err := acquireCommand(req.Msg)
	if err != nil {
		return nil, err
	}
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	if cmd.Session, err = s.owner(ctx, req.Msg.GetSession(), false); err != nil {
		return nil, err
	}
	answers := make(chan Answer, 2)
	s.node.Submit(cmd, func(a Answer) { answers <- a })
	s.metrics.waiting.Inc()
	defer s.metrics.waiting.Dec()
	for {
		select {
		case a := <-answers:
			if a.Final() {
				return s.acquired(a, cmd.Request)
			}
		case <-over:
			// What came before the time was up counts.
			for len(answers) > 0 {
				if a := <-answers; a.Final() {
					return s.acquired(a, cmd.Request)
				}
			}
			return nil, s.giveUp(ctx, cmd, wait)
		case <-ctx.Done():
			return nil, stillQueued(cmd, context.Cause(ctx))
		case <-s.stopping.Done():
			return nil, stillQueued(cmd, ErrStopped)
		}
	}
}

// stillQueued is the error of a call that ends while its request lives on.
func stillQueued(cmd core.Acquire, why error) error {
	return &driver.Error{
		Kind: driver.Unavailable, Outcome: driver.Unknown, Lock: cmd.Lock, Err: why,
		Msg: fmt.Sprintf("the wait for lock %q was broken off (%v); the request keeps its place: ask again under the same lane and n, or cancel it", cmd.Lock, why),
	}
}

// acquired is the response for a final answer.
func (s *service) acquired(a Answer, req core.Request) (*connect.Response[holdfastv1.AcquireResponse], error) {
	out, err := s.granted(a, req)
	if err != nil {
		return nil, err
	}
	return answer(out)
}

// granted tells the grant of a final answer to an acquire, or why there is
// none.
func (s *service) granted(a Answer, req core.Request) (*holdfastv1.AcquireResponse, error) {
	if a.Err != nil {
		return nil, a.Err
	}
	now := s.at()
	now.domain = a.Domain
	switch r := a.Result; r.Status {
	case core.Granted:
		return &holdfastv1.AcquireResponse{Grant: now.grant(r.Grant), Ended: r.Ended}, nil
	case core.Refused:
		return nil, now.refused(r.Refusal)
	case core.Cancelled:
		return nil, &driver.Error{Kind: driver.Cancelled, Outcome: driver.No, Msg: "the request was cancelled under this lane and n: it holds and waits for nothing; use n + 1 for a new request"}
	case core.Settled:
		return nil, settledBefore(req, r.Last)
	case core.Done:
		return nil, &driver.Error{Kind: driver.Invalid, Outcome: driver.No, Msg: "lane and n name a put or delete: use n + 1 for a new request"}
	default:
		return nil, &driver.Error{Kind: driver.Internal, Outcome: driver.Unknown, Msg: fmt.Sprintf("an acquire was answered with status %d", r.Status)}
	}
}

// giveUp takes a request whose time is up out of the queue. From here on only
// the answer to the cancel counts (C2): a grant that came meanwhile is
// released by it.
func (s *service) giveUp(ctx context.Context, cmd core.Acquire, wait time.Duration) error {
	if _, err := s.do(ctx, core.Cancel{Session: cmd.Session, Request: cmd.Request}); err != nil {
		return err
	}
	e := &driver.Error{Kind: driver.Busy, Outcome: driver.No, Lock: cmd.Lock, Msg: fmt.Sprintf("lock %q was not granted within %v", cmd.Lock, wait)}
	now := s.at()
	err := s.node.View(ctx, true, func(r Reading) {
		l, ok := r.State.Lock(cmd.Lock, 0)
		if !ok {
			return
		}
		e.Waiters = l.Waiters
		if len(l.Holders) > 0 {
			now.clock = r.Clock
			e.Holder = now.holder(&l.Holders[0].Holder)
		}
		if l.Closed && l.OpensAt != 0 {
			now.clock = r.Clock
			e.OpensIn = now.until(l.OpensAt)
			e.Msg += fmt.Sprintf("; it is closed (%s) and opens in %v", causes[l.ClosedCause], e.OpensIn.Round(time.Millisecond))
		}
	})
	if err != nil {
		s.log.Debug("no holder for a busy answer", "lock", cmd.Lock, "error", err)
	}
	return e
}

// Cancel implements the service.
func (s *service) Cancel(ctx context.Context, req *connect.Request[holdfastv1.CancelRequest]) (*connect.Response[holdfastv1.CancelResponse], error) {
	request, err := checkRequest(req.Msg.GetRequest())
	if err != nil {
		return nil, err
	}
	id, err := s.owner(ctx, req.Msg.GetSession(), true)
	if err != nil {
		return nil, err
	}
	if _, err := s.do(ctx, core.Cancel{Session: id, Request: request}); err != nil {
		return nil, err
	}
	return answer(&holdfastv1.CancelResponse{})
}

// Release implements the service.
func (s *service) Release(ctx context.Context, req *connect.Request[holdfastv1.ReleaseRequest]) (*connect.Response[holdfastv1.ReleaseResponse], error) {
	if err := checkGrant("grant", req.Msg.GetGrant()); err != nil {
		return nil, err
	}
	id, err := s.owner(ctx, req.Msg.GetSession(), true)
	if err != nil {
		return nil, err
	}
	if _, err := s.do(ctx, core.Release{Session: id, Grant: req.Msg.GetGrant(), Failed: req.Msg.GetFailed()}); err != nil {
		return nil, err
	}
	return answer(&holdfastv1.ReleaseResponse{})
}
