package elect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/driver/drivertest"
	"holdfast/elect"
)

// C32: whatever ends a time in office, all candidates stand again, and one of
// them is soon in office.
func TestCasebookC32_AllStandAgainAfterEachLoss(t *testing.T) {
	inBubble(t, func(w *world) {
		all := []*candidate{w.candidate("a", elect.Options{}), w.candidate("b", elect.Options{}), w.candidate("c", elect.Options{})}
		for _, c := range all {
			c.stand()
		}
		for round := range 10 {
			var primary *candidate
			for _, c := range all {
				if c.Standing().State == elect.InOffice {
					primary = c
				}
			}
			if primary == nil {
				t.Fatalf("round %d: nobody is in office", round)
			}
			before := primary.Standing().Offices
			switch round % 5 {
			case 0: // its line is cut for longer than the lease
				primary.link.Cut()
				pass(ttl + ttl/2)
				primary.link.Restore()
			case 1: // the service is away for everybody
				for _, c := range all {
					c.link.Cut()
				}
				pass(2 * ttl)
				for _, c := range all {
					c.link.Restore()
				}
			case 2: // it is stopped, as by SIGSTOP, and finds old answers when it goes on
				primary.link.Freeze()
				pass(ttl + ttl/2)
				primary.link.Thaw()
			case 3: // an operator ends its session, which breaks its lease's promise
				w.setExpels(true)
				for _, id := range w.service.SessionsOf(primary.name) {
					if err := w.service.Expel(id, "operator"); err != nil {
						t.Fatal(err)
					}
				}
			case 4: // the engine fails in a way of its own
				primary.link.On(func(drivertest.Call) drivertest.Fault {
					return drivertest.Fault{Refuse: &driver.Error{Kind: driver.Internal, Msg: "broken"}}
				})
				pass(ttl + ttl/2)
				primary.link.On(nil)
			}
			pass(2 * ttl)
			w.setExpels(false)
			if got := standing(all...); len(got) != 3 {
				t.Errorf("round %d: only %v stand: %v %v %v", round, got, all[0].Check(), all[1].Check(), all[2].Check())
			}
			if h := w.service.Lock(office); h.Holder == nil || h.Waiters != 2 {
				t.Errorf("round %d: holder %v, %d in the queue", round, h.Holder, h.Waiters)
			}
			if primary.Standing().State == elect.InOffice && primary.Standing().Offices == before {
				t.Errorf("round %d: %s did not lose its office", round, primary.name)
			}
		}
	})
}

// C32: a candidate that has left the queue says so, and why.
func TestCasebookC32_CheckTellsWhoDoesNotStand(t *testing.T) {
	inBubble(t, func(w *world) {
		o := elect.Options{Tolerance: 2 * ttl}
		a, b := w.candidate("a", o), w.candidate("b", o)
		fails := func(c *candidate, want ...string) {
			t.Helper()
			err := c.Check()
			if !errors.Is(err, elect.ErrNotStanding) {
				t.Fatalf("%s: Check says %v", c.name, err)
			}
			for _, text := range want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: Check says %q, want %q in it", c.name, err, text)
				}
			}
		}
		fails(a, `elect "office"`, "stopped", "Run was not called")
		end := make(chan struct{})
		a.run(func(ctx context.Context, _ *holdfast.Grant) error {
			<-end // a function that does not care for its context
			return nil
		})
		b.stand()
		a.is(elect.InOffice)
		b.is(elect.Queued)
		if err := errors.Join(a.Check(), b.Check()); err != nil {
			t.Fatal(err)
		}
		a.link.Cut()
		b.link.Cut()
		pass(2 * ttl)
		a.is(elect.Leaving)
		if err := errors.Join(a.Check(), b.Check()); err != nil {
			t.Errorf("within the tolerance: %v", err)
		}
		pass(2 * ttl)
		fails(a, "leaving", "the lease ran out while the service did not answer")
		fails(b, "lock service not reachable")
		a.link.Restore()
		b.link.Restore()
		pass(ttl)
		b.is(elect.InOffice)
		fails(a, "leaving") // it still hangs in its function
		close(end)
		pass(ttl)
		a.is(elect.Queued)
		if err := errors.Join(a.Check(), b.Check()); err != nil {
			t.Error(err)
		}
		a.quit()
		if err := <-a.done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `elect "office"`) {
			t.Errorf("Run returned %v", err)
		}
		fails(a, "stopped", "context canceled")
	})
}

// sleeper is a candidate whose machine can sleep: its clock goes on then, and
// timers do not.
func (w *world) sleeper(o elect.Options) (e *elect.Elector, sleep func(time.Duration)) {
	w.Helper()
	var slept atomic.Int64
	locker, err := w.service.Locker(&holdfast.Options{TTL: ttl, Clock: func() time.Duration { return time.Since(w.start) + time.Duration(slept.Load()) }})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = locker.Close(context.Background()) })
	if e, err = elect.New(locker, office, &o); err != nil {
		w.Fatal(err)
	}
	return e, func(d time.Duration) { slept.Add(int64(d)) }
}

// The news of a loss needs no timer and no answer: who asks for the standing
// after a sleep hears of it.
func TestStandingAsksTheClock(t *testing.T) {
	inBubble(t, func(w *world) {
		e, sleep := w.sleeper(elect.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		told := make(chan error, 10)
		go func() {
			_ = e.Run(ctx, func(ctx context.Context, g *holdfast.Grant) error {
				<-ctx.Done()
				told <- context.Cause(ctx)
				return nil
			})
		}()
		synctest.Wait()
		if s := e.Standing(); s.State != elect.InOffice || s.Token.IsZero() || s.Offices != 1 {
			t.Fatalf("standing %+v", s)
		}
		sleep(2 * ttl)
		if s := e.Standing(); s.State != elect.Leaving || !errors.Is(s.Why, holdfast.ErrLost) {
			t.Errorf("after the sleep: %+v", s)
		}
		if err := <-told; !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("told to end by %v", err)
		}
		cancel()
		synctest.Wait()
	})
}

// A function that returns after its lease ran out in a sleep was not in office
// any more, so its return decides nothing.
func TestReturnAfterASleepIsALoss(t *testing.T) {
	inBubble(t, func(w *world) {
		e, sleep := w.sleeper(elect.Options{StopOnReturn: true})
		times := 0
		err := e.Run(context.Background(), func(context.Context, *holdfast.Grant) error {
			if times++; times == 1 {
				sleep(2 * ttl)
			}
			return nil
		})
		if err != nil || times != 2 {
			t.Errorf("called %d times; %v", times, err)
		}
	})
}

// What a function does that was not told to end is for the options to decide.
func TestReturnsAreDecidedByOptions(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct {
		name string
		o    elect.Options
		err  error
		want string // what Run returns; "" is that it goes on
	}{
		{"returns, goes on", elect.Options{StopOnFailure: true}, nil, ""},
		{"fails, goes on", elect.Options{StopOnReturn: true}, failed, ""},
		{"returns, stops", elect.Options{StopOnReturn: true}, nil, "<nil>"},
		{"fails, stops", elect.Options{StopOnFailure: true}, failed, "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				times := 0
				a := w.candidate("a", c.o).run(func(context.Context, *holdfast.Grant) error { times++; return c.err })
				pass(10*elect.DefaultRest - time.Second)
				if c.want == "" {
					a.is(elect.Pausing)
					if times != 10 {
						t.Errorf("called %d times, want once a rest", times)
					}
					return
				}
				select {
				case err := <-a.done:
					if fmt.Sprint(err) != c.want {
						t.Errorf("Run returned %v", err)
					}
				default:
					t.Fatal("Run goes on")
				}
				a.is(elect.Stopped)
				if times != 1 || w.service.Lock(office).Holder != nil {
					t.Errorf("called %d times, holder %v", times, w.service.Lock(office).Holder)
				}
			})
		})
	}
}

// A function can leave office of its own accord, and then stands again.
func TestFunctionLeavesOfItsOwnAccord(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.candidate("a", elect.Options{StopOnFailure: true}).run(func(ctx context.Context, g *holdfast.Grant) error {
			w.say("a in")
			<-g.Contended()
			return fmt.Errorf("somebody waits: %w", elect.ErrSteppedDown)
		})
		b := w.candidate("b", elect.Options{StopOnFailure: true}).run(func(context.Context, *holdfast.Grant) error {
			w.say("b in")
			return fmt.Errorf("cannot work: %w", holdfast.ErrLost)
		})
		pass(ttl)
		if h := w.history(); !strings.HasPrefix(h, "a in; b in; b in; ") {
			t.Errorf("got %s", h)
		}
		for _, c := range []*candidate{a, b} {
			if c.Standing().State == elect.Stopped {
				t.Errorf("%s has stopped", c.name)
			}
		}
	})
}

// Who has never stood is not ready, from the first moment.
func TestNeverStoodIsNotReady(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.candidate("a", elect.Options{})
		a.link.Cut()
		a.stand()
		if err := a.Check(); !errors.Is(err, elect.ErrNotStanding) || !strings.Contains(err.Error(), "has not answered yet") {
			t.Errorf("Check says %v", err)
		}
		a.link.Restore()
		pass(ttl)
		if err := a.Check(); err != nil {
			t.Error(err)
		}
	})
}

// An error of a function that was told to end is not its own decision.
func TestLossIsNoFailure(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.candidate("a", elect.Options{StopOnFailure: true, StopOnReturn: true}).stand()
		for range 3 {
			w.revoke(office)
			pass(2 * ttl)
			a.is(elect.InOffice)
		}
		if s := a.Standing(); s.Offices != 4 {
			t.Errorf("%d times in office", s.Offices)
		}
	})
}

// A panic is not swallowed, and holds nothing.
func TestPanicGoesOn(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.candidate("a", elect.Options{Board: board{w.service}})
		got := make(chan any, 1)
		go func() {
			defer func() { got <- recover() }()
			_ = a.Run(context.Background(), func(context.Context, *holdfast.Grant) error { panic("boom") })
		}()
		if p := <-got; p != "boom" {
			t.Errorf("recovered %v", p)
		}
		pass(time.Second)
		if h := w.service.Lock(office).Holder; h != nil {
			t.Errorf("held by %v", h)
		}
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), "panic") {
			t.Errorf("Check says %v", err)
		}
		a.stand() // the Elector can be used again
		a.is(elect.InOffice)
	})
}

// Only what asking again cannot mend ends Run, and Run says so.
func TestWhatEndsRun(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.candidate("a", elect.Options{}).stand()
		if err := a.Run(context.Background(), nil); !errors.Is(err, elect.ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		_ = a.locker.Close(context.Background())
		if err := <-a.done; !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrLockerClosed) {
			t.Errorf("after the locker was closed: %v", err)
		}
		a.is(elect.Stopped)
		a.stand()
		if err := <-a.done; !errors.Is(err, holdfast.ErrLockerClosed) {
			t.Errorf("on a closed locker: %v", err)
		}

		refuse := func(c *candidate, kind driver.Kind) {
			c.link.On(func(call drivertest.Call) drivertest.Fault {
				if call.Op != drivertest.OpAcquire {
					return drivertest.Fault{}
				}
				return drivertest.Fault{Refuse: &driver.Error{Kind: kind, Outcome: driver.No, Msg: "no such thing"}}
			})
		}
		b := w.candidate("b", elect.Options{})
		refuse(b, driver.Unsupported)
		b.stand()
		if err := <-b.done; !errors.Is(err, holdfast.ErrUnsupported) {
			t.Errorf("what the engine does not know: %v", err)
		}
		b.link.On(nil)
		b.stand()
		for _, kind := range []driver.Kind{driver.Unsupported, driver.Invalid, driver.Denied, driver.Limit, driver.Overloaded, driver.Closed, driver.Internal} {
			refuse(b, kind)
			w.revoke(office)
			pass(2 * ttl)
			if s := b.Standing(); s.Stands() || s.State == elect.Stopped || !strings.Contains(s.Why.Error(), "no such thing") && kind != driver.Overloaded {
				t.Errorf("%v: %+v", kind, s)
			}
			tries := len(b.link.Calls(drivertest.OpAcquire))
			pass(10 * time.Second)
			if tries = len(b.link.Calls(drivertest.OpAcquire)) - tries; tries < 5 || tries > 40 {
				t.Errorf("%v: asked %d times in 10 s", kind, tries)
			}
			b.link.On(nil)
			pass(2 * time.Second)
			b.is(elect.InOffice)
		}
	})
}

// What cannot work is refused before anything is sent.
func TestOptionsAreChecked(t *testing.T) {
	inBubble(t, func(w *world) {
		l, err := w.service.Locker(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(context.Background())
		long := strings.Repeat("x", 503)
		for _, c := range []struct {
			name string
			o    elect.Options
			is   error
			want string
		}{
			{"", elect.Options{}, holdfast.ErrInvalid, ""},
			{"a", elect.Options{Rest: -1}, holdfast.ErrInvalid, "Rest -1ns: must be above 0"},
			{"a", elect.Options{Value: []byte("x")}, holdfast.ErrUnsupported, "need Options.Board"},
			{"a", elect.Options{Prefer: true}, holdfast.ErrUnsupported, "need Options.Board"},
			{long, elect.Options{Board: board{w.service}}, holdfast.ErrInvalid, "at most 502"},
			{long, elect.Options{}, nil, ""},
		} {
			_, err := elect.New(l, c.name, &c.o)
			if !errors.Is(err, c.is) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.10q, %+v: %v", c.name, c.o, err)
			}
		}
		if _, err := elect.New(nil, "a", nil); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("no locker: %v", err)
		}
		e, err := elect.New(l, "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.SetValue(context.Background(), nil); !errors.Is(err, holdfast.ErrUnsupported) {
			t.Errorf("a value without a board: %v", err)
		}
		for _, err := range e.Observe(context.Background()) {
			if !errors.Is(err, holdfast.ErrUnsupported) {
				t.Errorf("an observer without a board: %v", err)
			}
		}
	})
}
