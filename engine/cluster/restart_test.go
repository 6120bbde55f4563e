package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/driver"
)

// must returns v, and fails the test if there is an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// pulses counts the keepalives that were answered.
type pulses struct {
	mu      sync.Mutex
	good    int
	changed chan struct{}
}

func (p *pulses) on(i holdfast.PulseInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.Err != nil {
		return
	}
	p.good++
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *pulses) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.good
}

// next waits for n more good pulses.
func (p *pulses) next(t *testing.T, n int) {
	t.Helper()
	want := p.count() + n
	waitFor(t, fmt.Sprint(n, " more keepalives"), func() bool { return p.count() >= want })
}

func TestSessionSurvivesRestartOfTheServer(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stopped", "killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := startProcess(t)
			var pulse pulses
			c := dial(t, p.addr, &Options{TTL: 4 * time.Second, OnPulse: pulse.on})
			g := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "held"))
			waiter := dial(t, p.addr, &Options{TTL: 4 * time.Second})
			queued := make(chan *holdfast.Grant, 1)
			go func() {
				g, err := waiter.Locker().Acquire(t.Context(), "held")
				if err != nil {
					t.Error(err)
				}
				queued <- g
			}()
			waitFor(t, "a waiter", func() bool { l, err := c.Get(t.Context(), "held", GetOptions{}); return err == nil && l.Waiters == 1 })
			if how == "killed" {
				p.kill()
			} else {
				p.mu.Lock()
				in, cmd := p.in, p.cmd
				p.cmd = nil
				p.mu.Unlock()
				_ = in.Close()
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			p.start()
			pulse.next(t, 2)
			if g.State() != holdfast.StateHeld {
				t.Fatalf("after the restart: %v, %v", g.State(), g.Cause())
			}
			l := must[*Lock](t)(c.Get(t.Context(), "held", GetOptions{}))
			if len(l.Holders) != 1 || l.Holders[0].Token != g.Token() || l.Waiters != 1 {
				t.Errorf("after the restart: %+v, want token %v and one waiter", l, g.Token())
			}
			if err := g.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := <-queued
			if next == nil || next.Token().Number <= g.Token().Number {
				t.Fatalf("the waiter got %v after %v", next, g.Token())
			}
			if err := next.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestManySessionsReconnectOnOneStream(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	p := newCutter(t, srv.addr)
	l := line(t, p.Addr())
	const n = 300
	sessions := make([]*session, n)
	grants := make([]driver.Grant, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := l.open(t.Context(), driver.OpenRequest{TTL: 10 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			g, e := s.Acquire(t.Context(), request(fmt.Sprint("many/", i), 0, 1))
			if e != nil {
				t.Error(e)
			}
			sessions[i], grants[i] = s, g
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	before, _ := p.Connections()
	p.Reset()
	for i, s := range sessions {
		wg.Go(func() {
			if _, err := s.Keepalive(t.Context()); err != nil {
				t.Errorf("session %d: %v", i, err)
			}
			g, err := s.Acquire(t.Context(), request(fmt.Sprint("many/", i), 0, 1))
			if err != nil || g != grants[i] {
				t.Errorf("session %d: the same request gave %v, %v; it was %v", i, g, err, grants[i])
			}
		})
	}
	wg.Wait()
	if total, _ := p.Connections(); total != before+1 {
		t.Errorf("%d connections for one reconnect", total-before)
	}
}

func TestWatchGoesOnOverARestart(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	c := dial(t, srv.addr, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan struct{})
	got := make(chan Event, 100)
	ended := make(chan error, 1)
	go func() {
		first := true
		for b, err := range c.Watch(ctx, WatchOptions{Prefix: "w/"}) {
			if err != nil {
				ended <- err
				return
			}
			if first {
				close(started)
				first = false
			}
			for _, e := range b.Events {
				if e.Revision > b.Revision {
					t.Errorf("event of revision %d in a batch up to %d", e.Revision, b.Revision)
				}
				got <- e
			}
		}
	}()
	<-started
	var want []uint64
	for i := range 12 {
		want = append(want, must[uint64](t)(c.Put(t.Context(), fmt.Sprint("w/", i%3), []byte{byte(i)}, PutOptions{})))
		must[uint64](t)(c.Put(t.Context(), "other", []byte{byte(i)}, PutOptions{}))
		if i == 5 {
			srv.stop()
			srv.start()
		}
	}
	for i, rev := range want {
		select {
		case e := <-got:
			if e.Revision != rev || e.Kind != "put" || len(e.Value) != 1 || e.Value[0] != byte(i) {
				t.Fatalf("event %d: %+v, want the put of revision %d", i, e, rev)
			}
		case err := <-ended:
			t.Fatalf("the watch ended: %v", err)
		case <-time.After(10 * time.Second):
			t.Fatalf("event %d is missing", i)
		}
	}
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("the watch ended with %v", err)
	}
	if n := len(got); n != 0 {
		t.Errorf("%d events too many, the first is %+v", n, <-got)
	}
}

func TestWatchFromAnOldRevision(t *testing.T) {
	t.Parallel()
	c := dial(t, startService(t).addr, nil)
	var want []uint64
	for i := range 12 {
		want = append(want, must[uint64](t)(c.Put(t.Context(), fmt.Sprint("w/", i%3), []byte{byte(i)}, PutOptions{})))
	}
	n := 0
	for b, err := range c.Watch(t.Context(), WatchOptions{Prefix: "w/", After: new(want[3])}) {
		if err != nil {
			t.Fatal(err)
		}
		if n += len(b.Events); n >= len(want)-4 {
			break
		}
	}
	if n != len(want)-4 {
		t.Errorf("%d events after revision %d, want %d", n, want[3], len(want)-4)
	}
	// A revision that this service never had: of another, or before a restore.
	for _, err := range c.Watch(t.Context(), WatchOptions{After: new(want[11] + 1000)}) {
		if err != nil && !errors.Is(err, ErrCompacted) {
			t.Errorf("got %v, want ErrCompacted", err)
		}
		if err != nil {
			return
		}
	}
	t.Error("a watch from the future did not end")
}
