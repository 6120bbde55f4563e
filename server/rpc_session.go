package server

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// OpenSession implements the service: the session it opens is detached, until
// a stream attaches to it.
func (s *service) OpenSession(ctx context.Context, req *connect.Request[holdfastv1.OpenSessionRequest]) (*connect.Response[holdfastv1.OpenSessionResponse], error) {
	var drawn wire.Secret
	rand.Read(drawn[:]) // never fails
	cmd, err := openCommand(req.Msg, drawn, false)
	if err != nil {
		return nil, err
	}
	cmd.ID = s.node.NewSessionID()
	res, err := s.do(ctx, cmd)
	if err != nil {
		return nil, err
	}
	out := &holdfastv1.OpenSessionResponse{SessionId: uint64(res.Session), TtlMs: wire.Millis(cmd.TTL)}
	if req.Msg.GetSecret() == "" {
		out.Secret = drawn.String()
	}
	if res.Session != cmd.ID {
		if out.TtlMs, err = s.awaitFound(ctx, res.Session); err != nil {
			return nil, err
		}
	}
	return answer(out)
}

// found is for an open whose secret had opened a session before: the node
// hears the session before done is told its TTL, which may be another than was
// asked for. An open that is answered is a promise of that TTL (B10), and that
// the session was found promises nothing: its deadline did not move, and its
// end may be decided. done is called once, perhaps on the node's loop.
func (s *service) found(id core.SessionID, done func(ttl time.Duration, err error)) {
	s.node.Keepalive(id, func(p Pulse) {
		switch {
		case p.Err == nil:
			done(p.TTL, nil)
		case errors.Is(p.Err, ErrSessionLost):
			s.voices.drop(id)
			done(0, lostSession(id))
		default:
			e := *classify(p.Err)
			e.Outcome = driver.Unknown // it was opened, and may live
			done(0, &e)
		}
	})
}

// awaitFound is found for a unary call; the TTL is in milliseconds.
func (s *service) awaitFound(ctx context.Context, id core.SessionID) (uint64, error) {
	type result struct {
		ttl time.Duration
		err error
	}
	got := make(chan result, 1)
	s.found(id, func(ttl time.Duration, err error) { got <- result{ttl, err} })
	select {
	case r := <-got:
		return wire.Millis(r.ttl), r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// KeepAlive implements the service.
func (s *service) KeepAlive(ctx context.Context, req *connect.Request[holdfastv1.KeepAliveRequest]) (*connect.Response[holdfastv1.KeepAliveResponse], error) {
	id, err := s.owner(ctx, req.Msg.GetSession(), true)
	if err != nil {
		return nil, err
	}
	got := make(chan Pulse, 1)
	s.node.Keepalive(id, func(p Pulse) { got <- p })
	if c := callOf(ctx); c != nil {
		c.decoded()
	}
	select {
	case p := <-got:
		if p.Err != nil {
			return nil, pulseError(id, p.Err)
		}
		return answer(pulse(p))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func pulseError(id core.SessionID, err error) error {
	if errors.Is(err, ErrSessionLost) {
		return lostSession(id)
	}
	return err
}

// maxRevokedText is how many bytes of names one pulse tells.
const maxRevokedText = wire.MaxFrame / 4

// pulse is the answer to a keepalive. It names every grant that was taken back
// (B11); beyond maxRevokedText only by number and cause, which is what a
// client needs, so that it always fits into a frame.
func pulse(p Pulse) *holdfastv1.KeepAliveResponse {
	out := &holdfastv1.KeepAliveResponse{TtlMs: wire.Millis(p.TTL), Contended: p.Contended}
	text := 0
	for _, r := range p.Revoked {
		v := &holdfastv1.Revocation{Grant: r.Grant, Cause: revokeCause(r.Cause), Gone: r.Gone}
		if text += len(r.Lock) + len(r.By); text <= maxRevokedText {
			v.Lock, v.By = r.Lock, r.By
		}
		out.Revoked = append(out.Revoked, v)
	}
	return out
}

// EndSession implements the service. A session that ended before is lost, not
// ended again: whoever knows its secret knows the difference.
func (s *service) EndSession(ctx context.Context, req *connect.Request[holdfastv1.EndSessionRequest]) (*connect.Response[holdfastv1.EndSessionResponse], error) {
	id, err := s.owner(ctx, req.Msg.GetSession(), true)
	if err != nil {
		return nil, err
	}
	if _, err := s.do(ctx, core.End{ID: id}); err != nil {
		return nil, err
	}
	s.voices.drop(id)
	return answer(&holdfastv1.EndSessionResponse{})
}
