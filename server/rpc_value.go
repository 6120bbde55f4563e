package server

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// change is what a put and a delete have in common.
type change struct {
	session     core.SessionID
	request     core.Request
	conditional bool
	ifRevision  core.Revision
	token       uint64
}

// changeFields are the getters that a put and a delete share.
type changeFields interface {
	GetSession() *holdfastv1.SessionRef
	GetRequest() *holdfastv1.RequestID
	GetLock() string
	GetToken() string
}

func (s *service) change(ctx context.Context, m changeFields, ifRevision *uint64) (c change, err error) {
	if err = checkLock(m.GetLock()); err != nil {
		return c, err
	}
	if ifRevision != nil {
		c.conditional, c.ifRevision = true, core.Revision(*ifRevision)
	}
	switch {
	case m.GetSession() == nil && m.GetRequest() != nil:
		return c, invalid("request needs session: only a session's calls are named")
	case m.GetSession() != nil:
		if c.request, err = checkRequest(m.GetRequest()); err != nil {
			return c, err
		}
	}
	if m.GetToken() != "" {
		token, err := checkToken(m.GetToken(), m.GetLock())
		if err != nil {
			return c, err
		}
		now := s.at()
		if token.Domain != now.domain {
			return c, invalid("token %s is of another lock service: this one's domain is %s", token, now.domain)
		}
		if uint64(token.Incarnation) != now.incarnation {
			return c, &driver.Error{Kind: driver.Stale, Outcome: driver.No, Lock: m.GetLock(), Msg: fmt.Sprintf("token %s was minted before this service was restored", token)}
		}
		c.token = token.Number
	}
	if m.GetSession() != nil {
		c.session, err = s.owner(ctx, m.GetSession(), false)
	}
	return c, err
}

// Put implements the service.
func (s *service) Put(ctx context.Context, req *connect.Request[holdfastv1.PutRequest]) (*connect.Response[holdfastv1.PutResponse], error) {
	m := req.Msg
	if err := checkValue(m.GetValue()); err != nil {
		return nil, err
	}
	if m.GetBind() && m.GetSession() == nil {
		return nil, invalid("bind needs session: the value is removed when that session ends")
	}
	c, err := s.change(ctx, m, m.IfRevision)
	if err != nil {
		return nil, err
	}
	res, err := s.do(ctx, core.Put{
		Session: c.session, Request: c.request, Lock: m.GetLock(), Value: append([]byte{}, m.GetValue()...),
		Conditional: c.conditional, IfRevision: c.ifRevision, Bind: m.GetBind(), Token: c.token,
	})
	if err != nil {
		return nil, err
	}
	if err := settled(res, c.request); err != nil {
		return nil, err
	}
	return answer(&holdfastv1.PutResponse{Revision: uint64(res.Revision)})
}

// Delete implements the service.
func (s *service) Delete(ctx context.Context, req *connect.Request[holdfastv1.DeleteRequest]) (*connect.Response[holdfastv1.DeleteResponse], error) {
	m := req.Msg
	c, err := s.change(ctx, m, m.IfRevision)
	if err != nil {
		return nil, err
	}
	res, err := s.do(ctx, core.Delete{
		Session: c.session, Request: c.request, Lock: m.GetLock(),
		Conditional: c.conditional, IfRevision: c.ifRevision, Token: c.token,
	})
	if err != nil {
		return nil, err
	}
	if err := settled(res, c.request); err != nil {
		return nil, err
	}
	return answer(&holdfastv1.DeleteResponse{Revision: uint64(res.Revision)})
}

// settled is the error of a named put or delete that did nothing because its
// name was used up.
func settled(r core.Result, req core.Request) error {
	switch r.Status {
	case core.Settled:
		return settledBefore(req, r.Last)
	case core.Cancelled:
		return &driver.Error{Kind: driver.Cancelled, Outcome: driver.No, Msg: "the request was cancelled under this lane and n; use n + 1 for a new request"}
	case core.Waiting, core.Granted:
		return &driver.Error{Kind: driver.Invalid, Outcome: driver.No, Msg: "lane and n name an acquire: use n + 1 for a new request"}
	}
	return nil
}

// settledBefore is the error of a request whose number is lower than the last
// on its lane. What became of it is not known any more.
func settledBefore(req core.Request, last uint64) error {
	return &driver.Error{
		Kind: driver.Invalid, Outcome: driver.Unknown,
		Msg: fmt.Sprintf("n %d is lower than %d, the last on lane %d: that request was settled before, and this call did nothing; use n %d for a new request", req.N, last, req.Lane, last+1),
	}
}
