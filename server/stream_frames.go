package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// handle deals with one message: keepalives of sessions that this stream
// speaks for before everything else, then attaches (others may depend on
// them), then the rest in order. An error breaks the rules of the stream and
// ends it; what is wrong with one frame is answered to that frame.
func (st *stream) handle(ctx context.Context, req *holdfastv1.SessionRequest) error {
	frames := req.GetFrames()
	if len(frames) > wire.MaxFramesPerRequest {
		return invalid("a message has %d frames: want at most %d", len(frames), wire.MaxFramesPerRequest)
	}
	type late struct{ frame, session uint64 }
	var deferred []late
	for _, f := range frames {
		if f.GetId() == 0 {
			return invalid("a frame has id 0: want a number above 0, which its answer carries")
		}
		for _, id := range f.GetKeepAlives().GetSessionIds() {
			if st.in.over() {
				return errOver
			}
			if !st.keepAlive(f.GetId(), id) {
				deferred = append(deferred, late{f.GetId(), id})
			}
		}
	}
	for _, f := range frames {
		if a := f.GetAttach(); a != nil {
			if err := st.attach(ctx, f.GetId(), a); err != nil {
				st.fail(f.GetId(), err)
			}
		}
	}
	for _, d := range deferred {
		if st.in.over() {
			return errOver
		}
		if !st.keepAlive(d.frame, d.session) {
			st.pulse(d.frame, &holdfastv1.SessionPulse{SessionId: d.session, Error: wire.ErrorInfo(classify(st.notMine(d.session)))})
		}
	}
	for _, f := range frames {
		if st.in.over() {
			return errOver
		}
		st.ordinary(f)
	}
	return nil
}

// notMine is why this stream may not speak for a session.
func (st *stream) notMine(id uint64) error {
	if st.s.voices.endedOn(st, core.SessionID(id)) {
		return lostSession(core.SessionID(id))
	}
	return &driver.Error{Kind: driver.Denied, Outcome: driver.No, Msg: fmt.Sprintf("this stream is not attached to session %d: send an attach frame with its secret first", id)}
}

// enter waits for room for one more request; see [window].
func (st *stream) enter() bool {
	return st.in.enter(func() int { return st.s.voices.spokenBy(st) })
}

// errOver ends the reading of a stream that has ended for a reason of its own.
var errOver error = &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "the stream has ended: connect again"}

// keepAlive hands one session's keepalive on, unless this stream does not
// speak for the session.
func (st *stream) keepAlive(frame, session uint64) bool {
	id := core.SessionID(session)
	if !st.s.voices.speaks(st, id) {
		return false
	}
	if !st.enter() {
		return true // nobody waits for the answer
	}
	st.s.node.Keepalive(id, func(p Pulse) {
		st.in.leave()
		out := &holdfastv1.SessionPulse{SessionId: session}
		if p.Err != nil {
			if errors.Is(p.Err, ErrSessionLost) {
				st.s.voices.drop(id)
			}
			out.Error = wire.ErrorInfo(classify(pulseError(id, p.Err)))
		} else {
			out.Alive = pulse(p)
		}
		st.pulse(frame, out)
	})
	return true
}

func (st *stream) pulse(frame uint64, p *holdfastv1.SessionPulse) {
	if !st.out.putPulse(frame, p) {
		st.close(errSlow)
	}
}

// ordinary deals with any frame but attaches and keepalives.
func (st *stream) ordinary(f *holdfastv1.ClientFrame) {
	id := f.GetId()
	var err error
	switch b := f.GetBody().(type) {
	case *holdfastv1.ClientFrame_Attach:
	case *holdfastv1.ClientFrame_KeepAlives:
		if len(b.KeepAlives.GetSessionIds()) == 0 {
			// Nothing to wait for, yet every frame has an answer.
			st.answer(&holdfastv1.ServerFrame{Id: id, Body: &holdfastv1.ServerFrame_KeepAlives{KeepAlives: &holdfastv1.KeepAlivesResponse{}}})
		}
	case *holdfastv1.ClientFrame_Open:
		err = st.open(id, b.Open)
	case *holdfastv1.ClientFrame_Acquire:
		err = st.acquire(id, b.Acquire)
	case *holdfastv1.ClientFrame_Cancel:
		err = st.cancel(id, b.Cancel)
	case *holdfastv1.ClientFrame_Release:
		err = st.release(id, b.Release)
	case *holdfastv1.ClientFrame_End:
		err = st.end(id, b.End)
	default:
		err = &driver.Error{Kind: driver.Unsupported, Outcome: driver.No, Msg: "this server does not know what the frame asks for: it may be older than the client"}
	}
	if err != nil {
		st.fail(id, err)
	}
}

// owned returns the session of a frame, for which this stream must speak.
func (st *stream) owned(ref *holdfastv1.SessionRef) (core.SessionID, error) {
	if err := checkSessionID(ref.GetId()); err != nil {
		return 0, err
	}
	id := core.SessionID(ref.GetId())
	if !st.s.voices.speaks(st, id) {
		return 0, st.notMine(ref.GetId())
	}
	return id, nil
}

func (st *stream) attach(ctx context.Context, frame uint64, m *holdfastv1.AttachRequest) error {
	instance, err := checkInstance(m.GetInstance(), true)
	if err != nil {
		return err
	}
	if m.GetNumber() == 0 {
		return invalid("number is 0: want 1, then one higher for each attach of this client process")
	}
	id, err := st.s.owner(ctx, m.GetSession(), true)
	if err != nil {
		return err
	}
	var ttl time.Duration
	lives := false
	err = st.s.node.view(ctx, true, true, func(r Reading) {
		var t core.SessionTiming
		t, lives = r.State.SessionTiming(id)
		ttl = t.TTL
	})
	if err != nil {
		return nothingDone(err)
	}
	if !lives {
		return lostSession(id)
	}
	robbed, err := st.s.voices.attach(id, st, instance, m.GetNumber())
	if err != nil {
		return err
	}
	st.s.rob(id, robbed, st)
	st.answer(&holdfastv1.ServerFrame{Id: frame, Body: &holdfastv1.ServerFrame_Attach{Attach: &holdfastv1.AttachResponse{TtlMs: wire.Millis(ttl)}}})
	return nil
}

func (st *stream) open(frame uint64, m *holdfastv1.OpenSessionRequest) error {
	var drawn wire.Secret
	rand.Read(drawn[:]) // never fails
	cmd, err := openCommand(m, drawn, true)
	if err != nil {
		return err
	}
	cmd.ID = st.s.node.NewSessionID()
	if !st.enter() {
		return errOver
	}
	out := &holdfastv1.OpenSessionResponse{TtlMs: wire.Millis(cmd.TTL)}
	if m.GetSecret() == "" {
		out.Secret = drawn.String()
	}
	done := func(id core.SessionID, err error) {
		st.in.leave()
		if err != nil {
			st.fail(frame, err)
			return
		}
		out.SessionId = uint64(id)
		st.s.rob(id, st.s.voices.opened(id, st, cmd.Instance), st)
		st.answer(&holdfastv1.ServerFrame{Id: frame, Body: &holdfastv1.ServerFrame_Open{Open: out}})
	}
	st.s.node.Submit(cmd, func(a Answer) {
		id, err := a.Result.Session, st.s.decided(a)
		if err != nil || id == cmd.ID {
			done(id, err)
			return
		}
		st.s.found(id, func(ttl time.Duration, err error) {
			out.TtlMs = wire.Millis(ttl)
			done(id, err)
		})
	})
	return nil
}

// decided is the error in an answer to a command for which Refused is one.
func (s *service) decided(a Answer) error {
	if a.Err != nil {
		return a.Err
	}
	if a.Result.Status == core.Refused {
		return s.at().refused(a.Result.Refusal)
	}
	return nil
}

// acquire queues until granted or cancelled, unless the frame asks for no
// wait: the client keeps the time and cancels.
func (st *stream) acquire(frame uint64, m *holdfastv1.AcquireRequest) error {
	cmd, _, err := acquireCommand(m)
	if err != nil {
		return err
	}
	if cmd.Session, err = st.owned(m.GetSession()); err != nil {
		return err
	}
	if !st.enter() {
		return errOver
	}
	answered := false
	st.s.node.Submit(cmd, func(a Answer) {
		if !answered {
			st.in.leave()
		}
		answered = true
		if !a.Final() {
			st.answer(&holdfastv1.ServerFrame{Id: frame, Body: &holdfastv1.ServerFrame_Queued{Queued: &holdfastv1.QueuedNotice{Place: uint32(a.Result.Place)}}})
			return
		}
		out, err := st.s.granted(a, cmd.Request)
		if err != nil {
			st.fail(frame, err)
			return
		}
		st.answer(&holdfastv1.ServerFrame{Id: frame, Body: &holdfastv1.ServerFrame_Acquire{Acquire: out}})
	})
	return nil
}

// submit proposes a command for which one answer is final, and queues done
// when it took effect.
func (st *stream) submit(frame uint64, cmd core.Command, done *holdfastv1.ServerFrame) {
	if !st.enter() {
		return
	}
	st.s.node.Submit(cmd, func(a Answer) {
		st.in.leave()
		if err := st.s.decided(a); err != nil {
			st.fail(frame, err)
			return
		}
		if end, ok := cmd.(core.End); ok {
			st.s.voices.drop(end.ID)
		}
		done.Id = frame
		st.answer(done)
	})
}

func (st *stream) cancel(frame uint64, m *holdfastv1.CancelRequest) error {
	request, err := checkRequest(m.GetRequest())
	if err != nil {
		return err
	}
	id, err := st.owned(m.GetSession())
	if err != nil {
		return err
	}
	st.submit(frame, core.Cancel{Session: id, Request: request},
		&holdfastv1.ServerFrame{Body: &holdfastv1.ServerFrame_Cancel{Cancel: &holdfastv1.CancelResponse{}}})
	return nil
}

func (st *stream) release(frame uint64, m *holdfastv1.ReleaseRequest) error {
	if err := checkGrant("grant", m.GetGrant()); err != nil {
		return err
	}
	id, err := st.owned(m.GetSession())
	if err != nil {
		return err
	}
	st.submit(frame, core.Release{Session: id, Grant: m.GetGrant(), Failed: m.GetFailed()},
		&holdfastv1.ServerFrame{Body: &holdfastv1.ServerFrame_Release{Release: &holdfastv1.ReleaseResponse{}}})
	return nil
}

func (st *stream) end(frame uint64, m *holdfastv1.EndSessionRequest) error {
	done := &holdfastv1.ServerFrame{Id: frame, Body: &holdfastv1.ServerFrame_End{End: &holdfastv1.EndSessionResponse{}}}
	id, err := st.owned(m.GetSession())
	if err != nil {
		if classify(err).Kind == driver.SessionLost {
			st.answer(done) // it is over, as asked
			return nil
		}
		return err
	}
	st.submit(frame, core.End{ID: id}, done)
	return nil
}
