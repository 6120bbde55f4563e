package drivertest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/fence"
)

// A World is one lock system, as a suite sees it. Its methods may be called by
// several goroutines; they fail the test when they cannot do their work.
type World interface {
	// Driver returns the driver of one more client, which shares nothing
	// with the others. The suite closes it.
	Driver(t testing.TB) driver.Fenced
	// Waiters is how many requests wait for a lock.
	Waiters(t testing.TB, lock string) int
	// Expel ends the sessions whose label this is, as an operator can, or
	// by whatever means the system has.
	Expel(t testing.TB, label string)
}

// A RevocableWorld is a [World] whose operators can take back a grant.
type RevocableWorld interface {
	World
	// Revoke takes the grant that holds the lock back, politely or at once.
	Revoke(t testing.TB, lock string, atOnce bool, by string)
}

// A BasicWorld is a lock system without tokens.
type BasicWorld interface {
	// Driver returns the driver of one more client; see [World.Driver].
	Driver(t testing.TB) driver.Driver
}

// Timing says how a suite runs.
type Timing struct {
	// Virtual runs each case in a testing/synctest bubble of its own.
	Virtual bool
	// TTL is the sessions' TTL; 0 is 1 s on real time, and 10 s else.
	TTL time.Duration
	// Slack is what real scheduling may add to a bound; 0 is 250 ms on real
	// time. On virtual time nothing is added.
	Slack time.Duration
}

func (m Timing) complete() Timing {
	switch {
	case m.Virtual:
		m.Slack = 0
		if m.TTL == 0 {
			m.TTL = 10 * time.Second
		}
	default:
		if m.TTL == 0 {
			m.TTL = time.Second
		}
		if m.Slack == 0 {
			m.Slack = 250 * time.Millisecond
		}
	}
	return m
}

// A testCase is one part of a suite.
type testCase struct {
	name string
	run  func(*stage)
}

// run runs the cases: in parallel on real time, else each in its bubble.
func run(t *testing.T, m Timing, cases []testCase, world func(testing.TB) any) {
	m = m.complete()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if m.Virtual {
				synctest.Test(t, func(t *testing.T) { c.run(newStage(t, m, world(t))) })
				return
			}
			t.Parallel()
			c.run(newStage(t, m, world(t)))
		})
	}
}

// A stage is where one case plays.
type stage struct {
	*testing.T
	Timing
	world any // a World, RevocableWorld or BasicWorld
	start time.Time
	ctx   context.Context
	lock  string // a name that only this case uses
}

var stages atomic.Uint64

func newStage(t *testing.T, m Timing, world any) *stage {
	name := strings.ReplaceAll(t.Name(), "/", ".")
	s := &stage{
		T: t, Timing: m, world: world, start: time.Now(), ctx: t.Context(),
		lock: fmt.Sprintf("%s.%d", name[max(0, len(name)-100):], stages.Add(1)),
	}
	if m.Virtual { // a bubble ends when all its goroutines have: late replies come in first
		s.Cleanup(func() { s.pass(10 * s.TTL) })
	}
	return s
}

// An actor is one client: a locker over a faulty link.
type actor struct {
	*holdfast.FencedLocker
	link   *Link
	label  string
	pulses atomic.Int64 // keepalives answered
	good   atomic.Value // time.Duration since the start of the stage: when the last of them left
}

// options are those of every client: on virtual time the clock follows package
// time, and a call may take a quarter of the TTL.
func (s *stage) options(label string) *holdfast.Options {
	o := &holdfast.Options{TTL: s.TTL, CallTimeout: s.TTL / 4, Label: label, Host: "drivertest"}
	if s.Virtual {
		o.Clock = func() time.Duration { return time.Since(s.start) }
	}
	return o
}

// actor makes one more client, whose session carries a label of its own.
func (s *stage) actor(name string) *actor {
	s.Helper()
	return s.actorWith(name, s.options(s.lock+"."+name))
}

func (s *stage) actorWith(name string, o *holdfast.Options) *actor {
	s.Helper()
	link := NewFencedLink(s.world.(World).Driver(s))
	a := &actor{link: link.Link, label: o.Label}
	o.OnPulse = func(p holdfast.PulseInfo) {
		if p.Err == nil {
			a.pulses.Add(1)
			a.good.Store(time.Since(s.start) - p.Took)
		}
	}
	l, err := holdfast.NewFencedLocker(link, o)
	if err != nil {
		s.Fatalf("locker of %s: %v", name, err)
	}
	a.FencedLocker = l
	s.Cleanup(func() {
		a.link.Heal()
		if err := l.Close(context.Background()); err != nil {
			s.Errorf("close of %s: %v", name, err)
		}
	})
	return a
}

// margin and interval are the defaults of package holdfast.
func (s *stage) margin() time.Duration   { return s.TTL / 10 }
func (s *stage) interval() time.Duration { return s.TTL / 6 }

// mustAcquire acquires within two TTLs.
func (s *stage) mustAcquire(a *actor, lock string, opts ...holdfast.AcquireOption) *holdfast.Grant {
	s.Helper()
	return s.mustAcquireIn(a, lock, 2*s.TTL, opts...)
}

func (s *stage) mustAcquireIn(a *actor, lock string, bound time.Duration, opts ...holdfast.AcquireOption) *holdfast.Grant {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, bound+s.Slack)
	defer cancel()
	g, err := a.Acquire(ctx, lock, opts...)
	if err != nil {
		s.Fatalf("%s: %v", a.label, err)
	}
	return s.keep(g)
}

// keep keeps a grant from being dropped before its case is over: one to which
// nothing leads any more is given up.
func (s *stage) keep(g *holdfast.Grant) *holdfast.Grant {
	s.Cleanup(func() { runtime.KeepAlive(g) })
	return g
}

func (s *stage) mustRelease(g *holdfast.Grant) {
	s.Helper()
	if err := g.Release(s.ctx); err != nil {
		s.Fatal(err)
	}
}

// A pending is an Acquire on its way.
type pending struct {
	done   chan struct{}
	cancel context.CancelFunc
	g      *holdfast.Grant
	err    error
	at     time.Time // of the end
}

// queue starts an acquire and waits until it stands in the queue, and the
// engine has said so.
func (s *stage) queue(a *actor, lock string) *pending {
	s.Helper()
	before, told := s.waiters(lock), a.link.Queued()
	p := s.begin(a, lock)
	s.eventually(2*s.TTL, "request stands in the queue", func() bool { return s.waiters(lock) > before })
	s.eventually(s.TTL, "the engine says that the request waits (AcquireRequest.Queued)", func() bool { return a.link.Queued() > told })
	return p
}

func (s *stage) begin(a *actor, lock string) *pending {
	ctx, cancel := context.WithCancel(s.ctx)
	p := &pending{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(p.done)
		p.g, p.err = a.Acquire(ctx, lock)
		p.at = time.Now()
	}()
	s.Cleanup(func() { cancel(); <-p.done })
	return p
}

func (s *stage) waiters(lock string) int { return s.world.(World).Waiters(s, lock) }

// granted waits for the grant of a pending acquire.
func (s *stage) granted(p *pending, bound time.Duration) *holdfast.Grant {
	s.Helper()
	s.ends(p, bound)
	if p.err != nil {
		s.Fatalf("not granted: %v", p.err)
	}
	return s.keep(p.g)
}

func (s *stage) ends(p *pending, bound time.Duration) {
	s.Helper()
	select {
	case <-p.done:
	case <-time.After(bound + s.Slack):
		s.Fatalf("no answer within %v", bound)
	}
}

// pass lets time pass, and a little more, so that what is due at that very
// instant has happened.
func (s *stage) pass(d time.Duration) { <-time.After(d + time.Microsecond) }

// eventually polls until cond holds, and fails the test after bound.
func (s *stage) eventually(bound time.Duration, what string, cond func() bool) {
	s.Helper()
	end := time.After(bound + s.Slack)
	tick := time.NewTicker(max(s.TTL/1000, time.Millisecond))
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			s.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// within reports that c is closed within bound, and fails the test otherwise.
func (s *stage) within(bound time.Duration, what string, c <-chan struct{}) {
	s.Helper()
	select {
	case <-c:
	case <-time.After(bound + s.Slack):
		s.Fatalf("not within %v: %s", bound, what)
	}
}

// free fails the test unless another client can acquire the lock within bound.
func (s *stage) free(lock string, bound time.Duration) fence.Token {
	s.Helper()
	g := s.mustAcquireIn(s.actor(fmt.Sprintf("prober%d", stages.Add(1))), lock, bound)
	s.mustRelease(g)
	return g.Token()
}

// soakVariable asks, with any value, for the full sizes of the casebook.
const soakVariable = "HOLDFAST_SOAK"

// scale is a count for real time, for virtual time, where time costs nothing,
// or for virtual time in the long form of the tests.
func (s *stage) scale(realTime, virtual, soak int) int {
	switch {
	case !s.Virtual:
		return realTime
	case os.Getenv(soakVariable) != "":
		return soak
	}
	return virtual
}
