package elect_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast"
	"holdfast/driver"
	"holdfast/driver/drivertest"
	"holdfast/elect"
	"holdfast/engine/cluster"
	"holdfast/server"
)

// The real service, its real client, and lines that break.

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// service is a server in this process, which can be stopped and started again
// on the same data and address.
type service struct {
	t    *testing.T
	dir  string
	addr string
	srv  *server.Server
}

func startService(t *testing.T) *service {
	t.Helper()
	// In memory, where there is such a thing: leases of two seconds should
	// not depend on how busy the disk is just now.
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-elect-")
	if err != nil {
		dir = t.TempDir()
	}
	s := &service{t: t, dir: dir, addr: "127.0.0.1:0"}
	t.Cleanup(func() {
		if s.srv != nil {
			s.stop()
		}
		_ = os.RemoveAll(dir)
	})
	s.start()
	return s
}

func (s *service) start() {
	s.t.Helper()
	srv, err := server.Start(context.Background(), server.Config{
		Listen: s.addr, Dir: s.dir, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.srv, s.addr = srv, srv.Addr()
}

func (s *service) stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.srv.Stop(ctx); err != nil {
		s.t.Errorf("stop: %v", err)
	}
	s.srv = nil
}

func dial(t *testing.T, addr, label string, ttl time.Duration) *cluster.Client {
	t.Helper()
	c, err := cluster.Dial(t.Context(), addr, &cluster.Options{TTL: ttl, Label: label, Host: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// arena is an election on a real service, and what an observer saw of it.
type arena struct {
	*testing.T
	*service
	ttl       time.Duration // of the candidates
	watcher   *cluster.Client
	primaries chan elect.Primary

	mu     sync.Mutex
	inside string // who is in office
}

func newArena(t *testing.T, ttl time.Duration) *arena {
	t.Helper()
	a := &arena{T: t, service: startService(t), ttl: ttl, primaries: make(chan elect.Primary, 1000)}
	a.watcher = dial(t, a.addr, "watcher", ttl)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		var last error
		for p, err := range elect.Observe(ctx, a.watcher.Board(), office) {
			if last = err; err == nil {
				a.primaries <- p
			}
		}
		done <- last
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the observer ended with %v", err)
		}
	})
	if p := a.next(); !p.None() {
		t.Fatalf("at first the observer sees %+v", p)
	}
	return a
}

// next is what the observer sees next.
func (a *arena) next() elect.Primary {
	a.Helper()
	select {
	case p := <-a.primaries:
		return p
	case <-time.After(patience):
		a.Fatal("the observer sees nothing")
		panic("unreachable")
	}
}

// primary waits until the observer sees somebody in office other than not.
func (a *arena) primary(not string) elect.Primary {
	a.Helper()
	for {
		if p := a.next(); !p.None() && p.Label != not {
			return p
		}
	}
}

// rival is a candidate with a line of its own.
type rival struct {
	*elect.Elector
	client *cluster.Client
	line   *drivertest.Proxy
}

// rival makes a candidate that publishes its name, and stands.
func (a *arena) rival(name string, prefers bool) *rival {
	a.Helper()
	r := &rival{line: drivertest.NewProxy(a.T, a.addr)}
	r.client = dial(a.T, r.line.Addr(), name, a.ttl)
	var err error
	r.Elector, err = elect.New(r.client.Locker(), office, &elect.Options{
		Board: r.client.Board(), Value: []byte("at " + name), Prefer: prefers,
		Settle: 500 * time.Millisecond, Rest: 500 * time.Millisecond, Tolerance: 2 * a.ttl,
	})
	if err != nil {
		a.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx, func(ctx context.Context, g *holdfast.Grant) error {
			a.enter(name)
			<-ctx.Done()
			a.enter("")
			return nil
		})
	}()
	a.Cleanup(func() {
		r.line.Restore()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			a.Errorf("%s: Run returned %v", name, err)
		}
	})
	return r
}

// enter notes who came into office, or that somebody left it.
func (a *arena) enter(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name != "" && a.inside != "" {
		a.Errorf("%s comes into office while %s is there", name, a.inside)
	}
	a.inside = name
}

// all waits until everybody stands.
func (a *arena) all(rivals map[string]*rival) {
	a.Helper()
	a.eventually("everybody to stand", func() bool {
		for _, r := range rivals {
			if !r.Standing().Stands() {
				return false
			}
		}
		return true
	})
	for name, r := range rivals {
		if err := r.Check(); err != nil {
			a.Errorf("%s: %v", name, err)
		}
	}
}

func (a *arena) eventually(what string, ok func() bool) {
	a.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			a.Fatalf("waited in vain for %s", what)
		}
	}
}

// C32 on the real service: three candidates, and the primary is lost in each
// way there is; an observer sees every primary with its value, and tokens rise.
func TestCasebookC32_RealService(t *testing.T) {
	t.Parallel()
	a := newArena(t, 3*time.Second)
	rivals := map[string]*rival{}
	for _, name := range []string{"a", "b", "c"} {
		rivals[name] = a.rival(name, false)
	}
	now := a.primary("")
	a.all(rivals)
	change := func(how string, lose func(r *rival), heal func(r *rival), another bool) {
		t.Helper()
		old := rivals[now.Label]
		lose(old)
		not := ""
		if another {
			not = now.Label
		}
		last := now.Token.Number
		for now = a.primary(not); now.Token.Number == last; now = a.primary(not) {
		}
		if now.Token.Number < last {
			t.Errorf("%s: token %d after %d", how, now.Token.Number, last)
		}
		if string(now.Value) != "at "+now.Label || now.Host != "test" {
			t.Errorf("%s: %s publishes %q on %q", how, now.Label, now.Value, now.Host)
		}
		heal(old)
		a.all(rivals)
	}
	nothing := func(*rival) {}
	change("line cut", func(r *rival) { r.line.Cut() }, func(r *rival) { r.line.Restore() }, true)
	change("answers late, as after SIGSTOP", func(r *rival) { r.line.Stall(drivertest.ToClient) }, func(r *rival) { r.line.Restore() }, true)
	change("revoke", func(r *rival) {
		l, err := a.watcher.Get(t.Context(), office, cluster.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.watcher.Revoke(t.Context(), office, l.Holders[0].Grant, cluster.RevokeOptions{By: "operator"}); err != nil {
			t.Error(err)
		}
	}, nothing, true)
	change("step down", func(r *rival) {
		if err := r.StepDown(t.Context()); err != nil {
			t.Error(err)
		}
	}, nothing, true)
	change("service away for longer than the lease", func(*rival) {
		a.stop()
		a.eventually("everybody to hear of it", func() bool {
			for _, r := range rivals {
				if r.Standing().Stands() {
					return false
				}
			}
			return true
		})
		a.start()
	}, nothing, false)
}

// A value that is changed is seen, belongs to the grant, and cannot be changed
// under a token that is not the present one (A6).
func TestValueBelongsToTheOffice(t *testing.T) {
	t.Parallel()
	a := newArena(t, ttl)
	r := a.rival("a", false)
	first := a.primary("")
	if err := r.SetValue(t.Context(), []byte("moved")); err != nil {
		t.Fatal(err)
	}
	if p := a.next(); string(p.Value) != "moved" || p.Token != first.Token {
		t.Errorf("after the change: %+v", p)
	}
	if err := r.StepDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := a.next(); !p.None() || p.Value != nil {
		t.Errorf("after stepping down: %+v", p)
	}
	if err := r.SetValue(t.Context(), []byte("at rest")); err != nil {
		t.Fatal(err)
	}
	second := a.next()
	for second.None() {
		second = a.next()
	}
	if string(second.Value) != "at rest" || second.Token.Number <= first.Token.Number {
		t.Errorf("in office again: %+v", second)
	}
	if err := r.client.Board().Put(t.Context(), office, first.Token, []byte("late")); driver.KindOf(err) != driver.Stale {
		t.Errorf("a put under the old token: %v", err)
	}
	if l, err := a.watcher.Get(t.Context(), office, cluster.GetOptions{}); err != nil || string(l.Value) != "at rest" {
		t.Errorf("the value is %+v, %v", l, err)
	}
	if err := r.SetValue(t.Context(), make([]byte, 4097)); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a value of 4097 bytes: %v", err)
	}
}

// A preferred candidate is handed the office over the real service.
func TestPreferredOnRealService(t *testing.T) {
	t.Parallel()
	a := newArena(t, ttl)
	rivals := map[string]*rival{"a": a.rival("a", false), "b": a.rival("b", false)}
	first := a.primary("")
	rivals["p"] = a.rival("p", true)
	a.eventually("the preferred one in office", func() bool { return rivals["p"].Standing().State == elect.InOffice })
	a.all(rivals)
	for name, r := range rivals {
		want := uint64(0)
		if name == first.Label || name == "p" {
			want = 1
		}
		if s := r.Standing(); s.Offices != want {
			t.Errorf("%s was in office %d times, want %d", name, s.Offices, want)
		}
	}
}
