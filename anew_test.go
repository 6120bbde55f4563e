package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/driver/drivertest"
	"holdfast/fence"
)

// expel ends the session of a label, as an operator or its expiry does, and
// reports whether there was one.
func (b *bench) expel(label string) bool {
	b.Helper()
	ids := b.service.SessionsOf(label)
	for _, id := range ids {
		if err := b.service.Expel(id, "op"); err != nil {
			b.Fatal(err)
		}
	}
	return len(ids) > 0
}

func (b *bench) labelled(label string) (*holdfast.FencedLocker, *drivertest.Link) {
	b.Helper()
	o := b.options()
	o.Label = label
	return b.locker(o)
}

// acquirers are the ways to ask for a lock, each of which returns a grant that
// is then held.
var acquirers = map[string]func(*holdfast.FencedLocker, context.Context, string) (*holdfast.Grant, error){
	"acquire": func(l *holdfast.FencedLocker, ctx context.Context, lock string) (*holdfast.Grant, error) {
		return l.Acquire(ctx, lock)
	},
	"try": func(l *holdfast.FencedLocker, ctx context.Context, lock string) (*holdfast.Grant, error) {
		return l.TryAcquire(ctx, lock)
	},
}

// TestAcquireInSessionThatHadEnded: the service has ended the session, and the
// client does not know it yet when it asks for a lock: while it holds another,
// holds the same, waits for a third, or has a release under way. The new
// request was never confirmed, so it is begun anew, and nobody need know; what
// was held or really waited for is lost.
func TestAcquireInSessionThatHadEnded(t *testing.T) {
	for name, acquire := range acquirers {
		for _, asks := range []string{"held", "other"} { // the lock that is lost, or another
			t.Run(name+" "+asks, func(t *testing.T) {
				bubble(t, func(b *bench) {
					a, _ := b.labelled("a")
					other, _ := b.locker(b.options())
					guard := b.acquire(other, "guarded")
					g := b.acquire(a, "held")
					waits := make(chan error, 1)
					ctx, cancel := context.WithTimeout(b.ctx, 5*ttl)
					defer cancel()
					go func() { _, err := a.Acquire(ctx, "guarded"); waits <- err }()
					synctest.Wait()
					b.expel("a")
					again, err := acquire(a, b.ctx, asks)
					if err != nil {
						b.Fatal(err)
					}
					if err := <-waits; !errors.Is(err, holdfast.ErrSessionLost) {
						b.Errorf("queued in the ended session: %v, want ErrSessionLost", err)
					}
					if !errors.Is(g.Err(), holdfast.ErrSessionLost) || again.State() != holdfast.StateHeld {
						b.Errorf("the old grant: %v; the new one: %v", g.Err(), again.State())
					}
					if asks == "held" && again.Token().Number <= g.Token().Number {
						b.Errorf("token %d after %d", again.Token().Number, g.Token().Number)
					}
					for _, g := range []*holdfast.Grant{g, again, guard} {
						if err := g.Release(b.ctx); err != nil {
							b.Error(err)
						}
					}
					b.free("held")
					b.free("other")
					b.free("guarded")
				})
			})
		}
	}
}

// TestAcquireAfterFreeze: a client is stopped for about as long as its lease
// lives, or for longer, wakes, and asks for the lock at once, with the grant of
// before lost or nearly so, and not released. The moments of the stop, of the
// wake and of the acquire vary around the deadlines of the client and of the
// service, and so does what is in the sockets.
func TestAcquireAfterFreeze(t *testing.T) {
	for name, acquire := range acquirers {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				for seed := range uint64(150) {
					b.freezeRound(rand.New(rand.NewPCG(seed, 1)), fmt.Sprintf("seed %d", seed), name == "try", acquire)
				}
			})
		})
	}
}

func (b *bench) freezeRound(rng *rand.Rand, round string, try bool, acquire func(*holdfast.FencedLocker, context.Context, string) (*holdfast.Grant, error)) {
	a, link := b.labelled(round)
	// near is d, give or take a few milliseconds, or exactly d.
	near := func(d time.Duration) time.Duration {
		return max(d+time.Duration(rng.IntN(3)-1)*time.Duration(rng.IntN(int(5*time.Millisecond))), 0)
	}
	g := b.acquire(a, "x")
	pass(time.Duration(rng.Int64N(int64(ttl))))
	expelled := false
	switch rng.IntN(3) {
	case 0: // ended at the service, and the client wakes to no answer but that
		expelled = b.expel(round)
	case 1: // the line is held up until about the client's, or the service's deadline
		link.Freeze()
		left := g.Deadline()
		pass(near([]time.Duration{left, left + ttl/10, left + ttl/2}[rng.IntN(3)]))
		if rng.IntN(2) == 0 {
			expelled = b.expel(round)
		}
		time.AfterFunc(near([]time.Duration{0, time.Millisecond, ttl / 4}[rng.IntN(3)]), link.Thaw)
	case 2: // until about the next keepalive
		pass(near(ttl / 6))
		expelled = b.expel(round)
		if rng.IntN(2) == 0 {
			pass(near(0))
		}
	}
	ctx, cancel := context.WithTimeout(b.ctx, 3*ttl)
	defer cancel()
	lock := []string{"x", "y"}[rng.IntN(2)]
	again, err := acquire(a, ctx, lock)
	switch {
	case err == nil:
		if again.Err() != nil || again.Token().Number <= g.Token().Number {
			b.Errorf("%s: new grant %v is %v, old %v", round, again.Token(), again.State(), g.Token())
		}
		if expelled && g.State() != holdfast.StateLost {
			b.Errorf("%s: two grants, the old one is %v", round, g.State())
		}
		if err := again.Release(b.ctx); err != nil {
			b.Errorf("%s: %v", round, err)
		}
	case lock == "x" && try && (errors.Is(err, holdfast.ErrHeldByYou) || errors.Is(err, holdfast.ErrBusy)) && !expelled:
		// the service still believed in the old grant
	case lock == "x" && !try && !expelled && g.State() == holdfast.StateHeld && errors.Is(err, context.DeadlineExceeded):
		// the client slept too little: it still holds the lock
	case lock == "x" && !try && !expelled && errors.Is(err, holdfast.ErrSessionLost):
		// it stood in the queue behind its own old grant, with which it ended
	default:
		b.Errorf("%s: expelled %v, old grant %v: %v", round, expelled, g.Err(), err)
	}
	link.Heal()
	if err := g.Release(b.ctx); err != nil {
		b.Errorf("%s: %v", round, err)
	}
	pass(2 * ttl)
	b.free("x")
	b.free("y")
}

// TestSleepBeforeAnyAnswer: the machine sleeps between the request and every
// answer, so the lease is over when it wakes; the request is begun anew.
func TestSleepBeforeAnyAnswer(t *testing.T) {
	bubble(t, func(b *bench) {
		var slept atomic.Int64
		o := b.options()
		o.Clock = func() time.Duration { return b.clock() + time.Duration(slept.Load()) }
		l, link := b.locker(o)
		g := b.acquire(l, "x")
		link.On(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.OpAcquire && c.N == 2 {
				return drivertest.Fault{Late: ttl / 10}
			}
			return drivertest.Fault{}
		})
		time.AfterFunc(ttl/20, func() { slept.Store(int64(10 * ttl)) })
		second, err := l.Acquire(b.ctx, "y")
		if err != nil {
			b.Fatal(err)
		}
		if g.State() != holdfast.StateLost || second.State() != holdfast.StateHeld {
			b.Errorf("old %v, new %v", g.State(), second.State())
		}
	})
}

// TestSessionsThatEndAtOnce: a service that ends every session before it
// confirms a request is not asked for ever.
func TestSessionsThatEndAtOnce(t *testing.T) {
	for name, acquire := range acquirers {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				l, link := b.locker(b.options())
				gone := &driver.Error{Kind: driver.SessionLost, Outcome: driver.No, Msg: "no such session"}
				link.On(func(c drivertest.Call) drivertest.Fault {
					if c.Op == drivertest.OpAcquire {
						return drivertest.Fault{Refuse: gone}
					}
					return drivertest.Fault{}
				})
				began := time.Now()
				_, err := acquire(l, b.ctx, "x")
				if !errors.Is(err, holdfast.ErrSessionLost) || !strings.Contains(err.Error(), "no such session") {
					b.Errorf("%v, want ErrSessionLost and what the service said", err)
				}
				n, took := len(link.Calls(drivertest.OpOpen)), time.Since(began)
				if n < 3 || n > 20 || took == 0 || took > ttl {
					b.Errorf("%d sessions in %v", n, took)
				}
				ctx, cancel := context.WithTimeout(b.ctx, time.Millisecond)
				defer cancel()
				if _, err := acquire(l, ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
					b.Errorf("%v, want context.DeadlineExceeded", err)
				}
			})
		})
	}
}

// TestTextOfALostWait: it says in words what happened, says nothing twice, and
// is not taken for the end of the caller's own context.
func TestTextOfALostWait(t *testing.T) {
	bubble(t, func(b *bench) {
		holder, _ := b.locker(b.options())
		b.acquire(holder, "x")
		l, link := b.locker(b.options())
		got := make(chan error, 1)
		go func() { _, err := l.Acquire(b.ctx, "x"); got <- err }()
		pass(ttl / 2)
		link.Cut()
		err := <-got
		const want = `holdfast: acquire "x": session lost while waiting for the lock: the lease ran out while the service did not answer (`
		if !errors.Is(err, holdfast.ErrSessionLost) || !strings.HasPrefix(err.Error(), want) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			b.Errorf("%v", err)
		}
	})
}

// TestNoAnswerIsNotTheEndOfTheCaller: what a call of ours ran into when its
// time was up, is not found by errors.Is as the end of the caller's context.
func TestNoAnswerIsNotTheEndOfTheCaller(t *testing.T) {
	bubble(t, func(b *bench) {
		l, link := b.locker(b.options())
		g := b.acquire(l, "x")
		link.Cut()
		released, closed := g.Release(b.ctx), l.Close(b.ctx)
		for _, err := range []error{released, closed} {
			if !errors.Is(err, holdfast.ErrReleasePending) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				b.Errorf("%v", err)
			}
		}
		const want = `holdfast: release "x": release not confirmed: no answer from the service; call Release again`
		if !strings.HasPrefix(released.Error(), want) {
			b.Errorf("%v", released)
		}
		const name = `holdfast: try: invalid: lock name is empty`
		if _, err := l.TryAcquire(b.ctx, ""); !errors.Is(err, holdfast.ErrInvalid) || !errors.Is(err, fence.ErrMalformed) || !strings.HasPrefix(err.Error(), name) {
			b.Errorf("%v", err)
		}
	})
}
