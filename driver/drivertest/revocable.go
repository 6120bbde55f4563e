package drivertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast"
)

// Revocable runs the contract of engines whose operators can take a grant back
// (PROTOCOL B11). newWorld is called once for each case; see [Fenced].
func Revocable(t *testing.T, m Timing, newWorld func(testing.TB) RevocableWorld) {
	cases := []testCase{
		{"PoliteRevokeWaitsForHolder", (*stage).politeCase},
		{"PoliteRevokeOfDeafHolder", (*stage).deafCase},
		{"RevokeAtOnce", (*stage).atOnceCase},
	}
	run(t, m, cases, func(t testing.TB) any { return newWorld(t) })
}

func (s *stage) revoke(atOnce bool) {
	s.Helper()
	s.world.(RevocableWorld).Revoke(s, s.lock, atOnce, "olga")
}

// told checks that the holder learns within a keepalive or two who took the
// grant back.
func (s *stage) told(g *holdfast.Grant) {
	s.Helper()
	s.within(2*s.interval(), "the holder is told", g.Context().Done())
	var lost *holdfast.Lost
	if !errors.As(context.Cause(g.Context()), &lost) || lost.Cause != holdfast.CauseRevoked || !strings.Contains(lost.By, "olga") {
		s.Errorf("the context's cause is %v, want revoked by olga", context.Cause(g.Context()))
	}
	if g.State() != holdfast.StateLost || !errors.Is(g.Err(), holdfast.ErrLost) {
		s.Errorf("revoked, yet %v, %v", g.State(), g.Err())
	}
}

// politeCase: the lock is free when the holder has stopped, and another grant
// of its session is not touched.
func (s *stage) politeCase() {
	a, b := s.actor("a"), s.actor("b")
	other := s.mustAcquire(a, s.lock+".other")
	g := s.mustAcquire(a, s.lock)
	p := s.queue(b, s.lock)
	s.revoke(false)
	s.told(g)
	s.pass(s.TTL / 4)
	select {
	case <-p.done:
		s.Error("granted before the holder had stopped")
	default:
	}
	s.mustRelease(g)
	next := s.granted(p, s.TTL/2)
	if next.Token().Number < g.Token().Number+2 {
		s.Errorf("token %d after %d: the revoke burnt no number", next.Token().Number, g.Token().Number)
	}
	s.mustRelease(next)
	if other.State() != holdfast.StateHeld {
		s.Errorf("another grant of the session is %v", other.State())
	}
}

// deafCase: a holder that does not stop is waited for one TTL.
func (s *stage) deafCase() {
	a, b := s.actor("a"), s.actor("b")
	g := s.mustAcquire(a, s.lock)
	p := s.queue(b, s.lock)
	s.revoke(false)
	revoked := time.Now()
	s.told(g)
	s.mustRelease(s.granted(p, s.TTL+s.TTL/4))
	if after := p.at.Sub(revoked); after < s.TTL-s.Slack {
		s.Errorf("granted %v after the revoke, before the holder's TTL was over", after)
	}
	s.mustRelease(g)
}

// atOnceCase: the lock is free at once, and the holder is told soon.
func (s *stage) atOnceCase() {
	a, b := s.actor("a"), s.actor("b")
	g := s.mustAcquire(a, s.lock)
	p := s.queue(b, s.lock)
	s.revoke(true)
	next := s.granted(p, s.TTL/4)
	s.told(g)
	s.mustRelease(g)
	if next.State() != holdfast.StateHeld {
		s.Errorf("the old holder's release made the new grant %v", next.State())
	}
	s.mustRelease(next)
}
