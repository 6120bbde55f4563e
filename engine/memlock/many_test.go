package memlock_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast"
	"holdfast/engine/memlock"
)

// TestThousandsOfWaitsInOneSession: one locker holds 2,000 locks and waits for
// them 2,000 times more, for several TTLs, in which every wait is asked again;
// then every lock is handed over within the session.
func TestThousandsOfWaitsInOneSession(t *testing.T) {
	const locks, ttl = 2000, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := memlock.New(nil)
		defer s.Close()
		l, err := s.Locker(&holdfast.Options{TTL: ttl, Clock: func() time.Duration { return time.Since(start) }})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(t.Context())
		held := make([]*holdfast.Grant, locks)
		for i := range held {
			if held[i], err = l.Acquire(t.Context(), fmt.Sprint("lock", i)); err != nil {
				t.Fatal(err)
			}
		}
		var handed atomic.Int64
		for i := range held {
			go func() {
				g, err := l.Acquire(t.Context(), fmt.Sprint("lock", i))
				if err != nil {
					t.Error(err)
					return
				}
				handed.Add(1)
				if err := g.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		<-time.After(5 * ttl)
		synctest.Wait()
		if n := handed.Load(); n != 0 {
			t.Fatalf("%d locks were handed over while they were held", n)
		}
		for i, g := range held {
			if v := s.Lock(g.Lock()); v.Holder == nil || v.Waiters != 1 || g.State() != holdfast.StateHeld {
				t.Fatalf("lock %d is %v, held by %v, with %d waiting", i, g.State(), v.Holder, v.Waiters)
			}
		}
		for _, g := range held {
			if err := g.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := handed.Load(); n != locks {
			t.Errorf("%d of %d locks were handed over", n, locks)
		}
		if names := s.Locks(""); len(names) != 0 || s.Sessions() != 1 {
			t.Errorf("%d locks are in use in %d sessions after all were given back", len(names), s.Sessions())
		}
	})
}
