package cluster

import (
	"context"
	"crypto/rand"
	"fmt"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// engineName names this engine in errors.
const engineName = "cluster"

// engine implements [driver.Fenced] on a link. Several may share one link;
// closing one leaves the link to the client that owns it.
type engine struct{ link *link }

// Fenced implements driver.Fenced.
func (engine) Fenced() {}

// Close implements driver.Driver. The line itself is the client's.
func (engine) Close() error { return nil }

// Open implements driver.Driver. The session is named by a secret of 256
// random bits, so a copy of the request opens nothing twice (B12).
func (e engine) Open(ctx context.Context, req driver.OpenRequest) (driver.Session, error) {
	s, err := e.link.open(ctx, req)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (l *link) open(ctx context.Context, req driver.OpenRequest) (*session, *driver.Error) {
	var secret wire.Secret
	_, _ = rand.Read(secret[:]) // never fails
	m := &holdfastv1.OpenSessionRequest{
		Secret: secret.String(), TtlMs: wire.MillisUp(req.TTL),
		Label: req.Label, Host: req.Host, Instance: l.instance[:],
	}
	c := newCall(callOpen, nil, &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Open{Open: m}})
	a := l.do(ctx, c)
	if a.err != nil {
		return nil, a.err
	}
	r := a.frame.GetOpen()
	if r.GetSessionId() == 0 || r.GetTtlMs() == 0 {
		return nil, &driver.Error{Kind: driver.Internal, Err: fmt.Errorf("the service's answer to open makes no sense: session %d, TTL %d ms", r.GetSessionId(), r.GetTtlMs())}
	}
	s := &session{
		link: l, id: r.GetSessionId(), secret: secret, ttl: wire.FromMillis(r.GetTtlMs()),
		gone: make(chan struct{}), calls: make(map[*call]struct{}), asked: make(map[uint32]uint64), acquires: make(map[driver.RequestID]*call),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.depend(s)
	if cur := l.mu.cur; cur != nil {
		// The stream that opened the session is attached. If others were
		// asked before, one of them may be its voice: attach by number.
		if cur == a.on && c.sent == 1 {
			s.on = cur
		} else {
			cur.attach(s)
		}
	}
	return s, nil
}
