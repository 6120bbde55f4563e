package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
)

// Efficiency runs the contract of engines without tokens: one holder at a time
// as long as nothing fails, and nothing left behind. Queue order is not
// promised. newWorld is called once for each case; see [Fenced].
func Efficiency(t *testing.T, m Timing, newWorld func(testing.TB) BasicWorld) {
	cases := []testCase{
		{"Hold", (*stage).holdCase},
		{"Exclusion", (*stage).plainExclusionCase},
		{"Expiry", (*stage).expiryCase},
		{"CasebookC25_NothingOutlivesRelease", (*stage).plainC25},
		{"CasebookC26_CancelledAcquireHoldsNothing", (*stage).plainC26},
		{"CasebookC27_ReleaseIgnoresCancelledContext", (*stage).plainC27},
	}
	run(t, m, cases, func(t testing.TB) any { return newWorld(t) })
}

// A plain is one client without tokens.
type plain struct {
	*holdfast.EfficiencyLocker
	link *Link
}

func (s *stage) plain(name string) *plain {
	s.Helper()
	p := &plain{link: NewLink(s.world.(BasicWorld).Driver(s))}
	l, err := holdfast.NewEfficiencyLocker(p.link, s.options(s.lock+"."+name))
	if err != nil {
		s.Fatal(err)
	}
	p.EfficiencyLocker = l
	s.Cleanup(func() {
		p.link.Heal()
		if err := l.Close(context.Background()); err != nil {
			s.Errorf("close of %s: %v", name, err)
		}
	})
	return p
}

func (s *stage) mustHold(p *plain, bound time.Duration) *holdfast.Hold {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, bound+s.Slack)
	defer cancel()
	h, err := p.Acquire(ctx, s.lock)
	if err != nil {
		s.Fatal(err)
	}
	return h
}

// holdCase: what a hold is, and that a waiter gets the lock after its release.
func (s *stage) holdCase() {
	a, b := s.plain("a"), s.plain("b")
	h := s.mustHold(a, s.TTL)
	if h.Lock() != s.lock || h.State() != holdfast.StateHeld || h.Err() != nil || h.Deadline() <= 0 {
		s.Errorf("held: lock %q, %v, %v, %v", h.Lock(), h.State(), h.Err(), h.Deadline())
	}
	if _, err := b.TryAcquire(s.ctx, s.lock); !errors.Is(err, holdfast.ErrBusy) {
		s.Errorf("try of a held lock: %v, want ErrBusy", err)
	}
	got := make(chan error, 1)
	go func() {
		got <- b.Run(s.ctx, s.lock, func(context.Context, *holdfast.Hold) error { return nil })
	}()
	s.pass(s.TTL)
	for range 2 {
		if err := h.Release(s.ctx); err != nil {
			s.Error(err)
		}
	}
	if h.State() != holdfast.StateReleased {
		s.Errorf("released, yet %v", h.State())
	}
	select {
	case err := <-got:
		if err != nil {
			s.Error(err)
		}
	case <-time.After(s.TTL + s.Slack):
		s.Fatal("the waiter did not get the released lock")
	}
}

// plainExclusionCase: while nothing fails, sections do not overlap.
func (s *stage) plainExclusionCase() {
	var inside atomic.Int32
	var all sync.WaitGroup
	for i := range 4 {
		p := s.plain(fmt.Sprint("worker", i))
		all.Go(func() {
			for range s.scale(4, 20, 1000) {
				err := p.Run(s.ctx, s.lock, func(context.Context, *holdfast.Hold) error {
					if n := inside.Add(1); n != 1 {
						s.Errorf("%d holders at a time", n)
					}
					s.pass(s.TTL / 200)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					s.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// expiryCase: a holder that is cut off loses its hold by its own clock, and
// somebody else gets the lock, not before.
func (s *stage) expiryCase() {
	a, b := s.plain("a"), s.plain("b")
	h := s.mustHold(a, s.TTL)
	a.link.Cut()
	got := make(chan time.Time, 1)
	go func() {
		if next, err := b.Acquire(s.ctx, s.lock); err == nil {
			got <- time.Now()
			_ = next.Release(s.ctx)
		}
	}()
	s.within(s.TTL, "loss", h.Context().Done())
	lost := time.Now()
	if h.State() != holdfast.StateLost || h.Cause() == nil {
		s.Errorf("state is %v, cause %v", h.State(), h.Cause())
	}
	select {
	case at := <-got:
		if at.Before(lost) {
			s.Errorf("granted %v before the loss", lost.Sub(at))
		}
	case <-time.After(2*s.TTL + s.Slack):
		s.Fatal("the lock of a dead holder was not granted within 2 TTLs")
	}
}

// plainC25: nothing of a grant goes on after its release.
func (s *stage) plainC25() {
	a, b := s.plain("a"), s.plain("b")
	for range s.scale(20, 200, 10_000) {
		h := s.mustHold(a, s.TTL)
		if err := h.Release(s.ctx); err != nil {
			s.Fatal(err)
		}
		if err := s.mustHold(b, s.TTL).Release(s.ctx); err != nil {
			s.Fatal(err)
		}
	}
	s.pass(s.TTL)
	before := len(a.link.Calls(OpKeepalive))
	s.pass(s.TTL)
	if n := len(a.link.Calls(OpKeepalive)); n != before {
		s.Errorf("%d keepalives with nothing held", n-before)
	}
}

// plainC26: an acquire that is cancelled when its reply is on the way holds
// nothing.
func (s *stage) plainC26() {
	a, b := s.plain("a"), s.plain("b")
	for _, late := range []bool{false, true} {
		ctx, cancel := context.WithCancel(s.ctx)
		a.link.On(func(c Call) Fault {
			switch {
			case c.Op != OpAcquire:
				return Fault{}
			case late:
				return Fault{Seen: cancel, Late: s.TTL / 10}
			}
			return Fault{Seen: cancel, DropReply: true}
		})
		if h, err := a.Acquire(ctx, s.lock); h != nil || !errors.Is(err, context.Canceled) {
			s.Errorf("cancelled acquire: %v, %v", h, err)
		}
		cancel()
		if err := s.mustHold(b, s.TTL).Release(s.ctx); err != nil {
			s.Error(err)
		}
	}
}

// plainC27: see the fenced case.
func (s *stage) plainC27() {
	a, b := s.plain("a"), s.plain("b")
	ctx, cancel := context.WithCancel(s.ctx)
	h, err := a.Acquire(ctx, s.lock)
	if err != nil {
		s.Fatal(err)
	}
	cancel()
	if err := h.Release(ctx); err != nil {
		s.Errorf("release with a cancelled context: %v", err)
	}
	if err := s.mustHold(b, time.Second).Release(s.ctx); err != nil {
		s.Error(err)
	}
}
