package server

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// RevokeGrant implements the service.
func (s *service) RevokeGrant(ctx context.Context, req *connect.Request[holdfastv1.RevokeGrantRequest]) (*connect.Response[holdfastv1.RevokeGrantResponse], error) {
	m := req.Msg
	op := &operation{call: "revoke", by: m.GetBy(), on: fmt.Sprintf("grant %d of lock %q", m.GetGrant(), clip(m.GetLock()))}
	if m.GetNow() {
		op.on += ", at once"
	}
	op.add("lock", m.GetLock(), "grant", m.GetGrant(), "now", m.GetNow())
	var out *holdfastv1.RevokeGrantResponse
	err := s.operator(ctx, req.Peer(), op, func() (err error) {
		out, err = s.revoke(ctx, m, op)
		op.add("revocation_token", out.GetRevocationToken())
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer(out)
}

func (s *service) revoke(ctx context.Context, m *holdfastv1.RevokeGrantRequest, op *operation) (*holdfastv1.RevokeGrantResponse, error) {
	if err := checkLock(m.GetLock()); err != nil {
		return nil, err
	}
	if err := checkGrant("grant", m.GetGrant()); err != nil {
		return nil, err
	}
	// The revocation token is for the slot that the grant has: a gate keeps a
	// mark for each. Of a grant that is gone already the slot is not known any
	// more, and a token for the wrong one could fence a healthy holder: then
	// there is none (the first answer, its audit record and its event had it).
	var h core.HolderView
	var held bool
	holders := 0
	err := s.node.View(ctx, true, func(r Reading) {
		if h, held = r.State.GrantByNumber(m.GetGrant()); held && h.Shared {
			l, _ := r.State.Lock(h.Lock, 0)
			holders = l.HolderCount
		}
	})
	if err != nil {
		return nil, nothingDone(err)
	}
	res, err := s.doRecorded(ctx, op, core.Revoke{Lock: m.GetLock(), Grant: m.GetGrant(), Now: m.GetNow(), Cause: core.ByOperator, By: op.by})
	if err != nil {
		return nil, err
	}
	out := &holdfastv1.RevokeGrantResponse{Revision: uint64(res.Revision)}
	if res.Number != 0 && held {
		now := s.at()
		out.RevocationToken = fence.Token{
			Domain: now.domain, Incarnation: fence.Incarnation(now.incarnation),
			Lock: m.GetLock(), Slot: h.Slot, Mode: fence.Revocation, Number: res.Number,
		}.String()
		out.Note = sharedNote(h, holders)
	}
	return out, nil
}

// sharedNote says what arming the revocation token of a shared grant does; of
// any other there is nothing to say.
func sharedNote(h core.HolderView, holders int) string {
	if !h.Shared {
		return ""
	}
	return fmt.Sprintf("grant %d is shared, and its token %d is that of its whole run: arming the revocation token fences all %d holders of the run, not only this one; nobody joins them any more, and who comes now waits until they have all gone",
		h.Number, h.Generation, holders)
}

// ExpelSession implements the service.
func (s *service) ExpelSession(ctx context.Context, req *connect.Request[holdfastv1.ExpelSessionRequest]) (*connect.Response[holdfastv1.ExpelSessionResponse], error) {
	m := req.Msg
	op := &operation{call: "expel", by: m.GetBy(), on: fmt.Sprintf("session %d", m.GetSessionId())}
	op.add("session", m.GetSessionId())
	err := s.operator(ctx, req.Peer(), op, func() error { return s.expel(ctx, m, op) })
	if err != nil {
		return nil, err
	}
	return answer(&holdfastv1.ExpelSessionResponse{})
}

func (s *service) expel(ctx context.Context, m *holdfastv1.ExpelSessionRequest, op *operation) error {
	if id := m.GetSessionId(); id == 0 || id > fence.MaxNumber {
		return invalid("session_id is %d: want the ID of a session as ListSessions shows it", id)
	}
	id := core.SessionID(m.GetSessionId())
	known := false
	if err := s.node.View(ctx, false, func(r Reading) { known = r.State.HasSession(id) }); err != nil {
		return nothingDone(err)
	}
	if !known {
		return &driver.Error{Kind: driver.NotFound, Outcome: driver.No, Msg: fmt.Sprintf("no session %d: it ended, ran out, or never was", id)}
	}
	_, err := s.doRecorded(ctx, op, core.End{ID: id, Operator: true, By: op.by})
	return err
}

// ReportRefusal implements the service. A mark above every number that was
// ever minted here cannot come from this service: the domain was forked, for
// example by restoring a backup twice (A4).
func (s *service) ReportRefusal(ctx context.Context, req *connect.Request[holdfastv1.ReportRefusalRequest]) (*connect.Response[holdfastv1.ReportRefusalResponse], error) {
	m := req.Msg
	if err := checkText("gate", m.GetGate()); err != nil {
		return nil, err
	}
	var offered, seen fence.Token
	var err error
	if m.GetOffered() != "" {
		if offered, err = fence.ParseToken(m.GetOffered()); err != nil {
			return nil, invalid("offered: %v", err)
		}
	}
	if m.GetSeen() != "" {
		if seen, err = fence.ParseToken(m.GetSeen()); err != nil {
			return nil, invalid("seen: %v", err)
		}
	}
	if m.GetGate() == "" || (offered.IsZero() && seen.IsZero()) {
		return nil, invalid("a report needs gate and a token: offered, seen or both")
	}
	var last uint64
	var domain fence.Domain
	if err := s.node.View(ctx, false, func(r Reading) { last, domain = r.State.LastNumber(), r.State.Domain() }); err != nil {
		return nil, nothingDone(err)
	}
	s.metrics.refusals.Inc()
	args := []any{"gate", m.GetGate(), "offered", m.GetOffered(), "seen", m.GetSeen(), "peer", req.Peer().Addr}
	if seen.Domain == domain && seen.Number > last {
		s.metrics.ahead.Inc()
		s.log.Error("ALARM: a gate saw a token that this service never minted: the domain was forked, or this service lost its newest state",
			append(args, "last_minted", last)...)
	} else {
		s.log.Warn("a gate refused a token", args...)
	}
	return answer(&holdfastv1.ReportRefusalResponse{})
}
