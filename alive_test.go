package holdfast_test

import (
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
)

// What the callback looks at may be gone once Release has returned, also when
// a call of it was due at that very moment.
func TestAliveIsNotCalledAfterRelease(t *testing.T) {
	bubble(t, func(b *bench) {
		l, _ := b.locker(b.options())
		late := 0
		for range 300 {
			var released, called atomic.Bool
			g := b.acquire(l, "x", holdfast.Alive(time.Second, 3, func() error {
				if released.Load() {
					called.Store(true)
				}
				return nil
			}))
			<-time.After(time.Second)
			if err := g.Release(b.ctx); err != nil {
				t.Fatal(err)
			}
			released.Store(true)
			pass(2 * time.Second)
			if called.Load() {
				late++
			}
		}
		if late > 0 {
			t.Errorf("called after Release in %d of 300 cases", late)
		}
	})
}
