package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"holdfast"
	"holdfast/driver"
)

// c16: a waiter whose session ran out while it was frozen is never granted,
// and the next in the queue is, at once.
func (s *stage) c16() {
	a, b, c := s.actor("a"), s.actor("b"), s.actor("c")
	g := s.mustAcquire(a, s.lock)
	pb := s.queue(b, s.lock)
	pc := s.queue(c, s.lock)
	b.link.Freeze()
	s.eventually(3*s.TTL, "the frozen waiter has left the queue", func() bool { return s.waiters(s.lock) == 1 })
	s.mustRelease(g)
	s.granted(pc, s.TTL/4)
	b.link.Thaw()
	s.ends(pb, s.TTL)
	if pb.g != nil || !errors.Is(pb.err, holdfast.ErrSessionLost) {
		s.Errorf("the frozen waiter got %v, %v, want ErrSessionLost", pb.g, pb.err)
	}
}

// c17: a waiter whose session is ended by an operator is told, though somebody
// else holds the lock.
func (s *stage) c17() {
	a, b := s.actor("a"), s.actor("b")
	g := s.mustAcquire(a, s.lock)
	p := s.queue(b, s.lock)
	s.pass(2 * s.interval()) // its keepalives have been answered
	s.world.(World).Expel(s, b.label)
	s.ends(p, time.Second)
	if !errors.Is(p.err, holdfast.ErrSessionLost) {
		s.Errorf("expelled while waiting: %v, want ErrSessionLost", p.err)
	}
	if g.State() != holdfast.StateHeld {
		s.Errorf("the holder's state is %v, want held", g.State())
	}
	p = s.queue(b, s.lock) // in a new session
	s.mustRelease(g)
	s.granted(p, s.TTL/2)
}

// c19: when a client says that it lost the lock, the service does not go on
// believing in its session, though it still hears its keepalives.
func (s *stage) c19() {
	a, b := s.actor("a"), s.actor("b")
	g := s.mustAcquire(a, s.lock)
	p := s.queue(b, s.lock)
	a.link.On(func(c Call) Fault { return Fault{DropReply: c.Op == OpKeepalive} })
	s.within(s.TTL, "loss", g.Context().Done())
	lost := time.Now()
	s.granted(p, s.TTL/3)
	if p.at.Before(lost) {
		s.Errorf("granted %v before the loss", lost.Sub(p.at))
	}
	if c := g.Cause(); c == nil || c.Cause != holdfast.CauseUnreachable {
		s.Errorf("cause is %v, want unreachable", c)
	}
}

// c20: however a client goes away, it stops renewing and the lock is free.
func (s *stage) c20() {
	closed := s.actor("closed")
	g := s.mustAcquire(closed, s.lock)
	if err := closed.Close(s.ctx); err != nil {
		s.Error(err)
	}
	if g.State() != holdfast.StateLost || g.Cause().Cause != holdfast.CauseClosed {
		s.Errorf("after Close: %v, %v", g.State(), g.Cause())
	}
	if _, err := closed.Acquire(s.ctx, s.lock); !errors.Is(err, holdfast.ErrLockerClosed) {
		s.Errorf("acquire after Close: %v, want ErrLockerClosed", err)
	}
	s.free(s.lock, s.TTL/2)

	panicked := s.actor("panicked")
	func() {
		defer func() { _ = recover() }()
		_ = panicked.Run(s.ctx, s.lock, func(context.Context, *holdfast.Grant) error { panic("worker") })
	}()
	s.free(s.lock, s.TTL/2)

	killed := s.actor("killed")
	s.mustAcquire(killed, s.lock)
	killed.link.Cut()
	s.free(s.lock, 2*s.TTL)

	s.pass(s.TTL)
	for _, a := range []*actor{closed, panicked, killed} {
		before := len(a.link.Calls(OpKeepalive))
		s.pass(s.TTL)
		if n := len(a.link.Calls(OpKeepalive)); n != before {
			s.Errorf("%s: %d keepalives after it went away", a.label, n-before)
		}
	}
}

// c22: a holder that hears nothing knows by its own clock, before anybody else
// can be granted the lock.
func (s *stage) c22() {
	a, b := s.actor("a"), s.actor("b")
	g := s.mustAcquire(a, s.lock)
	p := s.queue(b, s.lock)
	s.eventually(s.TTL, "two keepalives were answered", func() bool { return a.pulses.Load() >= 2 })
	a.link.Cut()
	s.pass(s.interval() / 4)
	want := a.good.Load().(time.Duration) + s.TTL - s.margin()
	<-g.Context().Done()
	got := time.Since(s.start)
	if off := (got - want).Abs(); off > s.Slack+10*time.Millisecond {
		s.Errorf("lost at %v, want %v", got, want)
	}
	var lost *holdfast.Lost
	if !errors.As(context.Cause(g.Context()), &lost) || lost.Cause != holdfast.CauseUnreachable || lost.Lock != s.lock {
		s.Errorf("cause is %v, want unreachable", context.Cause(g.Context()))
	}
	s.granted(p, 2*s.TTL)
	if at := p.at.Sub(s.start); at < got {
		s.Errorf("granted at %v, before the loss at %v", at, got)
	}
}

// c23: no class of error ends the renewals.
func (s *stage) c23() {
	classes := map[string]error{
		"unavailable": &driver.Error{Kind: driver.Unavailable},
		"not-leader":  &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "not the leader"},
		"deadline":    &driver.Error{Kind: driver.Internal, Err: context.DeadlineExceeded},
		"reset":       fmt.Errorf("read: %w", syscall.ECONNRESET),
		"overloaded":  &driver.Error{Kind: driver.Overloaded, Outcome: driver.No},
		"denied":      &driver.Error{Kind: driver.Denied, Outcome: driver.No},
	}
	var all sync.WaitGroup
	for name, class := range classes {
		a := s.actor(name)
		g := s.mustAcquire(a, s.lock+"."+name)
		all.Go(func() {
			bad := time.Now().Add(s.TTL * 6 / 10)
			a.link.On(func(c Call) Fault {
				if c.Op == OpKeepalive && time.Now().Before(bad) {
					return Fault{Refuse: class}
				}
				return Fault{}
			})
			s.pass(s.TTL / 2)
			if got := g.State(); got != holdfast.StateJeopardy {
				s.Errorf("%s: state is %v while keepalives fail, want jeopardy", name, got)
			}
			s.pass(s.TTL)
			if got := g.State(); got != holdfast.StateHeld {
				s.Errorf("%s: state is %v after the failures, want held", name, got)
			}
			if st := a.Stats(); st.KeepaliveFailures < 3 || st.Keepalives <= st.KeepaliveFailures || st.Losses != 0 {
				s.Errorf("%s: counted %+v", name, st)
			}
		})
	}
	all.Wait()
}

// c24: a lock that was lost and taken again is renewed like the first time.
func (s *stage) c24() {
	a := s.actor("a")
	g := s.mustAcquire(a, s.lock)
	a.link.Cut()
	s.within(s.TTL, "loss", g.Context().Done())
	a.link.Restore()
	second := s.mustAcquire(a, s.lock)
	before := a.pulses.Load()
	held := time.Duration(s.scale(2, 5, 5)) * s.TTL
	s.pass(held)
	if got := second.State(); got != holdfast.StateHeld {
		s.Errorf("state of the second grant is %v, want held", got)
	}
	if got := g.State(); got != holdfast.StateLost {
		s.Errorf("state of the first grant is %v, want lost", got)
	}
	if n, least := a.pulses.Load()-before, int64(held/s.interval()/2); n < least {
		s.Errorf("%d keepalives answered, want at least %d", n, least)
	}
	if err := g.Release(s.ctx); err != nil {
		s.Errorf("release of the lost grant: %v", err)
	}
	if got := second.State(); got != holdfast.StateHeld {
		s.Errorf("releasing the old grant made the new one %v", got)
	}
}

// c30: a keepalive whose reply was lost is no conflict for the next.
func (s *stage) c30() {
	a := s.actor("a")
	g := s.mustAcquire(a, s.lock)
	a.link.On(func(c Call) Fault { return Fault{DropReply: c.Op == OpKeepalive && c.N%2 == 0} })
	s.pass(time.Duration(s.scale(3, 20, 20)) * s.TTL)
	if got := g.State(); got == holdfast.StateLost {
		s.Errorf("lost: %v", g.Cause())
	}
	if st := a.Stats(); st.KeepaliveFailures < 3 {
		s.Errorf("only %d keepalives failed: the test tests nothing", st.KeepaliveFailures)
	}
}

// c31: a reply that comes after the deadline revives nothing.
func (s *stage) c31() {
	a, b := s.actor("a"), s.actor("b")
	g := s.mustAcquire(a, s.lock)
	late := make(chan struct{}, 1000)
	a.link.On(func(c Call) Fault {
		if c.Op != OpKeepalive {
			return Fault{}
		}
		return Fault{Late: s.TTL + s.TTL/10, Seen: func() { late <- struct{}{} }}
	})
	s.within(s.TTL, "loss", g.Context().Done())
	if len(late) == 0 {
		s.Error("no keepalive reached the service: the test tests nothing")
	}
	s.pass(s.TTL / 2)
	for range 10 {
		s.pass(s.TTL / 10) // the late replies come in
		if got := g.State(); got != holdfast.StateLost {
			s.Fatalf("a late reply made the grant %v", got)
		}
	}
	if len(a.link.Calls(OpEnd))+len(a.link.Calls(OpRelease)) == 0 {
		s.Error("the client did not try to free what the service still believed in")
	}
	a.link.On(nil)
	s.mustRelease(s.mustAcquireIn(b, s.lock, s.TTL/2))
}

// c33: the lock is released after the work has ended, and not before.
func (s *stage) c33() {
	a, b := s.actor("a"), s.actor("b")
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	started, ran := make(chan struct{}), make(chan error, 1)
	var ended time.Time
	go func() {
		ran <- a.Run(ctx, s.lock, func(ctx context.Context, g *holdfast.Grant) error {
			close(started)
			<-ctx.Done()
			s.pass(s.TTL * 3 / 10) // the work takes a while to stop
			if g.State() != holdfast.StateHeld {
				s.Errorf("not held while the work ends: %v", g.State())
			}
			if len(a.link.Calls(OpRelease)) != 0 {
				s.Error("released before the work had ended")
			}
			ended = time.Now()
			return ctx.Err()
		})
	}()
	s.within(2*s.TTL, "start of the work", started)
	p := s.queue(b, s.lock)
	cancel()
	s.granted(p, s.TTL)
	if err := <-ran; !errors.Is(err, context.Canceled) {
		s.Errorf("Run returned %v, want the work's error", err)
	}
	if p.at.Before(ended) {
		s.Errorf("granted %v before the work had ended", ended.Sub(p.at))
	}
}

// c34: a worker that shows no sign of life loses its lock, and nothing else.
func (s *stage) c34() {
	for name, check := range map[string]func() error{
		"failing": func() error { return errors.New("no progress") },
		"stuck":   func() error { <-s.ctx.Done(); return nil },
	} {
		a := s.actor(name)
		lock := s.lock + "." + name
		other := s.mustAcquire(a, lock+".other")
		g := s.mustAcquire(a, lock, holdfast.Alive(s.TTL/20, 3, check))
		s.within(s.TTL/2, "loss", g.Context().Done())
		if c := g.Cause(); c == nil || c.Cause != holdfast.CauseLiveness || c.Err == nil {
			s.Errorf("%s: cause is %v, want liveness", name, c)
		}
		s.free(lock, 2*s.TTL)
		if other.State() != holdfast.StateHeld {
			s.Errorf("%s: another grant of the session is %v", name, other.State())
		}
		s.mustRelease(other)
	}
	a := s.actor("alive")
	g := s.mustAcquire(a, s.lock, holdfast.Alive(s.TTL/20, 1, func() error { return nil }))
	s.pass(2 * s.TTL)
	if g.State() != holdfast.StateHeld {
		s.Errorf("a live worker's grant is %v: %v", g.State(), g.Cause())
	}
	s.mustRelease(g)
}

// c80: who has the same label and host name is still somebody else.
func (s *stage) c80() {
	twin := s.lock + ".twin"
	a, b := s.actorWith("a", s.options(twin)), s.actorWith("b", s.options(twin))
	g := s.mustAcquire(a, s.lock)
	if _, err := b.TryAcquire(s.ctx, s.lock); !errors.Is(err, holdfast.ErrBusy) {
		s.Errorf("try of a twin: %v, want ErrBusy", err)
	}
	p := s.queue(b, s.lock)
	s.pass(s.TTL)
	select {
	case <-p.done:
		s.Fatalf("the twin did not wait: %v", p.err)
	default:
	}
	s.mustRelease(g)
	s.granted(p, s.TTL/2)
}
