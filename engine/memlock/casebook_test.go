package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast"
	"holdfast/driver/drivertest"
	"holdfast/engine/memlock"
	"holdfast/server/core"
)

// A machineClock is what a client's clock shows after so long.
type machineClock func(elapsed time.Duration) time.Duration

// ahead is a clock that is right, but for its origin.
func ahead(d time.Duration) machineClock {
	return func(elapsed time.Duration) time.Duration { return elapsed + d }
}

// stepping is set forward by d in one second, and back in the next.
func stepping(d time.Duration) machineClock {
	return func(elapsed time.Duration) time.Duration {
		return elapsed + d*(elapsed/time.Second%2)
	}
}

// setBack is set back by d every so often.
func setBack(d, every time.Duration) machineClock {
	return func(elapsed time.Duration) time.Duration { return elapsed - d*(elapsed/every) }
}

// TestCasebookC37_OtherClocksMoveNothing plays one story among clients whose
// clocks and labels agree, and again where they are an hour apart or stepped
// all the time: what happens comes as long after its cause.
func TestCasebookC37_OtherClocksMoveNothing(t *testing.T) {
	same := playTurns(t, []machineClock{ahead(0), ahead(0), ahead(0), ahead(0), ahead(0)})
	apart := playTurns(t, []machineClock{
		ahead(-time.Hour), ahead(0), ahead(time.Hour),
		stepping(100 * time.Millisecond), setBack(time.Hour, 23*time.Second),
	})
	if len(same) != 20 || len(apart) != len(same) {
		t.Fatalf("%d and %d things happened: want 20", len(same), len(apart))
	}
	for i, want := range same {
		got := apart[i]
		if got.what != want.what {
			t.Fatalf("step %d: %s, and with equal clocks %s", i, got.what, want.what)
		}
		if off := (got.after - want.after).Abs(); off > want.after/20 {
			t.Errorf("%s: after %v, and with equal clocks after %v", got.what, got.after, want.after)
		}
	}
}

// A happening is one thing of a story, and how long after its cause it came.
type happening struct {
	what  string
	after time.Duration
}

// playTurns lets one client after the other have the locks "given" and "left".
// It holds them for three TTLs, gives the first back, and its line is cut while
// it holds the second.
func playTurns(t *testing.T, clocks []machineClock) (all []happening) {
	const ttl = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := memlock.New(nil)
		defer s.Close()
		note := func(cause time.Time, form string, args ...any) {
			all = append(all, happening{fmt.Sprintf(form, args...), time.Since(cause)})
		}
		var turns []*turn
		for _, c := range clocks {
			turns = append(turns, newTurn(t, s, ttl, start, c))
			defer turns[len(turns)-1].end()
		}
		for i, now := range turns {
			if i == 0 {
				now.wait(t.Context())
			}
			given, left := <-now.given, <-now.left
			if given == nil || left == nil {
				t.Fatalf("client %d did not get its locks", i)
			}
			if i+1 < len(turns) {
				turns[i+1].wait(t.Context())
			}
			<-time.After(3 * ttl)
			if given.State() != holdfast.StateHeld || left.State() != holdfast.StateHeld {
				t.Fatalf("client %d works and is answered, and its grants are %v and %v", i, given.State(), left.State())
			}
			back := time.Now()
			if err := given.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			note(back, "client %d gave a lock back", i)
			if i+1 < len(turns) {
				g := <-turns[i+1].given
				note(back, "client %d got it", i+1)
				turns[i+1].given <- g
			}
			<-now.pulses // an answer that came before
			<-now.pulses
			now.link.Cut()
			cut := time.Now()
			<-left.Context().Done()
			if !errors.Is(left.Err(), holdfast.ErrLost) {
				t.Fatal(left.Err())
			}
			note(cut, "client %d gave its lost lock up", i)
			if i+1 < len(turns) {
				g := <-turns[i+1].left
				note(cut, "client %d got it", i+1)
				turns[i+1].left <- g
				continue
			}
			for s.Sessions() > 0 {
				<-time.After(10 * time.Millisecond)
			}
			note(cut, "the session of client %d ended", i)
			note(start, "the story ended")
		}
	})
	return all
}

// turn is one client of the story.
type turn struct {
	t           *testing.T
	link        drivertest.FencedLink
	locker      *holdfast.FencedLocker
	given, left chan *holdfast.Grant
	pulses      chan struct{} // holds one if a keepalive was answered
}

func newTurn(t *testing.T, s *memlock.Service, ttl time.Duration, start time.Time, clock machineClock) *turn {
	c := &turn{
		t: t, link: drivertest.NewFencedLink(s.Driver()), pulses: make(chan struct{}, 1),
		given: make(chan *holdfast.Grant, 1), left: make(chan *holdfast.Grant, 1),
	}
	shown := func() time.Duration { return clock(time.Since(start)) }
	var err error
	c.locker, err = holdfast.NewFencedLocker(c.link, &holdfast.Options{
		TTL: ttl, Clock: shown, Label: "my clock shows " + start.Add(shown()).String(),
		OnPulse: func(p holdfast.PulseInfo) {
			select {
			case c.pulses <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wait queues for both locks.
func (c *turn) wait(ctx context.Context) {
	for lock, got := range map[string]chan *holdfast.Grant{"given": c.given, "left": c.left} {
		go func() {
			g, err := c.locker.Acquire(ctx, lock)
			if err != nil {
				c.t.Error(err)
			}
			got <- g
		}()
	}
	synctest.Wait()
}

func (c *turn) end() {
	c.link.Heal()
	if err := c.locker.Close(context.Background()); err != nil {
		c.t.Error(err)
	}
}

// TestCasebookC37_StateHoldsNoWallClock walks through all types of which the
// service's state, its log and its answers consist: an instant in them is one
// of the log's own clock, and no field is there for a time of day.
func TestCasebookC37_StateHoldsNoWallClock(t *testing.T) {
	seen := map[reflect.Type]bool{}
	clocks := 0
	var walk func(path string, x reflect.Type)
	walk = func(path string, x reflect.Type) {
		if x == reflect.TypeFor[core.Clock]() {
			clocks++
		}
		if x.PkgPath() == "time" && x != reflect.TypeFor[time.Duration]() {
			t.Errorf("%s is a %v", path, x)
		}
		if seen[x] {
			return
		}
		seen[x] = true
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(path, x.Elem())
		case reflect.Map:
			walk(path, x.Key())
			walk(path, x.Elem())
		case reflect.Struct:
			for f := range x.Fields() {
				at := path + "." + f.Name
				for _, word := range []string{"unix", "wall", "timestamp", "date", "utc"} {
					if low := strings.ToLower(f.Name); strings.HasPrefix(low, word) || strings.HasSuffix(low, word) {
						t.Errorf("%s is named like a time of day", at)
					}
				}
				if n := f.Name; (strings.HasSuffix(n, "At") || strings.HasSuffix(n, "Since")) && f.Type != reflect.TypeFor[core.Clock]() {
					t.Errorf("%s is an instant of type %v: want core.Clock", at, f.Type)
				}
				walk(at, f.Type)
			}
		}
	}
	for _, of := range []any{
		core.State{}, core.Header{}, core.Entry{}, core.Applied{}, core.Holder{},
		core.Open{}, core.End{}, core.Suspect{}, core.Clear{}, core.Expire{}, core.Acquire{}, core.Cancel{}, core.Release{},
		core.Revoke{}, core.Reopen{}, core.Put{}, core.Delete{}, core.Tick{}, core.RaiseEpoch{}, core.SetVersion{}, core.Members{}, core.Audit{},
	} {
		x := reflect.TypeOf(of)
		walk(x.String(), x)
	}
	if clocks < 5 || len(seen) < 40 {
		t.Errorf("saw %d types and %d instants: the test tests nothing", len(seen), clocks)
	}
}
