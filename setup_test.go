package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"holdfast"
	"holdfast/driver"
	"holdfast/driver/drivertest"
	"holdfast/engine/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// bench is one service and its clients in a bubble.
type bench struct {
	*testing.T
	service *memlock.Service
	start   time.Time
	ctx     context.Context
}

// bubble runs a test on virtual time.
func bubble(t *testing.T, run func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, service: memlock.New(nil), start: time.Now(), ctx: t.Context()}
		t.Cleanup(func() { pass(10 * ttl) }) // a bubble ends when its goroutines have
		t.Cleanup(b.service.Close)
		run(b)
	})
}

func (b *bench) clock() time.Duration { return time.Since(b.start) }

func (b *bench) options() *holdfast.Options {
	return &holdfast.Options{TTL: ttl, Clock: b.clock, Host: "test"}
}

func (b *bench) locker(o *holdfast.Options) (*holdfast.FencedLocker, *drivertest.Link) {
	b.Helper()
	return b.lockerOn(b.service.Driver(), o)
}

func (b *bench) lockerOn(d driver.Fenced, o *holdfast.Options) (*holdfast.FencedLocker, *drivertest.Link) {
	b.Helper()
	link := drivertest.NewFencedLink(d)
	l, err := holdfast.NewFencedLocker(link, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		link.Heal()
		_ = l.Close(context.Background())
	})
	return l, link.Link
}

func (b *bench) acquire(l *holdfast.FencedLocker, lock string, opts ...holdfast.AcquireOption) *holdfast.Grant {
	b.Helper()
	g, err := l.Acquire(b.ctx, lock, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// pass lets time pass, and a little more.
func pass(d time.Duration) { <-time.After(d + time.Microsecond) }

// free fails the test unless nobody holds or waits for the lock.
func (b *bench) free(lock string) {
	b.Helper()
	if v := b.service.Lock(lock); v.Holder != nil || v.Waiters != 0 {
		b.Errorf("lock %q is held by %+v, %d waiting", lock, v.Holder, v.Waiters)
	}
}
