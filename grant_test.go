package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/driver/drivertest"
	"holdfast/fence"
)

// gate does what a test wants.
type gate struct {
	name string
	arm  func(context.Context, fence.Token) error
}

func (g *gate) Name() string { return g.name }

func (g *gate) Arm(ctx context.Context, t fence.Token) error { return g.arm(ctx, t) }

func TestGatesAreArmedInOrderBeforeTheGrant(t *testing.T) {
	bubble(t, func(b *bench) {
		l, _ := b.locker(b.options())
		var armed []string
		mk := func(name string) *gate {
			return &gate{name, func(_ context.Context, tok fence.Token) error {
				armed = append(armed, fmt.Sprint(name, tok.Number))
				return nil
			}}
		}
		g := b.acquire(l, "x", holdfast.Arm(mk("a"), mk("b")), holdfast.Arm(mk("c")))
		if want := fmt.Sprintf("[a%[1]d b%[1]d c%[1]d]", g.Token().Number); fmt.Sprint(armed) != want {
			b.Errorf("armed %v, want %s", armed, want)
		}
	})
}

func TestGateThatCannotBeArmed(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		arm  func(context.Context, fence.Token) error
		want error
		took time.Duration
	}{
		"fails":     {func(context.Context, fence.Token) error { return boom }, boom, 0},
		"undrained": {func(context.Context, fence.Token) error { return &fence.UndrainedError{By: "pid 7"} }, fence.ErrUndrained, 0},
		"stale": {func(_ context.Context, t fence.Token) error { return &fence.StaleError{Offered: t, Seen: t} },
			holdfast.ErrSuperseded, 0},
		"hangs":   {func(ctx context.Context, _ fence.Token) error { <-ctx.Done(); return ctx.Err() }, context.DeadlineExceeded, ttl * 9 / 10},
		"is deaf": {func(context.Context, fence.Token) error { pass(2 * ttl); return nil }, context.DeadlineExceeded, ttl * 9 / 10},
		"exits":   {func(context.Context, fence.Token) error { runtime.Goexit(); return nil }, holdfast.ErrArm, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				l, _ := b.locker(b.options())
				bad := &gate{"ledger", c.arm}
				began := time.Now()
				g, err := l.Acquire(b.ctx, "x", holdfast.Arm(&gate{"good", func(context.Context, fence.Token) error { return nil }}, bad))
				var arm *holdfast.ArmError
				if g != nil || !errors.Is(err, c.want) || !errors.Is(err, holdfast.ErrArm) || !errors.As(err, &arm) || arm.Gate != holdfast.Gate(bad) || arm.Index != 1 {
					b.Errorf("got %v, %v, want %v of that gate", g, err, c.want)
				}
				if !strings.Contains(err.Error(), "ledger") || !strings.Contains(err.Error(), `"x"`) {
					b.Errorf("the text names neither gate nor lock: %v", err)
				}
				if took := time.Since(began); took != c.took {
					b.Errorf("took %v, want %v", took, c.took)
				}
				b.free("x")
			})
		})
	}
}

func TestArmingEndsWithContextLossAndPanic(t *testing.T) {
	hang := func(ctx context.Context, _ fence.Token) error { <-ctx.Done(); return ctx.Err() }
	t.Run("context", func(t *testing.T) {
		bubble(t, func(b *bench) {
			l, _ := b.locker(b.options())
			ctx, cancel := context.WithTimeout(b.ctx, time.Second)
			defer cancel()
			if _, err := l.Acquire(ctx, "x", holdfast.Arm(&gate{"g", hang})); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, holdfast.ErrArm) {
				b.Errorf("%v, want the context's end at the gate", err)
			}
			b.free("x")
		})
	})
	t.Run("loss", func(t *testing.T) {
		bubble(t, func(b *bench) {
			l, link := b.locker(b.options())
			b.acquire(l, "other")
			pass(time.Second) // so that the lease ends before the bound on arming
			arm := &gate{"g", func(ctx context.Context, t fence.Token) error { link.Cut(); return hang(ctx, t) }}
			if _, err := l.Acquire(b.ctx, "x", holdfast.Arm(arm)); !errors.Is(err, holdfast.ErrLost) {
				b.Errorf("%v, want ErrLost", err)
			}
		})
	})
	t.Run("panic", func(t *testing.T) {
		bubble(t, func(b *bench) {
			l, _ := b.locker(b.options())
			func() {
				defer func() {
					if r := recover(); r != "gate" {
						b.Errorf("recovered %v", r)
					}
				}()
				_, _ = l.Acquire(b.ctx, "x", holdfast.Arm(&gate{"g", func(context.Context, fence.Token) error { panic("gate") }}))
			}()
			b.free("x")
		})
	})
}

func TestRun(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(b.options())
		boom := errors.New("boom")
		type key struct{}
		ctx := context.WithValue(b.ctx, key{}, "value")
		for _, want := range []error{nil, boom} {
			err := l.Run(ctx, "x", func(ctx context.Context, g *holdfast.Grant) error {
				if ctx.Value(key{}) != "value" || g.Context().Value(key{}) != "value" {
					b.Error("the context lost its values")
				}
				return want
			})
			if err != want {
				b.Errorf("Run returned %v, want %v", err, want)
			}
			calls := link.Calls(drivertest.OpRelease)
			if last := calls[len(calls)-1]; last.Failed != (want != nil) {
				b.Errorf("after %v the release said failed=%v", want, last.Failed)
			}
			b.free("x")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = l.Run(b.ctx, "x", func(context.Context, *holdfast.Grant) error { runtime.Goexit(); return nil })
		}()
		<-done
		b.free("x")

		err := l.Run(b.ctx, "x", func(ctx context.Context, g *holdfast.Grant) error {
			link.Cut()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
				b.Errorf("cause is %v, want ErrLost", context.Cause(ctx))
			}
			return boom
		})
		if !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, boom) {
			b.Errorf("lost while running: %v, want ErrLost and the function's error", err)
		}
		link.Restore()
		err = l.Run(b.ctx, "x", func(ctx context.Context, g *holdfast.Grant) error {
			link.Cut()
			return nil
		})
		if !errors.Is(err, holdfast.ErrReleasePending) {
			b.Errorf("release not confirmed: %v, want ErrReleasePending", err)
		}
	})
}

// TestReleaseOfALongLease: to let go takes seconds at most, however long the
// lease is and whoever is away.
func TestReleaseOfALongLease(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(&holdfast.Options{TTL: time.Hour})
		g := b.acquire(l, "x")
		link.Cut()
		began := time.Now()
		if err := g.Release(b.ctx); !errors.Is(err, holdfast.ErrReleasePending) {
			b.Errorf("release with nobody to be reached: %v, want ErrReleasePending", err)
		}
		if err := l.Close(b.ctx); !errors.Is(err, holdfast.ErrReleasePending) {
			b.Errorf("close with nobody to be reached: %v, want ErrReleasePending", err)
		}
		if took := time.Since(began); took > 30*time.Second {
			b.Errorf("it took %v to let go", took)
		}
	})
}

// TestNestedGrants: one grant's context may be used to acquire another lock of
// the same session, and ends nothing but itself.
func TestNestedGrants(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(b.options())
		outer := b.acquire(l, "outer")
		inner, err := l.Acquire(outer.Context(), "inner")
		if err != nil {
			b.Fatal(err)
		}
		if err := outer.Release(outer.Context()); err != nil {
			b.Error(err)
		}
		if inner.State() != holdfast.StateHeld || inner.Context().Err() != nil {
			b.Errorf("inner is %v", inner.State())
		}
		if _, err := l.Acquire(outer.Context(), "late"); !errors.Is(err, holdfast.ErrReleased) {
			b.Errorf("acquire with an ended context: %v, want its cause", err)
		}
		link.Cut()
		ctx, cancel := context.WithCancel(inner.Context())
		defer cancel()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
			b.Errorf("cause is %v, want ErrLost", context.Cause(ctx))
		}
	})
}

func TestReleaseIsConfirmedOnceForAll(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(b.options())
		g := b.acquire(l, "x")
		link.On(func(c drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: time.Second} })
		for range 5 {
			go func() {
				if err := g.Release(b.ctx); err != nil {
					b.Error(err)
				}
			}()
		}
		synctest.Wait()
		if g.State() != holdfast.StateReleasing || g.Deadline() != 0 {
			b.Errorf("%v, %v", g.State(), g.Deadline())
		}
		pass(2 * time.Second)
		if n := len(link.Calls(drivertest.OpRelease)); n != 1 || g.State() != holdfast.StateReleased {
			b.Errorf("%d releases were sent, %v", n, g.State())
		}
	})
}

// TestReleaseIsRefused: a final no is told at once, and not tried again unless
// asked.
func TestReleaseIsRefused(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(b.options())
		keep := b.acquire(l, "keep")
		g := b.acquire(l, "x")
		link.On(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.OpRelease {
				return drivertest.Fault{Refuse: &driver.Error{Kind: driver.Denied, Outcome: driver.No, Msg: "not you"}}
			}
			return drivertest.Fault{}
		})
		began := time.Now()
		if err := g.Release(b.ctx); !errors.Is(err, holdfast.ErrDenied) || time.Since(began) != 0 {
			b.Errorf("%v after %v, want ErrDenied at once", err, time.Since(began))
		}
		pass(ttl)
		if n := len(link.Calls(drivertest.OpRelease)); n != 1 || g.State() != holdfast.StateReleasing {
			b.Errorf("%d releases were sent, %v", n, g.State())
		}
		link.On(nil)
		if err := g.Release(b.ctx); err != nil || g.State() != holdfast.StateReleased {
			b.Errorf("%v, %v", err, g.State())
		}
		if keep.State() != holdfast.StateHeld {
			b.Errorf("the other grant is %v", keep.State())
		}
	})
}

// prompter is a driver whose sessions tell when they meet a new leader.
type prompter struct {
	driver.Driver
	prompt atomic.Pointer[func()]
}

func (p *prompter) Fenced() {}

func (p *prompter) Open(ctx context.Context, req driver.OpenRequest) (driver.Session, error) {
	s, err := p.Driver.Open(ctx, req)
	return &promptSession{s, p}, err
}

type promptSession struct {
	driver.Session
	p *prompter
}

func (s *promptSession) OnNewLeader(f func()) { s.p.prompt.Store(&f) }

func TestKeepaliveAtOnceForANewLeader(t *testing.T) {
	bubble(t, func(b *bench) {
		p := &prompter{Driver: b.service.Driver()}
		var pulses []holdfast.PulseInfo
		o := b.options()
		o.OnPulse = func(i holdfast.PulseInfo) { pulses = append(pulses, i) }
		l, err := holdfast.NewFencedLocker(p, o)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close(b.ctx)
		b.acquire(l, "x")
		pass(time.Second)
		(*p.prompt.Load())()
		synctest.Wait()
		if len(pulses) != 1 || pulses[0].Err != nil || pulses[0].Left != ttl*9/10 || fmt.Sprint(pulses[0].Locks) != "[x]" {
			b.Errorf("pulses %+v, want one, just now", pulses)
		}
	})
}

// badGrants is a driver whose grants are wrong.
type badGrants struct {
	driver.Driver
	spoil func(*driver.Grant)
}

func (badGrants) Fenced() {}

func (d badGrants) Open(ctx context.Context, req driver.OpenRequest) (driver.Session, error) {
	s, err := d.Driver.Open(ctx, req)
	return badSession{s, d.spoil}, err
}

type badSession struct {
	driver.Session
	spoil func(*driver.Grant)
}

func (s badSession) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.Grant, error) {
	g, err := s.Session.Acquire(ctx, req)
	s.spoil(&g)
	return g, err
}

func TestEngineWithoutUsableTokens(t *testing.T) {
	for name, spoil := range map[string]func(*driver.Grant){
		"none":       func(g *driver.Grant) { g.Token = fence.Token{} },
		"other lock": func(g *driver.Grant) { g.Token.Lock = "y" },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				l, _ := b.lockerOn(badGrants{b.service.Driver(), spoil}, b.options())
				if g, err := l.Acquire(b.ctx, "x"); g != nil || err == nil || !strings.Contains(err.Error(), "the engine gave") {
					b.Errorf("%v, %v, want an error about the engine", g, err)
				}
				b.free("x")
				h, err := l.Efficiency().Acquire(b.ctx, "x") // which has no use for a token
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Release(b.ctx); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

func TestErrorTextsSayWhatToDo(t *testing.T) {
	holder := &driver.Holder{Label: "billing", Host: "db7", GrantNumber: 33, Held: time.Minute}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{&holdfast.Error{Op: "try", Lock: "x", Kind: holdfast.ErrBusy, Err: &driver.Error{Kind: driver.Busy, Msg: "held", Holder: holder}},
			[]string{`holdfast: try "x": lock is busy; held by "billing" on db7 for 1m0s (grant 33), 0 waiting; wait with Acquire`}},
		{&holdfast.Error{Op: "close", Kind: holdfast.ErrReleasePending, Err: errors.New("no answer")}, []string{"holdfast: close: release not confirmed: no answer; what was held is free"}},
		{&holdfast.Error{Op: "acquire", Lock: "x", Kind: holdfast.ErrClosed, OpensIn: time.Second}, []string{"lock is closed", "opens in 1s"}},
		{&holdfast.Lost{Lock: "x", Cause: holdfast.CauseRevoked, By: "olga"}, []string{`"x"`, `revoked by "olga"`, "stop the guarded work"}},
		{&holdfast.Lost{Lock: "x", Cause: holdfast.CauseMaxHold}, []string{"maximum hold"}},
		{&holdfast.ArmError{Gate: &gate{name: "ledger"}, Index: 1, Err: errors.New("boom")}, []string{"ledger", "gate 2", "boom"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("%q does not say %q", c.err, want)
			}
		}
	}
}
