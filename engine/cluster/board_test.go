package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/fence"
)

// sightings runs an observer, and hands on what it sees as lines of text.
func sightings(t *testing.T, c *Client, lock string) <-chan string {
	t.Helper()
	seen, ended := make(chan string, 1000), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ended <- c.Board().Observe(ctx, lock, func(token fence.Token, label, host string, value []byte) bool {
			line := "nobody"
			if !token.IsZero() {
				line = label
			}
			if value != nil {
				line += fmt.Sprintf("=%s", value)
			}
			seen <- line
			return true
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the observer ended with %v", err)
		}
	})
	return seen
}

// expect waits for what an observer sees next.
func expect(t *testing.T, seen <-chan string, want string) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Fatalf("saw %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("did not see %q", want)
	}
}

// with is a board's acquire option for a value.
func with(t *testing.T, c *Client, value string) holdfast.AcquireOption {
	t.Helper()
	return must[holdfast.AcquireOption](t)(c.Board().Value([]byte(value)))
}

// An observer sees each holder with its value, in order, also over a kill of
// the server.
func TestBoardObserves(t *testing.T) {
	t.Parallel()
	p := startProcess(t)
	a, b := dial(t, p.addr, &Options{Label: "a"}), dial(t, p.addr, &Options{Label: "b"})
	c := dial(t, p.addr, nil)
	early := sightings(t, c, "office")
	expect(t, early, "nobody")
	g := must[*holdfast.Grant](t)(a.Locker().Acquire(t.Context(), "office", with(t, a, "one")))
	expect(t, early, "a=one")
	late := sightings(t, c, "office")
	expect(t, late, "a=one")
	if err := a.Board().Put(t.Context(), "office", g.Token(), []byte("two")); err != nil {
		t.Fatal(err)
	}
	next := make(chan *holdfast.Grant, 1)
	go func() {
		g, err := b.Locker().Acquire(t.Context(), "office", with(t, b, "three"))
		if err != nil {
			t.Error(err)
		}
		next <- g
	}()
	waitFor(t, "a waiter", func() bool {
		l, err := c.Get(t.Context(), "office", GetOptions{})
		return err == nil && l.Waiters == 1
	})
	p.kill()
	p.start()
	if err := g.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	g = <-next
	for _, seen := range []<-chan string{early, late} {
		expect(t, seen, "a=two")
		expect(t, seen, "b=three")
	}
	if err := g.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, seen := range []<-chan string{early, late} {
		expect(t, seen, "nobody")
	}
}

// A put under a token that is not the present one any more changes nothing
// (A6), and one without a token is not sent.
func TestBoardRefusesStalePuts(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a, b := dial(t, s.addr, nil), dial(t, s.addr, nil)
	old := must[*holdfast.Grant](t)(a.Locker().Acquire(t.Context(), "office", with(t, a, "old")))
	if err := old.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := must[*holdfast.Grant](t)(b.Locker().Acquire(t.Context(), "office", with(t, b, "new")))
	err := a.Board().Put(t.Context(), "office", old.Token(), []byte("late"))
	if driver.KindOf(err) != driver.Stale || driver.OutcomeOf(err) != driver.No {
		t.Errorf("a put with the old token: %v", err)
	}
	if err := a.Board().Put(t.Context(), "office", fence.Token{}, []byte("late")); driver.KindOf(err) != driver.Invalid {
		t.Errorf("a put without a token: %v", err)
	}
	if _, err := a.Board().Value(make([]byte, 4097)); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a value of 4097 bytes: %v", err)
	}
	if l := must[*Lock](t)(a.Get(t.Context(), "office", GetOptions{})); string(l.Value) != "new" {
		t.Errorf("the value is %q", l.Value)
	}
	if err := now.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// An observer is told what trying again cannot mend.
func TestBoardObserveRefusals(t *testing.T) {
	t.Parallel()
	s := startService(t)
	c := dial(t, s.addr, nil)
	never := func(fence.Token, string, string, []byte) bool { t.Error("saw something"); return false }
	if err := c.Board().Observe(t.Context(), "a\x00b", never); driver.KindOf(err) != driver.Invalid {
		t.Errorf("observed a name that no lock can have: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Board().Observe(ctx, "a", never); !errors.Is(err, context.Canceled) {
		t.Errorf("observed without a context that lives: %v", err)
	}
	times := 0
	err := c.Board().Observe(t.Context(), "a", func(fence.Token, string, string, []byte) bool { times++; return false })
	if err != nil || times != 1 {
		t.Errorf("one look: %v, %d times", err, times)
	}
}
