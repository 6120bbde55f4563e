package cluster

import (
	"context"
	"fmt"
	"time"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// session implements [driver.Session]. The service knows it by its ID and
// secret; streams come and go below it.
type session struct {
	link   *link
	id     uint64
	secret wire.Secret
	ttl    time.Duration
	gone   chan struct{} // closed when lost

	// Guarded by link.mu:

	calls     map[*call]struct{}         // unsettled
	acquires  map[driver.RequestID]*call // those of them that are acquires
	lost      *driver.Error              // set once: the session ended, or was taken over
	quit      bool                       // its owner ended it, or gave up ending it
	on        *stream                    // that is attached
	attaching *stream                    // that has sent an attach
	attaches  uint64                     // number of the last attach
	dueOn     *stream                    // that has it in its next beat
	// asked is, by lane, the highest request number that a stream was given.
	// Below it nothing can be said to be unseen by the service.
	asked map[uint32]uint64
	// prompt asks its owner for a keepalive; nil if that wants none.
	prompt func()
}

// ref is for calls that do not travel on the stream.
func (s *session) ref() *holdfastv1.SessionRef {
	return &holdfastv1.SessionRef{Id: s.id, Secret: s.secret.String()}
}

// onStream names the session to a stream that has attached.
func (s *session) onStream() *holdfastv1.SessionRef { return &holdfastv1.SessionRef{Id: s.id} }

func attachFrame(s *session) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Attach{Attach: &holdfastv1.AttachRequest{
		Session: s.ref(), Instance: s.link.instance[:], Number: s.attaches,
	}}}
}

func endFrame(id uint64) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_End{End: &holdfastv1.EndSessionRequest{
		Session: &holdfastv1.SessionRef{Id: id},
	}}}
}

// do makes one call of the session.
func (s *session) do(ctx context.Context, kind callKind, frame *holdfastv1.ClientFrame) answer {
	return s.make(ctx, newCall(kind, s, frame))
}

func (s *session) make(ctx context.Context, c *call) answer {
	a := s.link.do(ctx, c)
	s.link.mu.Lock()
	quit := s.quit
	s.link.mu.Unlock()
	if quit {
		s.link.forget(s)
	}
	return a
}

// Keepalive implements driver.Session. Its frame is shared with every session
// of the client that is due at the same moment.
func (s *session) Keepalive(ctx context.Context) (driver.Pulse, error) {
	a := s.do(ctx, callKeepalive, nil)
	if a.err != nil {
		return driver.Pulse{}, a.err
	}
	return wire.FromKeepAlive(a.pulse), nil
}

// OnNewLeader implements [driver.Prompter]. Each stream that is attached to the
// session may lead to a leader that has not heard of it (B6). f is called by
// the goroutine that reads the stream.
func (s *session) OnNewLeader(f func()) {
	s.link.mu.Lock()
	s.prompt = f
	s.link.mu.Unlock()
}

// Acquire implements driver.Session. The place in the queue outlives the
// stream: the same request goes out on each new one (C3).
func (s *session) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.Grant, error) {
	m := &holdfastv1.AcquireRequest{
		Session:     s.onStream(),
		Request:     requestID(req.ID),
		Lock:        req.Lock,
		WaitForever: !req.Try,
	}
	switch x := req.Extension.(type) {
	case nil:
	case *extension:
		x.put(m)
	default:
		return driver.Grant{}, &driver.Error{
			Kind: driver.Invalid, Outcome: driver.No, Lock: req.Lock,
			Msg: fmt.Sprintf("options of engine %q were given to engine %q: use this client's own Acquire", x.Engine(), engineName),
		}
	}
	c := newCall(callSession, s, &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Acquire{Acquire: m}})
	c.name, c.queued = req.ID, req.Queued
	a := s.make(ctx, c)
	if a.err != nil {
		return driver.Grant{}, s.named(a.err, req)
	}
	if res := a.frame.GetAcquire(); res.GetEnded() {
		return driver.Grant{}, &driver.Error{
			Kind: driver.NotHeld, Outcome: driver.No, Lock: req.Lock,
			Msg: fmt.Sprintf("the lock was granted (grant %d), and the grant had ended before its answer came here: it was revoked or released; ask again", res.GetGrant().GetNumber()),
		}
	}
	g, err := wire.FromGrant(a.frame.GetAcquire().GetGrant())
	if err == nil && g.Token.Lock != req.Lock {
		err = fmt.Errorf("asked for lock %q, got token %s", req.Lock, g.Token)
	}
	if err != nil {
		return driver.Grant{}, &driver.Error{
			Kind: driver.Internal, Lock: req.Lock,
			Msg: "the service's grant makes no sense: " + err.Error(), Err: err,
		}
	}
	return g, nil
}

// named completes the error of an acquire. A request that an earlier call may
// have brought to the service is not "no" because this call was not sent.
func (s *session) named(e *driver.Error, req driver.AcquireRequest) *driver.Error {
	s.link.mu.Lock()
	seen := s.asked[req.ID.Lane] >= req.ID.N
	s.link.mu.Unlock()
	if e.Lock == "" || (seen && e.Kind == driver.Unavailable) {
		c := *e
		c.Lock = req.Lock
		if seen && e.Kind == driver.Unavailable {
			c.Outcome = driver.Unknown
		}
		return &c
	}
	return e
}

// Cancel implements driver.Session (C2).
func (s *session) Cancel(ctx context.Context, id driver.RequestID) error {
	a := s.do(ctx, callSession, &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Cancel{
		Cancel: &holdfastv1.CancelRequest{Session: s.onStream(), Request: requestID(id)},
	}})
	return settledByEnd(a.err)
}

// Release implements driver.Session.
func (s *session) Release(ctx context.Context, req driver.ReleaseRequest) error {
	number, ok := wire.ParseID(req.Grant)
	if !ok {
		return &driver.Error{
			Kind: driver.Invalid, Outcome: driver.No,
			Msg: fmt.Sprintf("grant %q: want the ID that the acquire returned, a number from 1 on", req.Grant),
		}
	}
	a := s.do(ctx, callSession, &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Release{
		Release: &holdfastv1.ReleaseRequest{Session: s.onStream(), Grant: number, Failed: req.Failed},
	}})
	return settledByEnd(a.err)
}

// End implements driver.Session. Whatever its outcome, the session is not kept
// alive any more (C20 of the casebook).
func (s *session) End(ctx context.Context) error {
	s.link.mu.Lock()
	s.quit = true
	s.link.mu.Unlock()
	a := s.do(ctx, callSession, endFrame(s.id))
	if err := settledByEnd(a.err); err != nil {
		return err
	}
	s.link.mu.Lock()
	s.link.lose(s, endedByOwner())
	s.link.mu.Unlock()
	return nil
}

func endedByOwner() *driver.Error {
	return &driver.Error{Kind: driver.SessionLost, Outcome: driver.No, Msg: "the session was ended by its owner"}
}

// settledByEnd takes the end of the session as the success of a call that
// gives something back: it holds nothing and waits for nothing.
func settledByEnd(e *driver.Error) error {
	if e == nil || e.Kind == driver.SessionLost {
		return nil
	}
	return e
}

func requestID(id driver.RequestID) *holdfastv1.RequestID {
	return &holdfastv1.RequestID{Lane: id.Lane, N: id.N}
}
