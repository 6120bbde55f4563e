package elect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"holdfast"
	"holdfast/driver/drivertest"
	"holdfast/elect"
	"holdfast/engine/memlock"
	"holdfast/fence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl    = 10 * time.Second
	office = "office"
)

// world is one service and the candidates of one election, on virtual time.
type world struct {
	*testing.T
	service *memlock.Service
	start   time.Time

	mu     sync.Mutex
	lines  []string // who came into office and who left it, in order
	inside int
	expels bool // an operator broke the promise of a lease: two may be in office
}

// inBubble runs a test on virtual time.
func inBubble(t *testing.T, run func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, service: memlock.New(nil), start: time.Now()}
		t.Cleanup(func() { pass(10 * ttl) }) // a bubble ends when its goroutines have
		t.Cleanup(w.service.Close)
		run(w)
	})
}

// pass lets time pass, and a little more, and everybody act.
func pass(d time.Duration) {
	<-time.After(d + time.Microsecond)
	synctest.Wait()
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// history takes what was said since it was last called.
func (w *world) history() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := strings.Join(w.lines, "; ")
	w.lines = nil
	return h
}

// expect checks what was said since it was last called.
func (w *world) expect(want string) {
	w.Helper()
	if got := w.history(); got != want {
		w.Errorf("%v: got  %s\n\twant %s", time.Since(w.start), got, want)
	}
}

// inOffice counts who is in office, and objects to a second one.
func (w *world) inOffice(name string, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside += by; w.inside > 1 && !w.expels {
		w.Errorf("%v: %s is the second in office", time.Since(w.start), name)
	}
}

func (w *world) setExpels(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expels = yes
}

// candidate is one process that stands.
type candidate struct {
	*elect.Elector
	w      *world
	name   string
	link   *drivertest.Link
	locker *holdfast.FencedLocker
	cancel context.CancelFunc
	done   chan error    // gets what Run returned
	gone   chan struct{} // closed when Run has returned
}

// candidate makes one.
func (w *world) candidate(name string, o elect.Options) *candidate {
	w.Helper()
	link := drivertest.NewFencedLink(w.service.Driver())
	locker, err := holdfast.NewFencedLocker(link, &holdfast.Options{
		TTL: ttl, Label: name, Host: "test", Clock: func() time.Duration { return time.Since(w.start) },
	})
	if err != nil {
		w.Fatal(err)
	}
	c := &candidate{w: w, name: name, link: link.Link, locker: locker, done: make(chan error, 1)}
	if c.Elector, err = elect.New(locker, office, &o); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		link.Heal()
		c.quit()
		_ = locker.Close(context.Background())
	})
	return c
}

// run stands with a function of the test's.
func (c *candidate) run(work func(context.Context, *holdfast.Grant) error) *candidate {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.gone = make(chan struct{})
	go func() {
		defer close(c.gone)
		c.done <- c.Run(ctx, work)
	}()
	synctest.Wait()
	return c
}

// stand stands with a function that stays in office until it is told to end.
func (c *candidate) stand() *candidate {
	return c.run(func(ctx context.Context, g *holdfast.Grant) error {
		c.w.inOffice(c.name, 1)
		defer c.w.inOffice(c.name, -1)
		c.w.say("%s in", c.name)
		<-ctx.Done()
		c.w.say("%s out: %s", c.name, reason(ctx))
		return ctx.Err()
	})
}

// quit ends Run.
func (c *candidate) quit() {
	if c.cancel != nil {
		c.cancel()
		<-c.gone
	}
}

// reason says in a word why a function was told to end.
func reason(ctx context.Context) string {
	cause := context.Cause(ctx)
	if lost, ok := errors.AsType[*holdfast.Lost](cause); ok {
		return lost.Cause.String()
	}
	for _, known := range []error{elect.ErrSteppedDown, elect.ErrPreferred, context.Canceled} {
		if errors.Is(cause, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(cause)
}

// is checks the state.
func (c *candidate) is(want elect.State) {
	c.w.Helper()
	if s := c.Standing(); s.State != want {
		c.w.Errorf("%v: %s is %v (%v), want %v", time.Since(c.w.start), c.name, s.State, s.Why, want)
	}
}

// revoke takes the office back politely, as an operator does.
func (w *world) revoke(lock string) {
	w.Helper()
	h := w.service.Lock(lock).Holder
	if h == nil {
		w.Fatalf("nobody holds %q", lock)
	}
	if _, err := w.service.Revoke(lock, h.GrantNumber, false, "operator"); err != nil {
		w.Fatal(err)
	}
}

// board shows a memlock service as a Board. The engine carries no values.
type board struct {
	s *memlock.Service
}

func (b board) Value([]byte) (holdfast.AcquireOption, error) { return holdfast.Arm(), nil }

func (b board) Put(context.Context, string, fence.Token, []byte) error { return nil }

func (b board) Observe(ctx context.Context, lock string, see func(fence.Token, string, string, []byte) bool) error {
	last := "never seen"
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var token, label, host string
		if h := b.s.Lock(lock).Holder; h != nil {
			token, label, host = h.Token, h.Label, h.Host
		}
		if token != last {
			last = token
			var parsed fence.Token
			if token != "" {
				parsed, _ = fence.ParseToken(token)
			}
			if !see(parsed, label, host, nil) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// standing lists the names of the candidates that stand.
func standing(cs ...*candidate) (names []string) {
	for _, c := range cs {
		if c.Standing().Stands() {
			names = append(names, c.name)
		}
	}
	slices.Sort(names)
	return names
}
