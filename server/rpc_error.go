package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// kinds says what a refusal by core is on the wire.
var kinds = map[core.Reason]driver.Kind{
	core.Busy:          driver.Busy,
	core.HeldByYou:     driver.HeldByYou,
	core.Closed:        driver.Closed,
	core.SessionLost:   driver.SessionLost,
	core.LimitMismatch: driver.Limit,
	core.TooMany:       driver.Limit,
	core.NotHeld:       driver.NotHeld,
	core.NoSuchGrant:   driver.Invalid,
	core.NotFound:      driver.NotFound,
	core.Conflict:      driver.Conflict,
	core.Stale:         driver.Stale,
	core.InUse:         driver.Busy,
	core.CounterFull:   driver.Limit,
	core.Malformed:     driver.Invalid,
	core.TooNew:        driver.Unsupported,
}

// at is the instant and the lineage as of which core's answers are told: what
// a refusal or a grant needs to become text.
type at struct {
	clock       core.Clock
	domain      fence.Domain
	incarnation uint64
	epoch       uint16
}

func (s *service) at() at {
	st := s.node.Status()
	return at{clock: st.Clock, domain: st.Domain, incarnation: st.Incarnation, epoch: st.Epoch}
}

// since is the time from c to now, never negative: the clock of a status may
// be a turn older than an answer.
func (a at) since(c core.Clock) time.Duration { return time.Duration(max(a.clock-c, 0)) }

// until is the time from now to c, never negative.
func (a at) until(c core.Clock) time.Duration { return time.Duration(max(c-a.clock, 0)) }

// token is the fencing token of a grant.
func (a at) token(g *core.Grant) fence.Token {
	mode := fence.Exclusive
	if g.Shared {
		mode = fence.Shared
	}
	return fence.Token{
		Domain: a.domain, Incarnation: fence.Incarnation(g.Incarnation),
		Lock: g.Lock, Slot: g.Slot, Mode: mode, Number: g.Generation,
	}
}

func (a at) grant(g *core.Grant) *holdfastv1.Grant {
	var left time.Duration
	if g.EndsAt != 0 {
		left = max(a.until(g.EndsAt), 1)
	}
	return wire.Grant(g.Number, a.token(g), left)
}

func (a at) holder(h *core.Holder) *driver.Holder {
	if h == nil {
		return nil
	}
	return &driver.Holder{
		Label: h.Label, Host: h.Host, Session: wire.FormatID(uint64(h.Session)),
		GrantNumber: h.Number, Token: a.token(&h.Grant).String(), Held: a.since(h.Since),
	}
}

// refused is the error for what core refused: decided, so its outcome is No.
func (a at) refused(r *core.Refusal) error {
	kind, ok := kinds[r.Reason]
	if !ok {
		return &driver.Error{Kind: driver.Internal, Outcome: driver.No, Lock: r.Lock, Msg: fmt.Sprintf("refused for reason %d: %s", r.Reason, r.Msg)}
	}
	e := &driver.Error{
		Kind: kind, Outcome: driver.No, Lock: r.Lock, Msg: r.Msg,
		Holder: a.holder(r.Holder), Waiters: r.Waiters,
	}
	if r.Lock != "" {
		e.Msg = fmt.Sprintf("lock %q: %s", r.Lock, r.Msg)
	}
	if r.OpensAt != 0 {
		e.OpensIn = a.until(r.OpensAt)
		e.Msg += fmt.Sprintf(" (opens in %v)", e.OpensIn.Round(time.Millisecond))
	}
	if r.Revision != 0 || r.Reason == core.Conflict {
		e.Err = &wire.Remote{Info: &holdfastv1.ErrorInfo{Revision: uint64(r.Revision)}}
	}
	return e
}

// classify turns any error that a handler returns into one that has a kind
// and an outcome. Nothing that is not known to have failed claims so.
func classify(err error) *driver.Error {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e
	}
	e := &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: err}
	var away *NotLeaderError
	switch {
	case errors.As(err, &away):
		e.Msg = away.Error()
		e.Err = errors.Join(&wire.Remote{Info: &holdfastv1.ErrorInfo{LeaderAddress: away.Addr, Term: away.Term}}, away)
	case errors.Is(err, ErrUnknownOutcome):
		e.Outcome = driver.Unknown
		e.Msg = err.Error() + ": it may have happened or not; ask again under the same name"
	case errors.Is(err, ErrReplaced):
		e.Outcome = driver.Unknown
	case errors.Is(err, ErrOverloaded):
		e.Kind = driver.Overloaded
	case errors.Is(err, ErrTooNew):
		e.Kind = driver.Unsupported
	case errors.Is(err, ErrSessionLost):
		e.Kind = driver.SessionLost
	case errors.Is(err, ErrCompacted):
		e.Kind = driver.NotFound
	case errors.Is(err, ErrStopped), errors.Is(err, ErrPoisoned):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Outcome = driver.Unknown
		e.Msg = fmt.Sprintf("the caller stopped waiting (%v): ask again under the same name", err)
	default:
		e.Kind, e.Outcome = driver.Internal, driver.Unknown
	}
	return e
}

// onWire is the error of a call as connect sends it. Errors of connect itself
// (a malformed frame on a stream) keep their code and get a detail.
func onWire(err error) *connect.Error {
	if _, ok := errors.AsType[*driver.Error](err); !ok {
		if c, ok := errors.AsType[*connect.Error](err); ok {
			return wire.Error(refusedByCodec(c))
		}
	}
	return wire.Error(classify(err))
}

// refusedByCodec classifies what connect found wrong with a message that it
// read: the message was not handed on, so nothing happened.
func refusedByCodec(c *connect.Error) *driver.Error {
	e := &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: c.Message()}
	switch c.Code() {
	case connect.CodeInvalidArgument:
		e.Kind = driver.Invalid
	case connect.CodeResourceExhausted:
		e.Kind = driver.Limit
	case connect.CodeUnimplemented:
		e.Kind = driver.Unsupported
	case connect.CodeInternal, connect.CodeDataLoss:
		e.Kind = driver.Internal
	}
	return e
}
