package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast"
	"holdfast/driver"
)

// c25: whatever moment an acquire is given up at, and a grant is released at,
// nothing of it goes on.
func (s *stage) c25() {
	a, b := s.actor("a"), s.actor("b")
	rng := rand.New(rand.NewPCG(25, 25))
	jitter := func(Call) Fault {
		return Fault{Before: rand.N(300 * time.Microsecond), Late: rand.N(300 * time.Microsecond)}
	}
	a.link.On(jitter)
	got := 0
	for range s.scale(60, 1500, 10_000) {
		ctx, cancel := context.WithCancel(s.ctx)
		stop := time.AfterFunc(time.Duration(rng.Int64N(int64(2*time.Millisecond))), cancel)
		g, err := a.Acquire(ctx, s.lock)
		if (g == nil) == (err == nil) {
			s.Fatalf("neither or both: %v, %v", g, err)
		}
		if g != nil {
			got++
			if err := g.Release(ctx); err != nil {
				s.Fatal(err)
			}
		}
		stop.Stop()
		cancel()
		s.mustRelease(s.mustAcquireIn(b, s.lock, max(100*time.Millisecond, s.Slack)))
	}
	if got == 0 {
		s.Error("no acquire succeeded: the test tests nothing")
	}
	s.pass(s.TTL)
	before := len(a.link.Calls(OpKeepalive))
	s.pass(s.TTL)
	if n := len(a.link.Calls(OpKeepalive)); n != before {
		s.Errorf("%d keepalives with nothing held", n-before)
	}
}

// c26: cancelled at any step, an acquire leaves a handle or nothing.
func (s *stage) c26() {
	steps := map[string]func(Call, func()) Fault{
		"before the request is sent": func(_ Call, cancel func()) Fault {
			cancel()
			return Fault{Before: s.TTL / 50}
		},
		"request lost":  func(_ Call, cancel func()) Fault { time.AfterFunc(s.TTL/50, cancel); return Fault{DropRequest: true} },
		"request late":  func(_ Call, cancel func()) Fault { time.AfterFunc(s.TTL/100, cancel); return Fault{Before: s.TTL / 50} },
		"reply lost":    func(_ Call, cancel func()) Fault { return Fault{Seen: cancel, DropReply: true} },
		"reply late":    func(_ Call, cancel func()) Fault { return Fault{Seen: cancel, Late: s.TTL / 10} },
		"reply at once": func(_ Call, cancel func()) Fault { return Fault{Seen: cancel} },
	}
	for name, step := range steps {
		for _, lossy := range []bool{false, true} { // the first cancel's and release's reply is lost too
			a := s.actor("a")
			ctx, cancel := context.WithCancel(s.ctx)
			var dropped atomic.Bool
			a.link.On(func(c Call) Fault {
				switch {
				case c.Op == OpAcquire && c.N == 1:
					return step(c, cancel)
				case (c.Op == OpCancel || c.Op == OpRelease) && lossy:
					return Fault{DropReply: dropped.CompareAndSwap(false, true)}
				}
				return Fault{}
			})
			g, err := a.Acquire(ctx, s.lock)
			cancel()
			switch {
			case g == nil && !errors.Is(err, context.Canceled):
				s.Errorf("%s: %v, want context.Canceled", name, err)
			case g != nil && err != nil:
				s.Errorf("%s: both a handle and %v", name, err)
			case g != nil:
				s.mustRelease(g)
			}
			s.free(s.lock, s.TTL)
			if n := s.waiters(s.lock); n != 0 {
				s.Errorf("%s: %d wait, want 0", name, n)
			}
			a.link.On(nil)
			s.mustRelease(s.mustAcquire(a, s.lock)) // the lane can be used again
		}
	}
}

// c27: a release is sent though its context is cancelled; when nobody can be
// reached it says so, and stops renewing anyway.
func (s *stage) c27() {
	a, b := s.actor("a"), s.actor("b")
	ctx, cancel := context.WithCancel(s.ctx)
	g, err := a.Acquire(ctx, s.lock)
	if err != nil {
		s.Fatal(err)
	}
	p := s.queue(b, s.lock)
	cancel()
	if err := g.Release(ctx); err != nil {
		s.Errorf("release with a cancelled context: %v", err)
	}
	s.mustRelease(s.granted(p, time.Second))

	g = s.mustAcquire(a, s.lock)
	a.link.Cut()
	began := time.Now()
	if err := g.Release(ctx); !errors.Is(err, holdfast.ErrReleasePending) {
		s.Errorf("release with nobody to be reached: %v, want ErrReleasePending", err)
	}
	if took := time.Since(began); took > s.TTL+s.Slack {
		s.Errorf("release took %v", took)
	}
	if err := context.Cause(g.Context()); err != holdfast.ErrReleased {
		s.Errorf("the context's cause is %v, want ErrReleased", err)
	}
	before := len(a.link.Calls(OpKeepalive))
	s.free(s.lock, 2*s.TTL)
	if n := len(a.link.Calls(OpKeepalive)); n > before+1 {
		s.Errorf("%d keepalives after the release", n-before)
	}
}

// c28: a release that failed is pending until it is confirmed.
func (s *stage) c28() {
	a, b := s.actor("a"), s.actor("b")
	other := s.mustAcquire(a, s.lock+".other") // so that the session lives on
	g := s.mustAcquire(a, s.lock)
	p := s.queue(b, s.lock)
	var broken atomic.Bool
	broken.Store(true)
	a.link.On(func(c Call) Fault {
		if c.Op == OpRelease && c.Grant != "" && broken.Load() {
			return Fault{Refuse: &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "broken"}}
		}
		return Fault{}
	})
	for range 2 {
		if err := g.Release(s.ctx); !errors.Is(err, holdfast.ErrReleasePending) || !strings.Contains(err.Error(), "broken") {
			s.Fatalf("release that fails: %v, want ErrReleasePending and why", err)
		}
		if got := g.State(); got != holdfast.StateReleasing {
			s.Errorf("state is %v, want releasing", got)
		}
	}
	select {
	case <-p.done:
		s.Fatal("granted though the release never reached the service")
	default:
	}
	broken.Store(false)
	s.mustRelease(g)
	if got := g.State(); got != holdfast.StateReleased {
		s.Errorf("state is %v, want released", got)
	}
	s.granted(p, s.TTL/2)
	if other.State() != holdfast.StateHeld {
		s.Errorf("another grant of the session is %v", other.State())
	}
}

// c29: the retry of an old release does not touch a newer grant.
func (s *stage) c29() {
	a, b := s.actor("a"), s.actor("b")
	g := s.mustAcquire(a, s.lock)
	freed := make(chan struct{})
	a.link.On(func(c Call) Fault {
		switch {
		case c.Op != OpRelease:
			return Fault{}
		case c.N == 1:
			return Fault{DropReply: true, Seen: func() { close(freed) }}
		}
		return Fault{Before: s.TTL / 10}
	})
	released := make(chan error, 1)
	go func() { released <- g.Release(s.ctx) }()
	s.within(s.TTL, "release at the service", freed)
	second := s.mustAcquire(a, s.lock)
	if err := <-released; err != nil {
		s.Errorf("retry of the old release: %v", err)
	}
	if n := len(a.link.Calls(OpRelease)); n < 2 {
		s.Errorf("%d releases were sent: the test tests nothing", n)
	}
	if second.Token().Number <= g.Token().Number || second.State() != holdfast.StateHeld {
		s.Errorf("second grant: token %d after %d, %v", second.Token().Number, g.Token().Number, second.State())
	}
	if _, err := b.TryAcquire(s.ctx, s.lock); !errors.Is(err, holdfast.ErrBusy) {
		s.Errorf("the old release freed the new grant: %v", err)
	}
	s.pass(s.TTL)
	if got := second.State(); got != holdfast.StateHeld {
		s.Errorf("second grant is %v: %v", got, second.Cause())
	}
	a.link.On(nil)
	s.mustRelease(second)
}

// c39: a dead waiter at the head of the queue holds nobody up.
func (s *stage) c39() {
	a, b, c, d := s.actor("a"), s.actor("b"), s.actor("c"), s.actor("d")
	g := s.mustAcquire(a, s.lock)
	s.queue(b, s.lock)
	pc := s.queue(c, s.lock)
	pd := s.queue(d, s.lock)
	b.link.Cut()
	died := time.Now()
	s.mustRelease(g)
	reborn := s.begin(s.actor("b again"), s.lock)
	gc := s.granted(pc, 2*s.TTL-time.Since(died))
	select {
	case <-pd.done:
		s.Error("d overtook c")
	case <-reborn.done:
		s.Error("the reborn waiter overtook c")
	default:
	}
	s.mustRelease(gc)
	s.mustRelease(s.granted(pd, s.TTL/2))
	s.mustRelease(s.granted(reborn, s.TTL/2))
}

// c40: a release at any moment around the request wakes the waiter, and a lost
// wake-up is healed within a TTL.
func (s *stage) c40() {
	a, b := s.actor("a"), s.actor("b")
	b.link.On(func(Call) Fault {
		return Fault{Before: rand.N(500 * time.Microsecond), Late: rand.N(500 * time.Microsecond)}
	})
	for range s.scale(40, 1000, 10_000) {
		g := s.mustAcquire(a, s.lock)
		p := s.begin(b, s.lock)
		<-time.After(rand.N(1500 * time.Microsecond))
		s.mustRelease(g)
		s.mustRelease(s.granted(p, 500*time.Millisecond))
	}
	g := s.mustAcquire(a, s.lock)
	next := len(b.link.Calls(OpAcquire)) + 1
	b.link.On(func(c Call) Fault { return Fault{DropReply: c.Op == OpAcquire && c.N == next} })
	p := s.queue(b, s.lock)
	s.mustRelease(g)
	s.granted(p, s.TTL+s.TTL/4)
}

// c41: when a wait fails, the request keeps its place and is taken up again.
func (s *stage) c41() {
	a, b, c := s.actor("a"), s.actor("b"), s.actor("c")
	g := s.mustAcquire(a, s.lock)
	b.link.On(func(call Call) Fault {
		if call.Op == OpAcquire && call.N <= 3 {
			return Fault{Interrupt: s.TTL / 10, Break: &driver.Error{Kind: driver.Internal, Msg: "broken wait"}}
		}
		return Fault{}
	})
	pb := s.queue(b, s.lock)
	pc := s.queue(c, s.lock)
	s.eventually(2*s.TTL, "b asked again", func() bool { return len(b.link.Calls(OpAcquire)) > 3 })
	if n := s.waiters(s.lock); n != 2 {
		s.Errorf("%d wait, want 2", n)
	}
	s.mustRelease(g)
	gb := s.granted(pb, s.TTL/2)
	select {
	case <-pc.done:
		s.Error("c overtook b")
	default:
	}
	s.mustRelease(gb)
	s.mustRelease(s.granted(pc, s.TTL/2))
}

// c42: many short waits leave nothing in the queue.
func (s *stage) c42() {
	g := s.mustAcquire(s.actor("holder"), s.lock)
	reset := &driver.Error{Kind: driver.Unavailable, Err: syscall.ECONNRESET}
	var all sync.WaitGroup
	for range s.scale(6, 20, 20) {
		a := s.actor("impatient")
		a.link.On(func(c Call) Fault {
			switch f := (Fault{Before: rand.N(time.Millisecond), Late: rand.N(time.Millisecond)}); {
			case rand.N(4) == 0 && c.Op != OpOpen:
				f.Break = reset
				fallthrough
			default:
				return f
			}
		})
		all.Go(func() {
			for range s.scale(8, 50, 500) {
				ctx, cancel := context.WithTimeout(s.ctx, time.Millisecond+rand.N(4*time.Millisecond))
				h, err := a.Acquire(ctx, s.lock)
				cancel()
				if h != nil || !errors.Is(err, context.DeadlineExceeded) {
					s.Errorf("acquire of a held lock: %v, %v", h, err)
				}
			}
		})
	}
	all.Wait()
	s.eventually(s.TTL, "the queue is empty", func() bool { return s.waiters(s.lock) == 0 })
	s.mustRelease(g)
	s.free(s.lock, s.TTL/2)
}

// c43: a lock is its whole name.
func (s *stage) c43() {
	a, b := s.actor("a"), s.actor("b")
	s.mustAcquire(a, s.lock+"/b")
	s.mustAcquire(a, s.lock+"b")
	for _, name := range []string{
		s.lock, s.lock + "/", s.lock + "/..", s.lock + "/../x", s.lock + " with space", s.lock + "/%2F", s.lock + `/"quoted"'\`,
		s.lock + "/grün/ключ/鍵/🔑", s.lock + "?a=b&c#d", s.lock + strings.Repeat("x", 512-len(s.lock)),
	} {
		g, err := b.TryAcquire(s.ctx, name)
		if err != nil {
			s.Errorf("%q: %v", name, err)
			continue
		}
		if g.Lock() != name || g.Token().Lock != name {
			s.Errorf("%q came back as %q and %q", name, g.Lock(), g.Token().Lock)
		}
		s.mustRelease(g)
	}
	sent := len(b.link.Calls(OpAcquire))
	for _, name := range []string{"", s.lock + "\x00", s.lock + "\n", s.lock + "\xff", strings.Repeat("x", 513)} {
		if _, err := b.TryAcquire(s.ctx, name); !errors.Is(err, holdfast.ErrInvalid) {
			s.Errorf("%q: %v, want ErrInvalid", name, err)
		}
	}
	if n := len(b.link.Calls(OpAcquire)); n != sent {
		s.Error("a name that is not allowed was sent")
	}
	if _, err := b.TryAcquire(s.ctx, s.lock+"e\u0301"); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("name not in normal form C: %v, want ErrInvalid", err)
	}
}
