package holdfast_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"holdfast"
	"holdfast/driver/drivertest"
)

// Who waits learns that the service has put it in the queue, once, and not
// before; who is granted the lock at once does not.
func TestQueuedIsToldByTheServiceOnly(t *testing.T) {
	bubble(t, func(b *bench) {
		holder, _ := b.locker(b.options())
		none := make(chan struct{}, 2)
		g := b.acquire(holder, "a", holdfast.Queued(none))

		waiter, link := b.locker(b.options())
		link.On(func(c drivertest.Call) drivertest.Fault {
			return drivertest.Fault{DropRequest: c.Op == drivertest.OpAcquire && c.N == 1, Interrupt: ttl}
		})
		queued, done := make(chan struct{}, 2), make(chan *holdfast.Grant, 1)
		go func() {
			g, err := waiter.Acquire(b.ctx, "a", holdfast.Queued(queued))
			if err != nil {
				b.Error(err)
			}
			done <- g
		}()
		synctest.Wait()
		if len(queued) != 0 {
			b.Error("told before the service had heard of the request")
		}
		link.Cut()
		pass(ttl / 2)
		link.Heal()
		<-queued
		pass(ttl)
		if b.service.Lock("a").Waiters != 1 || len(queued) != 0 || len(none) != 0 {
			b.Errorf("%d wait; told %d times more, and %d times to the holder", b.service.Lock("a").Waiters, len(queued), len(none))
		}
		if err := g.Release(b.ctx); err != nil {
			b.Fatal(err)
		}
		if err := (<-done).Release(b.ctx); err != nil {
			b.Error(err)
		}
		if _, err := waiter.TryAcquire(b.ctx, "a", holdfast.Queued(nil)); !errors.Is(err, holdfast.ErrInvalid) {
			b.Errorf("Queued(nil): %v", err)
		}
	})
}
