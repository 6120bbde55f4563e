package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast/engine/memlock"
)

// BenchmarkAcquireRelease is what the client itself costs: the engine answers
// at once. All workers share one locker, thus one session.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, workers := range []int{1, 16, 512} {
		b.Run(fmt.Sprint("workers=", workers), func(b *testing.B) {
			service := memlock.New(nil)
			defer service.Close()
			l, err := service.Locker(nil)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close(context.Background())
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					name := fmt.Sprint("lock", w)
					for range b.N / workers {
						g, err := l.Acquire(b.Context(), name)
						if err != nil {
							b.Error(err)
							return
						}
						if err := g.Release(b.Context()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkState is what a look at a grant costs: one look at the clock.
func BenchmarkState(b *testing.B) {
	service := memlock.New(nil)
	defer service.Close()
	l, err := service.Locker(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(context.Background())
	g, err := l.Acquire(b.Context(), "x")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(g.Context(), time.Hour)
	defer cancel()
	for b.Loop() {
		if g.Context().Err() != nil || ctx.Err() != nil {
			b.Fatal("lost")
		}
	}
}
