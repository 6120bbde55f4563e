package memlock

import (
	"fmt"
	"strconv"
	"time"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
)

// A View shows one lock as it is now.
type View struct {
	// Holder is nil if nobody holds the lock.
	Holder *driver.Holder
	// Queue lists those who wait, the head first; at most 1,000.
	Queue []Waiter
	// Waiters is how many wait.
	Waiters int
}

// A Waiter is one place in a queue.
type Waiter struct {
	Label   string
	Host    string
	Session string
}

// Lock shows a lock. One that nobody uses is free, and never unknown.
func (s *Service) Lock(name string) View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, _ := s.mu.state.Lock(name, 1000)
	view := View{Waiters: v.Waiters}
	if len(v.Holders) > 0 {
		view.Holder = s.holder(&v.Holders[0].Holder)
	}
	for _, w := range v.Queue {
		view.Queue = append(view.Queue, Waiter{Label: w.Label, Host: w.Host, Session: sessionID(w.Session)})
	}
	return view
}

// Locks lists the names of the locks in use that begin with prefix, in byte
// order; at most 10,000.
func (s *Service) Locks(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, l := range s.mu.state.Locks(prefix, "", 10_000) {
		names = append(names, l.Name)
	}
	return names
}

// Sessions is how many sessions live.
func (s *Service) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state.SessionCount()
}

// SessionsOf lists the IDs of the sessions with a label.
func (s *Service) SessionsOf(label string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, v := range s.mu.state.Sessions(0, s.mu.state.SessionCount()) {
		if v.Label == label {
			ids = append(ids, sessionID(v.ID))
		}
	}
	return ids
}

// Revoke takes a grant back, as an operator does (B11): politely, so that the
// holder is told with its next keepalive and has one TTL to stop in, or at
// once. It returns the revocation token, which can arm a gate.
func (s *Service) Revoke(lock string, grant uint64, atOnce bool, by string) (fence.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.apply(core.Revoke{Lock: lock, Grant: grant, Now: atOnce, Cause: core.ByOperator, By: by})
	if r.Status != core.Done {
		return fence.Token{}, fmt.Errorf("%w: %w", ErrNotHeld, s.failure(lock, r))
	}
	return fence.Token{
		Domain: s.mu.state.Domain(), Incarnation: fence.Incarnation(s.mu.state.Incarnation()),
		Lock: lock, Mode: fence.Revocation, Number: r.Number,
	}, nil
}

// Expel ends another's session, as an operator does. The ID is that of
// [View].
func (s *Service) Expel(session, by string) error {
	id, err := strconv.ParseUint(session, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrNoSession, session)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.apply(core.End{ID: core.SessionID(id), Operator: true, By: by}); r.Status != core.Done {
		return fmt.Errorf("%w: %s", ErrNoSession, session)
	}
	return nil
}

func sessionID(id core.SessionID) string { return strconv.FormatUint(uint64(id), 10) }

// holder words who holds a lock. s.mu is held.
func (s *Service) holder(h *core.Holder) *driver.Holder {
	return &driver.Holder{
		Label: h.Label, Host: h.Host, Session: sessionID(h.Session),
		GrantNumber: h.Number, Token: s.token(&h.Grant).String(),
		Held: max(0, timeUntil(s.mu.lease.Clock(s.now()), h.Since)),
	}
}

// timeUntil is a − b on the service's clock.
func timeUntil(a, b core.Clock) time.Duration { return time.Duration(a - b) }
