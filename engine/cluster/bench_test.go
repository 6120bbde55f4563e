package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/driver"
)

// The benchmarks run against a server in a process of its own, with its data
// on the disk below the temporary directory; every grant and every release is
// synced there. All workers share one client, as the workers of one program
// do. bench/ prints them as a table.

// latencies collects how long operations took.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) add(some []time.Duration) {
	l.mu.Lock()
	l.all = append(l.all, some...)
	l.mu.Unlock()
}

// report adds the custom metrics: the median, the 99th percentile, and the
// rate.
func (l *latencies) report(b *testing.B) {
	if len(l.all) == 0 {
		return
	}
	slices.Sort(l.all)
	at := func(p float64) float64 {
		return float64(l.all[min(int(p*float64(len(l.all))), len(l.all)-1)].Microseconds())
	}
	b.ReportMetric(at(0.50), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkUncontended acquires and releases a lock of each worker's own: one
// operation is the pair.
func BenchmarkUncontended(b *testing.B) {
	p := startProcess(b)
	for _, workers := range []int{1, 16, 128, 512} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			c := dial(b, p.addr, nil)
			pairs(b, workers, func(ctx context.Context, worker int) error {
				g, err := c.Locker().Acquire(ctx, fmt.Sprint("bench/", workers, "/", worker))
				if err != nil {
					return err
				}
				return g.Release(ctx)
			})
		})
	}
}

// BenchmarkUncontendedDriver is the same without the watchdog of package
// holdfast: what the line alone costs.
func BenchmarkUncontendedDriver(b *testing.B) {
	p := startProcess(b)
	for _, workers := range []int{1, 128, 512} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			c := dial(b, p.addr, nil)
			s, err := c.Engine().Open(b.Context(), driver.OpenRequest{TTL: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			n := make([]uint64, workers)
			pairs(b, workers, func(ctx context.Context, worker int) error {
				n[worker]++
				g, err := s.Acquire(ctx, driver.AcquireRequest{
					ID:   driver.RequestID{Lane: uint32(worker), N: n[worker]},
					Lock: fmt.Sprint("bench/", workers, "/", worker),
				})
				if err != nil {
					return err
				}
				return s.Release(ctx, driver.ReleaseRequest{Grant: g.ID})
			})
			if err := s.End(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
}

// pairs shares b.N operations among the workers.
func pairs(b *testing.B, workers int, op func(ctx context.Context, worker int) error) {
	ctx := context.Background()
	if err := op(ctx, 0); err != nil { // the session is open, the line warm
		b.Fatal(err)
	}
	var lat latencies
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range workers {
		wg.Go(func() {
			var mine []time.Duration
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := op(ctx, w); err != nil {
					b.Error(err)
					return
				}
				mine = append(mine, time.Since(began))
			}
			lat.add(mine)
		})
	}
	wg.Wait()
	b.StopTimer()
	lat.report(b)
}

// BenchmarkHandOff passes one contended lock around: one operation is the time
// from the moment a holder gives it back until the next one has it.
func BenchmarkHandOff(b *testing.B) {
	p := startProcess(b)
	for _, waiters := range []int{16, 128} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			clients := []*Client{dial(b, p.addr, nil), dial(b, p.addr, nil)} // a hand-off crosses processes
			ctx := context.Background()
			name := fmt.Sprint("bench/handoff/", waiters)
			var lat latencies
			var released atomic.Int64 // when, in ns since the start; 0: nobody has yet
			var left atomic.Int64
			left.Store(int64(b.N))
			start := time.Now()
			var wg sync.WaitGroup
			b.ResetTimer()
			for w := range waiters + 1 {
				wg.Go(func() {
					var mine []time.Duration
					for left.Add(-1) >= 0 {
						g, err := clients[w%2].Locker().Acquire(ctx, name)
						if err != nil {
							b.Error(err)
							return
						}
						if at := released.Load(); at > 0 {
							mine = append(mine, time.Since(start)-time.Duration(at))
						}
						released.Store(int64(time.Since(start)))
						if err := g.Release(ctx); err != nil {
							b.Error(err)
							return
						}
					}
					lat.add(mine)
				})
			}
			wg.Wait()
			b.StopTimer()
			lat.report(b)
		})
	}
}

// BenchmarkKeepalives keeps many sessions alive at once: one operation is one
// session's keepalive.
func BenchmarkKeepalives(b *testing.B) {
	p := startProcess(b)
	for _, sessions := range []int{1, 512} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			c := dial(b, p.addr, nil)
			all := make([]driver.Session, sessions)
			for i := range all {
				s, err := c.Engine().Open(b.Context(), driver.OpenRequest{TTL: time.Minute})
				if err != nil {
					b.Fatal(err)
				}
				all[i] = s
			}
			pairs(b, sessions, func(ctx context.Context, worker int) error {
				_, err := all[worker].Keepalive(ctx)
				return err
			})
		})
	}
}
