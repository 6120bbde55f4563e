package stage

import (
	"context"
	"sync"
	"time"
)

// A stillness makes a part of this process stand still, as a signal does to a
// whole one: whoever passes it waits while it is on. It also is that part's
// clock, which stands still as well: from the inside no time passes, and at
// the end it jumps. A nil stillness never comes.
type stillness struct {
	start time.Time

	mu      sync.Mutex
	on      chan struct{} // closed when the stillness ends; nil: it is not on
	since   time.Duration // where the clock stands
	active  int           // how many are between enter and leave
	drained chan struct{} // closed when active falls to 0; nil: nobody asks
	killed  chan struct{} // closed for good: nobody passes any more
}

func newStillness() *stillness {
	return &stillness{start: time.Now(), killed: make(chan struct{})}
}

// enter waits until it is not still and begins something that a stillness
// waits for. It reports false, and has begun nothing, after kill.
func (s *stillness) enter() bool {
	if s == nil {
		return true
	}
	for {
		s.mu.Lock()
		on := s.on
		if on == nil && !s.deadLocked() {
			s.active++
			s.mu.Unlock()
			return true
		}
		s.mu.Unlock()
		if on == nil {
			return false
		}
		select {
		case <-on:
		case <-s.killed:
			return false
		}
	}
}

// leave ends what enter began.
func (s *stillness) leave() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.active == 0 && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
}

// pass waits until it is not still; false after kill, or if ctx ends before.
func (s *stillness) pass(ctx context.Context) bool {
	if s == nil {
		return true
	}
	for {
		s.mu.Lock()
		on, dead := s.on, s.deadLocked()
		s.mu.Unlock()
		if dead || on == nil {
			return !dead
		}
		select {
		case <-on:
		case <-s.killed:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// freeze begins the stillness and returns when nothing is active any more. If
// ctx ends before, it is as if nothing had been.
func (s *stillness) freeze(ctx context.Context) error {
	s.mu.Lock()
	if s.on == nil {
		s.on, s.since = make(chan struct{}), time.Since(s.start)
	}
	if s.active == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.drained == nil {
		s.drained = make(chan struct{})
	}
	drained := s.drained
	s.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-s.killed:
		return errGone
	case <-ctx.Done():
		s.thaw()
		return context.Cause(ctx)
	}
}

// thaw ends the stillness.
func (s *stillness) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on != nil {
		close(s.on)
		s.on = nil
	}
}

// kill frees all that wait, with the answer that they must end.
func (s *stillness) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deadLocked() {
		close(s.killed)
	}
}

func (s *stillness) dead() bool {
	if s == nil {
		return false
	}
	return s.deadLocked()
}

// deadLocked may be called with or without s.mu: killed is set once.
func (s *stillness) deadLocked() bool {
	select {
	case <-s.killed:
		return true
	default:
		return false
	}
}

// clock is the time since the beginning as it is seen from the inside.
func (s *stillness) clock() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on != nil {
		return s.since
	}
	return time.Since(s.start)
}
