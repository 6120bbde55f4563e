package cluster

import (
	"errors"
	"fmt"
	"time"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// received handles one message of st: it settles the calls that it answers,
// and tells the owners of sessions that st was attached to.
func (l *link) received(st *stream, res *holdfastv1.SessionResponse) {
	l.mu.Lock()
	st.since = time.Now()
	for _, f := range res.GetFrames() {
		if l.mu.cur != st {
			break // left: what it still brings is told again on the next one
		}
		l.frame(st, f)
	}
	prompts := st.prompts
	st.prompts = nil
	l.mu.Unlock()
	for _, prompt := range prompts {
		prompt()
	}
}

// frame handles one frame of the current stream. link.mu is held.
func (l *link) frame(st *stream, f *holdfastv1.ServerFrame) {
	if n := f.GetDetached(); n != nil {
		l.detached(st, n)
		return
	}
	p := st.sent[f.GetId()]
	if p == nil {
		if e := f.GetError(); e != nil && f.GetId() == 0 {
			l.refused(st, wire.FromErrorInfo(e)) // about the stream as a whole
		}
		return
	}
	if f.GetQueued() != nil {
		st.useful = true
		st.paid(p)
		p.queued = true
		if p.call != nil && p.call.queued != nil {
			p.call.queued()
		}
		return
	}
	if p.beat != nil && f.GetError() == nil {
		l.beat(st, f.GetId(), p, f.GetKeepAlives())
		return
	}
	delete(st.sent, f.GetId())
	st.paid(p)
	if p.call != nil && p.call.settled && p.call.kind != callOpen {
		return // nobody waits for it any more
	}
	if e := wire.FromErrorInfo(f.GetError()); e != nil {
		if elsewhere(e) {
			l.refused(st, e)
			return
		}
		st.useful = true
		l.failedFrame(st, p, e)
		return
	}
	st.useful = true
	switch {
	case p.call.kind == callAttach:
		st.attached(p.call.sess)
	case p.call.kind == callOpen && p.call.settled:
		l.endOrphan(st, f.GetOpen())
	default:
		delete(l.mu.opens, p.call)
		p.call.settle(answer{frame: f, on: st})
	}
}

// elsewhere reports whether e says that another server, or this one later,
// must be asked, so that the call is still unsettled.
func elsewhere(e *driver.Error) bool { return e.Kind == driver.Unavailable }

// refused leaves a stream whose server cannot serve now. Every unsettled call
// is sent again on the next one (C3).
func (l *link) refused(st *stream, e *driver.Error) {
	hint := ""
	if r := wire.RemoteOf(e); r != nil {
		hint, _ = r.Leader()
	}
	st.refused = true
	l.leaveLocked(st, e, hint)
}

// failedFrame handles an error that is an answer. link.mu is held.
func (l *link) failedFrame(st *stream, p *pending, e *driver.Error) {
	switch {
	case p.beat != nil:
		for _, calls := range p.beat {
			for _, c := range calls {
				c.settle(answer{err: e})
			}
		}
	case e.Kind == driver.SessionLost && p.call.sess != nil:
		l.lose(p.call.sess, e)
	case p.call.kind == callAttach && final(e.Kind):
		l.lose(p.call.sess, &driver.Error{
			Kind: driver.SessionLost, Outcome: driver.No, Err: e,
			Msg: "the service refused to attach this client to its session: " + e.Error(),
		})
	case p.call.kind == callAttach:
		st.refused = true
		l.leaveLocked(st, e, "")
	default:
		delete(l.mu.opens, p.call)
		p.call.settle(answer{err: e, on: st})
	}
}

// final reports whether an attach that failed with kind can never succeed.
func final(kind driver.Kind) bool {
	switch kind {
	case driver.Invalid, driver.Denied, driver.NotFound, driver.Unsupported:
		return true
	}
	return false
}

// beat hands the pulses of one frame to the Keepalive calls that asked for
// them. A beat may be answered in several frames. link.mu is held.
func (l *link) beat(st *stream, id uint64, p *pending, res *holdfastv1.KeepAlivesResponse) {
	for _, told := range res.GetPulses() {
		calls, asked := p.beat[told.GetSessionId()]
		if !asked {
			continue
		}
		s := l.mu.sessions[told.GetSessionId()]
		e := wire.FromErrorInfo(told.GetError())
		switch {
		case e != nil && elsewhere(e):
			l.refused(st, e)
			return
		case e != nil && e.Kind == driver.SessionLost && s != nil:
			l.lose(s, e)
		case e == nil && told.GetAlive() == nil:
			e = &driver.Error{Kind: driver.Internal, Msg: "the service's pulse says neither alive nor why not"}
		}
		st.useful = true
		for _, c := range calls {
			if e != nil {
				c.settle(answer{err: e})
			} else {
				c.settle(answer{pulse: told.GetAlive()})
			}
		}
		delete(p.beat, told.GetSessionId())
	}
	if len(p.beat) == 0 {
		delete(st.sent, id)
		st.paid(p)
	}
}

var errTakeover = errors.New("another client attached to this session with its secret")

// detached handles the notice that this stream is no longer the voice of a
// session. Somebody else has its secret (B12): fighting for it would only take
// turns, so the session is given up. link.mu is held.
func (l *link) detached(st *stream, n *holdfastv1.DetachedNotice) {
	s := l.mu.sessions[n.GetSessionId()]
	if s == nil || s.on != st {
		return
	}
	// Not with link.mu held: a log that is stuck must not stop the line.
	go l.log.Warn("another client took a session over; what it held here is lost",
		"session", wire.FormatID(s.id), "reason", n.GetReason())
	l.lose(s, &driver.Error{
		Kind: driver.SessionLost, Outcome: driver.No, Err: errTakeover,
		Msg: fmt.Sprintf("%v (%s)", errTakeover, n.GetReason()),
	})
}

// endOrphan ends a session whose opener gave up before the answer came, so
// that it does not stand until its TTL. link.mu is held.
func (l *link) endOrphan(st *stream, opened *holdfastv1.OpenSessionResponse) {
	st.push(newCall(callSession, nil, endFrame(opened.GetSessionId())))
}
