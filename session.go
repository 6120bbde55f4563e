package holdfast

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/driver"
	"holdfast/internal/watchdog"
)

// clockCheck is the longest time between two looks at the clock while a
// session is in use: timers of package time stand still while the machine
// sleeps, and the clock does not.
const clockCheck = time.Second

var errSessionOver = errors.New("session is over")

// session is the shell around one watchdog machine: it makes the calls that
// the machine asks for, each on a goroutine that ends with the call, and tells
// it the time by one timer. Between calls it has no goroutine.
type session struct {
	c        *client
	ds       driver.Session
	finished chan struct{} // closed when the machine wants nothing any more
	drops    atomic.Bool   // some handle's dropped is set

	mu struct {
		sync.Mutex
		m       *watchdog.Machine
		at      watchdog.Instant // the session's own clock, which never falls
		read    watchdog.Instant // what Options.Clock said at that instant
		timer   *time.Timer      // calls tick at the instant fires, if it is set
		set     bool
		fires   watchdog.Instant
		calls   map[watchdog.CallID]context.CancelFunc
		waiters map[watchdog.Request]*waiter
		handles map[string]*handle
		killed  bool
		pulses  error    // why the last keepalive failed
		ends    error    // why the last End failed
		lines   []func() // to be logged
	}
}

// waiter is one call of Acquire that has no final answer.
type waiter struct {
	id        watchdog.Request
	lock      string
	extension driver.Extension
	inQueue   chan<- struct{} // gets a value when it is; may be nil
	values    context.Context // carries the values of the caller's context only
	begun     watchdog.Instant
	try       bool
	queued    atomic.Bool // the service said that it waits

	done    chan struct{} // closed with the answer: one of h and err is set
	settled chan struct{} // closed when nothing is held or queued by it
	h       *handle
	kind    error
	err     error
	last    error // why the last attempt failed
	anew    bool  // the session was lost before the request was confirmed in it
}

// stands notes that the service said that w stands in the queue. The engine may
// hold a lock of its own, so nothing is waited for.
func (w *waiter) stands() {
	if w.queued.Swap(true) || w.inQueue == nil {
		return
	}
	select {
	case w.inQueue <- struct{}{}:
	default:
	}
}

func newSession(c *client, ds driver.Session, sent watchdog.Instant) *session {
	s := &session{c: c, ds: ds, finished: make(chan struct{})}
	s.mu.m = watchdog.New(c.o.timing(), sent)
	s.mu.at, s.mu.read = sent, sent
	s.mu.calls = make(map[watchdog.CallID]context.CancelFunc)
	s.mu.waiters = make(map[watchdog.Request]*waiter)
	s.mu.handles = make(map[string]*handle)
	if p, ok := ds.(driver.Prompter); ok {
		p.OnNewLeader(func() { s.input((*watchdog.Machine).Hurry) })
	}
	return s
}

// now is called with s.mu held. A clock that was set back goes on from there:
// what is lost is the time since the last look, clockCheck at most. If it had
// to catch up first, the lease would be believed in for as long.
func (s *session) now() watchdog.Moment {
	read := s.c.o.Clock()
	s.mu.at += max(read-s.mu.read, 0)
	s.mu.read = read
	return watchdog.Moment{At: s.mu.at, Jitter: uint16(rand.Uint32())}
}

// input gives the machine one input and does what it says.
func (s *session) input(in func(*watchdog.Machine, watchdog.Moment) []watchdog.Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perform(in(s.mu.m, s.now()), outcome{})
}

func (s *session) close() { s.input((*watchdog.Machine).Close) }

// tick is called by the timer.
func (s *session) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.set = false
	if s.drops.Swap(false) {
		for _, h := range s.mu.handles {
			if h.dropped.Swap(false) {
				h.drop()
			}
		}
	}
	s.perform(s.mu.m.Tick(s.now()), outcome{})
}

// recheck asks the clock whether the lease has run out (C22, C36: no timer and
// no answer is needed to know).
func (s *session) recheck() watchdog.Instant {
	now := s.now()
	if _, over := s.mu.m.Over(); !over && now.At >= s.mu.m.Deadline() {
		s.perform(s.mu.m.Tick(now), outcome{})
	}
	return now.At
}

// schedule is called with s.mu held, after every input. A timer that is set
// early enough is left alone, since a tick too early does no harm.
func (s *session) schedule() {
	wake, ok := s.mu.m.Wake()
	if !ok || s.mu.killed {
		if s.mu.timer != nil {
			s.mu.timer.Stop()
		}
		s.mu.set = false
		return
	}
	if s.mu.set && s.mu.at < s.mu.fires && s.mu.fires <= wake {
		return
	}
	d := min(max(wake-s.mu.at, 0), clockCheck)
	s.mu.set, s.mu.fires = true, s.mu.at+d
	if s.mu.timer == nil {
		s.mu.timer = time.AfterFunc(d, s.tick)
	} else {
		s.mu.timer.Reset(d)
	}
}

// perform does what the machine said, with s.mu held. o is what the call that
// was just settled brought, if one was.
func (s *session) perform(acts []watchdog.Action, o outcome) {
	for _, a := range acts {
		switch a.Kind {
		case watchdog.Send:
			s.start(a)
		case watchdog.Abort:
			if cancel := s.mu.calls[a.Call]; cancel != nil {
				cancel()
			}
		case watchdog.Granted:
			s.grant(a.Request, o.grant)
		case watchdog.Declined:
			s.answer(a.Request, kindOf(o.err), o.err)
		case watchdog.GaveUp:
			s.giveUp(a.Request)
		case watchdog.Settled:
			s.settled(a.Request)
		case watchdog.GrantLost:
			s.mu.handles[a.Grant].lose(a, s.lossError(a.Cause))
		case watchdog.GrantContended:
			s.mu.handles[a.Grant].contend()
		case watchdog.GrantReleased:
			s.mu.handles[a.Grant].confirm()
		case watchdog.SessionOver:
			s.overNow(a.Cause)
		case watchdog.Finished:
			close(s.finished)
			s.c.forget(s)
		}
	}
	s.schedule()
	s.log()
}

// say logs a warning soon; s.mu is held. It does not wait for it: a log that
// is stuck must keep nobody from learning that a grant is lost.
func (s *session) say(msg string, args ...any) {
	s.mu.lines = append(s.mu.lines, func() { s.c.o.Logger.Warn(msg, args...) })
}

// log writes the lines that were said, in order.
func (s *session) log() {
	lines := s.mu.lines
	s.mu.lines = nil
	if len(lines) == 0 {
		return
	}
	go func() {
		for _, line := range lines {
			line()
		}
	}()
}

// lossError is what the service last said, as far as it explains a loss.
func (s *session) lossError(cause watchdog.Cause) error {
	if cause == watchdog.Unreachable {
		return s.mu.pulses
	}
	return nil
}

// answer gives a waiter its final error.
func (s *session) answer(id watchdog.Request, kind, err error) {
	w := s.mu.waiters[id]
	delete(s.mu.waiters, id)
	if w != nil && w.h == nil && w.err == nil {
		w.kind, w.err = kind, err
		close(w.done)
		close(w.settled)
	}
}

// giveUp tells the waiter that the service did not answer for a whole TTL.
func (s *session) giveUp(id watchdog.Request) {
	w := s.mu.waiters[id]
	if w == nil || w.err != nil {
		return
	}
	w.kind, w.err = kindOf(w.last), w.last
	if w.kind == nil {
		w.kind = ErrUnavailable
	}
	if w.err == nil {
		w.err = errors.New("no answer")
	}
	close(w.done)
}

func (s *session) settled(id watchdog.Request) {
	if w := s.mu.waiters[id]; w != nil {
		delete(s.mu.waiters, id)
		close(w.settled)
	}
}

// overNow fails all that wait; the machine has told the grants.
func (s *session) overNow(cause watchdog.Cause) {
	s.c.leave(s)
	for id, w := range s.mu.waiters {
		if w.err != nil || w.h != nil { // given up or abandoned before
			s.settled(id)
			continue
		}
		if cause == watchdog.Closed {
			s.answer(id, ErrLockerClosed, ErrLockerClosed)
			continue
		}
		w.anew = !s.confirmed(w)
		err := s.lossError(cause)
		if driver.KindOf(w.last) == driver.SessionLost {
			err = w.last
		}
		s.answer(id, ErrSessionLost, &waitLost{cause: Cause(cause), err: err})
	}
}

// begin starts an acquire.
func (s *session) begin(ctx context.Context, lock string, try bool, o acquireOptions) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	w := &waiter{
		lock: lock, extension: o.extension, inQueue: o.queued, values: context.WithoutCancel(ctx), begun: now.At,
		try: try, done: make(chan struct{}), settled: make(chan struct{}),
	}
	id, acts, err := s.mu.m.Begin(now, try)
	if err == nil {
		w.id = id
		s.mu.waiters[id] = w
	}
	s.perform(acts, outcome{})
	if errors.Is(err, watchdog.ErrOver) {
		s.c.leave(s)
		err = errSessionOver
	}
	return w, err
}

// await waits for the final answer, or for the end of ctx; then nothing stays
// held by the request, now or soon.
func (s *session) await(ctx context.Context, w *waiter) (*handle, error) {
	select {
	case <-w.done:
	case <-ctx.Done():
		s.abandon(w)
		if w.h == nil {
			s.awaitSettled(w)
			w.kind = nil
			return nil, endOf(ctx)
		}
	}
	if w.h != nil && ctx.Err() != nil {
		_ = w.h.release(ctx, nil) // if not confirmed, it goes on in the background
		w.kind = nil
		return nil, endOf(ctx)
	}
	return w.h, w.err
}

// abandon: nobody waits for w any more. It may have been answered just before.
func (s *session) abandon(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.h != nil || w.err != nil {
		return
	}
	w.err = context.Canceled // so that no answer reaches it
	s.perform(s.mu.m.Abandon(s.now(), w.id), outcome{})
}

// awaitSettled gives the service a moment to confirm the cancel.
func (s *session) awaitSettled(w *waiter) {
	bound := time.NewTimer(min(s.c.o.CallTimeout, time.Second))
	defer bound.Stop()
	select {
	case <-w.settled:
	case <-s.finished:
	case <-bound.C:
	}
}

// kill ends all calls: the driver is about to be closed. It returns why the
// end of the session was not confirmed.
func (s *session) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.m.Finished() {
		return nil
	}
	s.mu.killed = true
	for _, cancel := range s.mu.calls {
		cancel()
	}
	s.schedule()
	if s.mu.ends != nil {
		return s.mu.ends
	}
	return errors.New("no answer")
}
