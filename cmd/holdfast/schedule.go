package main

import "time"

// instant is a reading of the machine's boot-time clock: nanoseconds since
// boot, suspend included. Wrapper and guardian read the same clock.
type instant = time.Duration

// A schedule decides when a process group is ended. It is pure: instants come
// in, signals to send come out. The guardian and the wrapper each run one.
//
// What must hold (PROTOCOL F1, casebook C56):
//  1. SIGKILL is due no later than the last killAt that was set before
//     SIGTERM, and is never put off after SIGTERM.
//  2. SIGTERM, once sent, is never taken back: a renewal after it changes
//     nothing.
//  3. Each signal is due once.
type schedule struct {
	termAt instant // SIGTERM, always ≤ killAt
	killAt instant
	set    bool
	termed bool
	killed bool
}

// extend moves both instants after a renewal. After SIGTERM it does nothing,
// and a renewal never moves an end to an earlier instant.
func (s *schedule) extend(termAt, killAt instant) {
	if s.termed || (s.set && killAt < s.killAt) {
		return
	}
	s.termAt, s.killAt, s.set = min(termAt, killAt), killAt, true
}

// end ends the group from now on: SIGTERM is due at now, SIGKILL at killAt or
// earlier if it was due earlier.
func (s *schedule) end(now, killAt instant) {
	if !s.set || killAt < s.killAt {
		s.killAt = killAt
	}
	if !s.termed {
		s.termAt = min(now, s.killAt)
	}
	s.set = true
}

// sooner is the earlier of two instants, of which 0 is never.
func sooner(a, b instant) instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// killBy ends the group at killAt, or earlier if that was said before, without
// a SIGTERM: the group was asked to end by another signal, or by another
// schedule.
func (s *schedule) killBy(killAt instant) {
	if !s.set || killAt < s.killAt {
		s.killAt = killAt
	}
	s.termed, s.set = true, true
}

// due says what must be sent now, and when to ask again (0: never).
func (s *schedule) due(now instant) (term, kill bool, next instant) {
	if !s.set || s.killed {
		return false, false, 0
	}
	if !s.termed && now >= s.termAt {
		s.termed, term = true, true
	}
	if now >= s.killAt {
		s.killed, kill = true, true
		return term, kill, 0
	}
	if !s.termed {
		return term, false, s.termAt
	}
	return term, false, s.killAt
}
