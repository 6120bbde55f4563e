package server

import (
	"context"
	"crypto/rand"
	"errors"

	"connectrpc.com/connect"

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
		// The same secret opened it before, perhaps with another TTL.
		err := s.node.View(ctx, true, func(r Reading) {
			if t, ok := r.State.SessionTiming(res.Session); ok {
				out.TtlMs = wire.Millis(t.TTL)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return answer(out)
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
