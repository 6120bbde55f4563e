package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/driver/drivertest"
	"holdfast/engine/memlock"
)

func TestCasebookC35_OptionsAreChecked(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		o    holdfast.Options
		want string
	}{
		{holdfast.Options{TTL: s - 1}, "1s ≤ TTL ≤ 24h0m0s must hold"},
		{holdfast.Options{TTL: 10 * s, Margin: 10 * s}, "0 < margin < TTL must hold"},
		{holdfast.Options{TTL: 10 * s, Margin: -s}, "0 < margin < TTL must hold"},
		{holdfast.Options{TTL: 10 * s, KeepaliveInterval: 5 * s, CallTimeout: 4 * s}, "interval + 2 × call timeout ≤ TTL − margin must hold"},
		{holdfast.Options{OpenTimeout: -1}, "must be above 0"},
		{holdfast.Options{Label: strings.Repeat("x", 257)}, "at most 256"},
		{holdfast.Options{Host: strings.Repeat("x", 257)}, "at most 256"},
	} {
		_, err := memlock.New(nil).Locker(&c.o)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want ErrInvalid with %q", c.o, err, c.want)
		}
	}
	if _, err := holdfast.NewFencedLocker(nil, nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("no driver: %v", err)
	}
	if err := holdfast.CheckGrace(nil, 5*s); err != nil {
		t.Errorf("default grace on defaults: %v", err)
	}
	if err := holdfast.CheckGrace(&holdfast.Options{KeepaliveInterval: 3 * s}, 5*s); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "margin + grace + 3 × interval ≤ TTL") {
		t.Errorf("grace without room: %v", err)
	}
	o, grace, err := holdfast.RunTiming(2*s, 0)
	if err != nil || holdfast.CheckGrace(&o, grace) != nil {
		t.Errorf("RunTiming(2s, 0) = %+v, %v, %v", o, grace, err)
	}
	if _, _, err := holdfast.RunTiming(2*s, s+1); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("grace above TTL/2: %v", err)
	}
}

func TestAcquireOptionsAreChecked(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(b.options())
		ok := func() error { return nil }
		for _, opts := range [][]holdfast.AcquireOption{
			{nil},
			{holdfast.Arm(nil)},
			{holdfast.Alive(0, 1, ok)},
			{holdfast.Alive(time.Second, 0, ok)},
			{holdfast.Alive(time.Second, 1, nil)},
			{holdfast.Alive(time.Second, 1, ok), holdfast.Alive(time.Second, 1, ok)},
		} {
			if _, err := l.Acquire(b.ctx, "x", opts...); !errors.Is(err, holdfast.ErrInvalid) {
				b.Errorf("%v: %v, want ErrInvalid", opts, err)
			}
		}
		if n := len(link.Calls(drivertest.OpOpen)); n != 0 {
			b.Errorf("%d sessions were opened for nothing", n)
		}
		_, err := l.Acquire(b.ctx, "x", holdfast.WithExtension(extension{}))
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "elsewhere") {
			b.Errorf("options of another engine: %v, want ErrInvalid that names it", err)
		}
	})
}

type extension struct{}

func (extension) Engine() string { return "elsewhere" }

// TestCasebookC36: the boot-time clock jumps, as it does when the machine
// slept, while package time goes on as before.
func TestCasebookC36_SleepEndsTheLease(t *testing.T) {
	looks := map[string]func(*holdfast.Grant) bool{
		"State":         func(g *holdfast.Grant) bool { return g.State() == holdfast.StateLost },
		"Err":           func(g *holdfast.Grant) bool { return errors.Is(g.Err(), holdfast.ErrLost) },
		"Cause":         func(g *holdfast.Grant) bool { return g.Cause() != nil && g.Cause().Cause == holdfast.CauseExpired },
		"Deadline":      func(g *holdfast.Grant) bool { return g.Deadline() == 0 },
		"Context.Err":   func(g *holdfast.Grant) bool { return g.Context().Err() != nil },
		"context.Cause": func(g *holdfast.Grant) bool { return errors.Is(context.Cause(g.Context()), holdfast.ErrLost) },
		"Context.Done": func(g *holdfast.Grant) bool {
			select {
			case <-g.Context().Done():
				return true
			default:
				return false
			}
		},
		"derived context": func(g *holdfast.Grant) bool {
			ctx, cancel := context.WithCancel(g.Context())
			defer cancel()
			return ctx.Err() != nil
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var slept time.Duration
				o := b.options()
				o.Clock = func() time.Duration { return b.clock() + slept }
				l, link := b.locker(o)
				g := b.acquire(l, "x")
				pass(time.Second)
				if look(g) {
					b.Fatal("lost before the machine slept")
				}
				calls := len(link.Calls(drivertest.OpKeepalive))
				synctest.Wait()
				slept = 10 * ttl
				if !look(g) {
					b.Error("the sleep went unnoticed")
				}
				if n := len(link.Calls(drivertest.OpKeepalive)); n != calls {
					b.Errorf("%d calls were needed to notice", n-calls)
				}
			})
		})
	}
}

func TestCasebookC36_SleepIsNoticedUnasked(t *testing.T) {
	bubble(t, func(b *bench) {
		var slept time.Duration
		var mu sync.Mutex
		o := b.options()
		o.TTL = time.Hour // so that no keepalive is due for long
		o.Clock = func() time.Duration { mu.Lock(); defer mu.Unlock(); return b.clock() + slept }
		l, _ := b.locker(o)
		g := b.acquire(l, "x")
		done := g.Context().Done()
		pass(time.Second)
		mu.Lock()
		slept = 2 * time.Hour
		mu.Unlock()
		select {
		case <-done:
		case <-time.After(1100 * time.Millisecond):
			b.Error("not noticed within about a second")
		}
	})
}

// TestCasebookC20_DroppedGrant: a grant to which nothing leads any more is as
// good as that of a dead holder. On real time, because the garbage collector
// does not know virtual time.
func TestCasebookC20_DroppedGrant(t *testing.T) {
	t.Parallel()
	service := memlock.New(nil)
	t.Cleanup(service.Close)
	var link drivertest.FencedLink
	func() {
		link = drivertest.NewFencedLink(service.Driver())
		l, err := holdfast.NewFencedLocker(link, &holdfast.Options{TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(t.Context(), "dropped"); err != nil {
			t.Fatal(err)
		}
		kept, err := l.Acquire(t.Context(), "kept")
		if err != nil {
			t.Fatal(err)
		}
		ctx := kept.Context() // leads to the grant
		t.Cleanup(func() {
			if ctx.Err() != nil {
				t.Error("a grant whose context is in use was given up")
			}
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}()
	end := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for service.Lock("dropped").Holder != nil {
		runtime.GC()
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("the dropped grant is still held")
		}
	}
	if service.Lock("kept").Holder == nil {
		t.Error("the other grant of the session is gone")
	}
}

func TestServiceIsNotThere(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(b.options())
		down := &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "connection refused"}
		link.On(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Refuse: down} })
		began := time.Now()
		_, err := l.Acquire(b.ctx, "x")
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
			b.Errorf("refused: %v, want ErrUnavailable and why", err)
		}
		if took := time.Since(began); took != holdfast.DefaultOpenTimeout {
			b.Errorf("gave up after %v", took)
		}
		if n := len(link.Calls(drivertest.OpOpen)); n < 5 || n > 100 {
			b.Errorf("%d attempts in 5 s", n)
		}
		link.On(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{DropRequest: true} })
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		defer cancel()
		if _, err := l.TryAcquire(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("silent: %v, want context.DeadlineExceeded", err)
		}
		link.On(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.OpOpen {
				return drivertest.Fault{Refuse: &driver.Error{Kind: driver.Denied, Outcome: driver.No, Msg: "not you"}}
			}
			return drivertest.Fault{}
		})
		began = time.Now()
		if _, err := l.Acquire(b.ctx, "x"); !errors.Is(err, holdfast.ErrDenied) || time.Since(began) != 0 {
			b.Errorf("denied: %v after %v, want ErrDenied at once", err, time.Since(began))
		}
		link.On(nil)
		if err := b.acquire(l, "x").Release(b.ctx); err != nil {
			b.Error(err)
		}
	})
}

// TestSlowOpen: a lease counts from before the open left, so an answer that
// comes late is worth little, and one that comes after it nothing.
func TestSlowOpen(t *testing.T) {
	bubble(t, func(b *bench) {
		o := b.options()
		o.OpenTimeout = time.Minute
		l, link := b.locker(o)
		link.On(func(c drivertest.Call) drivertest.Fault {
			switch {
			case c.Op == drivertest.OpOpen && c.N == 1:
				return drivertest.Fault{Late: ttl}
			case c.Op == drivertest.OpOpen && c.N == 2:
				return drivertest.Fault{Late: ttl / 2}
			case c.Op == drivertest.OpKeepalive:
				return drivertest.Fault{DropRequest: true}
			}
			return drivertest.Fault{}
		})
		g := b.acquire(l, "x")
		if n := len(link.Calls(drivertest.OpOpen)); n != 2 {
			b.Errorf("%d opens, want 2", n)
		}
		if left, want := g.Deadline(), ttl-ttl/10-ttl/2; left != want {
			b.Errorf("deadline in %v, want %v", left, want)
		}
	})
}

func TestSessionIsReusedWhileWarmAndThenEnded(t *testing.T) {
	bubble(t, func(b *bench) {
		l, _ := b.locker(b.options())
		for range 50 {
			if err := b.acquire(l, "x").Release(b.ctx); err != nil {
				b.Fatal(err)
			}
			pass(ttl / 10)
		}
		if n := l.Stats().Sessions; n != 1 {
			b.Errorf("%d sessions for quick successors, want 1", n)
		}
		pass(ttl / 4)
		if n := b.service.Sessions(); n != 0 {
			b.Errorf("%d sessions live while nothing is held", n)
		}
		b.acquire(l, "x")
		if n := l.Stats().Sessions; n != 2 {
			b.Errorf("%d sessions, want a second", n)
		}
	})
}

// TestIdleSessionWasEndedByTheService: nothing was held, so nobody need know.
func TestIdleSessionWasEndedByTheService(t *testing.T) {
	bubble(t, func(b *bench) {
		o := b.options()
		o.Label = "idle"
		l, _ := b.locker(o)
		if err := b.acquire(l, "x").Release(b.ctx); err != nil {
			b.Fatal(err)
		}
		pass(time.Millisecond)
		for _, id := range b.service.SessionsOf("idle") {
			if err := b.service.Expel(id, "op"); err != nil {
				b.Fatal(err)
			}
		}
		g := b.acquire(l, "x")
		if g.State() != holdfast.StateHeld || l.Stats().Sessions != 2 {
			b.Errorf("%v, %+v", g.State(), l.Stats())
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, func(b *bench) {
		a, _ := b.locker(b.options())
		l, link := b.locker(b.options())
		g := b.acquire(a, "x")
		waits := make(chan error, 1)
		go func() {
			_, err := l.Acquire(b.ctx, "x")
			waits <- err
		}()
		synctest.Wait()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := l.Close(b.ctx); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
		if err := <-waits; !errors.Is(err, holdfast.ErrLockerClosed) {
			b.Errorf("waiting while closed: %v, want ErrLockerClosed", err)
		}
		if b.service.Lock("x").Waiters != 0 || len(link.Calls(drivertest.OpEnd)) != 1 {
			b.Error("the session was not ended")
		}
		if err := g.Release(b.ctx); err != nil {
			b.Error(err)
		}

		cut, link := b.locker(b.options())
		lost := b.acquire(cut, "y")
		link.Cut()
		began := time.Now()
		if err := cut.Close(b.ctx); !errors.Is(err, holdfast.ErrReleasePending) {
			b.Errorf("close with nobody to be reached: %v, want ErrReleasePending", err)
		}
		if took := time.Since(began); took > ttl {
			b.Errorf("close took %v", took)
		}
		if context.Cause(lost.Context()) == nil || lost.Cause().Cause != holdfast.CauseClosed {
			b.Errorf("cause is %v, want closed", lost.Cause())
		}
	})
}

// TestCloseWhileOpening: a session that opens after Close is ended.
func TestCloseWhileOpening(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(b.options())
		link.On(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.OpOpen {
				return drivertest.Fault{Late: time.Second}
			}
			return drivertest.Fault{}
		})
		got := make(chan error, 1)
		go func() {
			_, err := l.Acquire(b.ctx, "x")
			got <- err
		}()
		pass(time.Millisecond)
		if err := l.Close(b.ctx); err != nil {
			b.Error(err)
		}
		if err := <-got; !errors.Is(err, holdfast.ErrLockerClosed) {
			b.Errorf("%v, want ErrLockerClosed", err)
		}
		pass(ttl / 2)
		if n := b.service.Sessions(); n != 0 {
			b.Errorf("%d sessions live after Close", n)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		l, _ := b.locker(b.options())
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				for range 20 {
					err := l.Run(b.ctx, fmt.Sprint("lock", i%7), func(ctx context.Context, g *holdfast.Grant) error {
						pass(time.Millisecond)
						return ctx.Err()
					})
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		for i := range 7 {
			b.free(fmt.Sprint("lock", i))
		}
		if st := l.Stats(); st.Sessions != 1 || st.Losses != 0 {
			b.Errorf("%+v", st)
		}
	})
}

// TestManyWaitInOneSession: all are cancelled, and none stays in the queue.
func TestManyWaitInOneSession(t *testing.T) {
	bubble(t, func(b *bench) {
		l, _ := b.locker(b.options())
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		var all sync.WaitGroup
		g := b.acquire(l, "x")
		const many = 500
		for range many {
			all.Go(func() {
				if _, err := l.Acquire(ctx, "x"); !errors.Is(err, context.Canceled) {
					b.Errorf("%v, want context.Canceled", err)
				}
			})
		}
		pass(2 * ttl)
		if g.State() != holdfast.StateHeld || b.service.Lock("x").Waiters != many {
			b.Errorf("%v, %d wait", g.State(), b.service.Lock("x").Waiters)
		}
		cancel()
		all.Wait()
		if err := g.Release(b.ctx); err != nil {
			b.Error(err)
		}
		b.free("x")
	})
}
