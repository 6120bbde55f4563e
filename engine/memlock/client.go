package memlock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strconv"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/server/lease"
)

// client is the driver of one client.
type client struct{ s *Service }

// Fenced marks the engine as one with tokens.
func (c *client) Fenced() {}

// Close has nothing to free.
func (c *client) Close() error { return nil }

// Open starts a session.
func (c *client) Open(ctx context.Context, req driver.OpenRequest) (driver.Session, error) {
	var secret [32]byte
	rand.Read(secret[:])
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	r := s.apply(core.Open{
		ID: core.SessionID(randomID()), SecretHash: sha256.Sum256(secret[:]),
		TTL: req.TTL, Label: req.Label, Host: req.Host,
	})
	if r.Status != core.Done {
		return nil, s.failure("", r)
	}
	return &session{s: s, id: r.Session}, nil
}

// session is one client's session.
type session struct {
	s  *Service
	id core.SessionID
}

// Keepalive extends the lease from its arrival, which is now.
func (x *session) Keepalive(ctx context.Context) (driver.Pulse, error) {
	s := x.s
	s.mu.Lock()
	if err := s.check(ctx); err != nil {
		s.mu.Unlock()
		return driver.Pulse{}, err
	}
	answer := make(chan pulseAnswer, 1)
	s.mu.handles++
	h := s.mu.handles
	s.mu.pulses[h] = pulseWait{x.id, answer}
	s.mu.lease.Keepalive(h, x.id, s.now())
	s.turn()
	s.mu.Unlock()

	select {
	case a := <-answer:
		return a.pulse, a.err
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.mu.pulses, h)
		s.mu.Unlock()
		return driver.Pulse{}, &driver.Error{Kind: driver.Unavailable, Err: ctx.Err()}
	}
}

// answer answers a keepalive, with what the state says at the moment at which
// the lease machine gave the answer (B11). s.mu is held.
func (s *Service) answer(h lease.Handle, st lease.Status) {
	w, ok := s.mu.pulses[h]
	if !ok {
		return
	}
	delete(s.mu.pulses, h)
	switch st {
	case lease.Lost:
		w.answer <- pulseAnswer{err: &driver.Error{Kind: driver.SessionLost, Outcome: driver.No, Msg: "the session does not exist (any more)"}}
	case lease.NotLeader:
		w.answer <- pulseAnswer{err: &driver.Error{Kind: driver.Unavailable, Msg: "the service stopped"}}
	default:
		w.answer <- pulseAnswer{pulse: s.pulse(w.session)}
	}
}

// pulse says what a live session must know about its grants.
func (s *Service) pulse(id core.SessionID) driver.Pulse {
	var p driver.Pulse
	v, _ := s.mu.state.Session(id)
	for _, g := range v.Grants {
		if h, ok := s.mu.state.GrantByNumber(g.Number); ok && h.Revoked {
			p.Revoked = append(p.Revoked, driver.Revocation{Grant: grantID(g.Number), Cause: causeWord(h.Cause), By: h.By})
		}
	}
	for _, d := range v.Tombstones {
		p.Revoked = append(p.Revoked, driver.Revocation{Grant: grantID(d.Grant), Cause: causeWord(d.Cause), By: d.By, Gone: true})
	}
	for _, n := range s.mu.state.Contended(id) {
		p.Contended = append(p.Contended, grantID(n))
	}
	return p
}

func causeWord(c core.RevokeCause) string {
	if c == core.ByMaxHold {
		return "max-hold"
	}
	return "operator"
}

func grantID(n uint64) string { return strconv.FormatUint(n, 10) }

// Acquire asks for a lock and waits for it.
func (x *session) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.Grant, error) {
	if req.Extension != nil {
		return driver.Grant{}, &driver.Error{
			Kind: driver.Invalid, Outcome: driver.No, Lock: req.Lock,
			Msg: fmt.Sprintf("options of engine %s do not work here: memlock has none of its own", req.Extension.Engine()),
		}
	}
	if err := core.ValidateLockName(req.Lock); err != nil {
		return driver.Grant{}, &driver.Error{Kind: driver.Invalid, Outcome: driver.No, Lock: req.Lock, Err: err}
	}
	s := x.s
	key := waitKey{x.id, core.Request{Lane: req.ID.Lane, N: req.ID.N}}
	s.mu.Lock()
	if err := s.check(ctx); err != nil {
		s.mu.Unlock()
		return driver.Grant{}, err
	}
	r := s.commit(s.now(), core.Acquire{Session: x.id, Request: key.request, Lock: req.Lock, Try: req.Try})
	answer := make(chan core.Result, 1)
	if r.Status == core.Waiting {
		if older := s.mu.waits[key]; older != nil {
			older <- replaced
		}
		s.mu.waits[key] = answer
		if req.Queued != nil {
			req.Queued()
		}
	} else {
		answer <- r
	}
	s.turn() // not earlier: what it commits may grant this very request
	s.mu.Unlock()

	select {
	case r := <-answer:
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Status == core.Granted && !r.Ended {
			return s.granted(r.Grant), nil
		}
		return driver.Grant{}, s.failure(req.Lock, r)
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.waits[key] == (chan<- core.Result)(answer) {
			delete(s.mu.waits, key)
		}
		return driver.Grant{}, &driver.Error{Kind: driver.Unavailable, Lock: req.Lock, Err: ctx.Err()}
	}
}

// granted makes what the holder gets of a grant.
func (s *Service) granted(g *core.Grant) driver.Grant {
	return driver.Grant{ID: grantID(g.Number), Token: s.token(g)}
}

func (s *Service) token(g *core.Grant) fence.Token {
	mode := fence.Exclusive
	if g.Shared {
		mode = fence.Shared
	}
	return fence.Token{
		Domain: s.mu.state.Domain(), Incarnation: fence.Incarnation(g.Incarnation),
		Lock: g.Lock, Slot: g.Slot, Mode: mode, Number: g.Generation,
	}
}

// Cancel settles a request.
func (x *session) Cancel(ctx context.Context, id driver.RequestID) error {
	return x.do(ctx, core.Cancel{Session: x.id, Request: core.Request{Lane: id.Lane, N: id.N}})
}

// Release gives a grant back.
func (x *session) Release(ctx context.Context, req driver.ReleaseRequest) error {
	n, err := strconv.ParseUint(req.Grant, 10, 64)
	if err != nil {
		return &driver.Error{Kind: driver.Invalid, Outcome: driver.No, Msg: fmt.Sprintf("%q is no grant of this service", req.Grant)}
	}
	return x.do(ctx, core.Release{Session: x.id, Grant: n, Failed: req.Failed})
}

// End ends the session.
func (x *session) End(ctx context.Context) error {
	return x.do(ctx, core.End{ID: x.id})
}

// do applies a command whose answer is done or not.
func (x *session) do(ctx context.Context, cmd core.Command) error {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if err := x.s.check(ctx); err != nil {
		return err
	}
	switch r := x.s.apply(cmd); r.Status {
	case core.Done, core.Cancelled, core.Settled:
		return nil
	default:
		return x.s.failure("", r)
	}
}

// kinds maps the reasons of core to the kinds of a driver.
var kinds = map[core.Reason]driver.Kind{
	core.Busy: driver.Busy, core.HeldByYou: driver.HeldByYou, core.Closed: driver.Closed,
	core.SessionLost: driver.SessionLost, core.LimitMismatch: driver.Limit, core.TooMany: driver.Limit,
	core.NotHeld: driver.NotHeld, core.NoSuchGrant: driver.Invalid, core.NotFound: driver.NotFound,
	core.Conflict: driver.Conflict, core.Stale: driver.Stale, core.InUse: driver.Busy,
	core.CounterFull: driver.Limit, core.Malformed: driver.Invalid, core.TooNew: driver.Unsupported,
}

// failure words a result that is not what was asked for. s.mu is held.
func (s *Service) failure(lock string, r core.Result) error {
	switch {
	case r.Status == core.Granted:
		return &driver.Error{Kind: driver.NotHeld, Outcome: driver.No, Lock: lock, Msg: fmt.Sprintf("the request was granted (grant %d), and that grant has ended: ask under a new name", r.Grant.Number)}
	case r.Status == core.Cancelled:
		return &driver.Error{Kind: driver.Cancelled, Outcome: driver.No, Lock: lock, Msg: "the request was cancelled"}
	case r.Status == core.Settled:
		return &driver.Error{Kind: driver.Invalid, Outcome: driver.No, Lock: lock, Msg: fmt.Sprintf("a later request, %d, was made on the same lane", r.Last)}
	case r.Refusal == nil:
		return &driver.Error{Kind: driver.Unavailable, Lock: lock, Msg: "no answer: the call was made again, or the service stopped", Err: s.mu.broken}
	}
	f := r.Refusal
	kind, ok := kinds[f.Reason]
	if !ok {
		kind = driver.Internal
	}
	e := &driver.Error{Kind: kind, Outcome: driver.No, Lock: lock, Msg: f.Msg, Waiters: f.Waiters}
	if f.Holder != nil {
		e.Holder = s.holder(f.Holder)
	}
	if f.OpensAt != 0 {
		e.OpensIn = max(0, timeUntil(f.OpensAt, s.mu.lease.Clock(s.now())))
	}
	return e
}
