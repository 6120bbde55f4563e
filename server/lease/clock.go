package lease

import (
	"time"

	"holdfast/server/core"
)

// stallWindow is the span over which stalls are summed for a transfer (B9).
const stallWindow = 10 * time.Second

// maxStalls bounds the memory of stalls; older ones are forgotten, which can
// only make the clock value of a very old arrival smaller, thus a deadline
// earlier, and never before arrival + T.
const maxStalls = 256

// A stall is a span over which this process did not run, and over which the
// clock stands still.
type stall struct{ from, to Instant }

// A timeline maps instants of this machine to the log's clock (B2): the clock
// at the leader's start plus own monotonic time since, less stalls.
type timeline struct {
	threshold time.Duration // a longer gap between turns is a stall
	start     Instant
	base      core.Clock // the clock at start
	turned    Instant    // the latest turn
	clock     core.Clock // the clock at turned
	// ahead is how far past turned the clock was already given out.
	ahead time.Duration
	// idle: nothing is timed, so turns need not come, and a gap is no stall.
	idle   bool
	stalls []stall
}

// advance moves to now and reports whether the gap since the latest turn was
// a stall.
func (l *timeline) advance(now Instant, count bool) bool {
	gap := now - l.turned
	if gap < 0 {
		gap, now = 0, l.turned // the caller's clock is not monotonic: stand still
	}
	stalled := gap > l.threshold && !l.idle
	if stalled && !count {
		l.stalls = append(l.stalls, stall{l.turned + l.ahead, now})
		if len(l.stalls) > maxStalls {
			l.stalls = append(l.stalls[:0], l.stalls[1:]...)
		}
		gap = l.ahead
	}
	l.clock += core.Clock(gap)
	l.turned, l.ahead, l.idle = now, 0, false
	return stalled
}

// at is the clock at instant t. It never exceeds the clock at start plus the
// real time from start to t.
func (l *timeline) at(t Instant) core.Clock {
	if t <= l.start {
		return l.base
	}
	if t >= l.turned {
		gap := t - l.turned
		if gap > l.threshold && !l.idle {
			return l.clock + core.Clock(l.ahead) // a stall that the next turn will find
		}
		l.ahead = max(l.ahead, gap)
		return l.clock + core.Clock(gap)
	}
	c := l.clock - core.Clock(l.turned-t)
	for _, s := range l.stalls {
		if s.to > t {
			c += core.Clock(s.to - max(s.from, t))
		}
	}
	return max(c, l.base)
}

// stalledMostly reports whether more than half of the last 10 s were stalls.
func (l *timeline) stalledMostly() bool {
	from, sum := l.turned-stallWindow, time.Duration(0)
	for _, s := range l.stalls {
		if s.to > from {
			sum += s.to - max(s.from, from)
		}
	}
	return sum > stallWindow/2
}

// A hold keeps deadlines from ending anything after a stall (B9): first every
// connection is read until it would block, then leadership is confirmed anew.
type hold uint8

const (
	holdNone hold = iota
	holdDrain
	holdConfirm
)

// stalled notes a stall. If a drain is under way it may have read some
// connections before this stall, so it is asked for once more.
func (m *Machine) stalled() {
	if m.weak.ExpireAfterStallAtOnce {
		return
	}
	if m.hold == holdDrain && m.drainAsked {
		m.drainAgain = true
		return
	}
	m.hold, m.drainAsked, m.drainAgain = holdDrain, false, false
}

// Drained tells that, since the turn that asked for it, every connection was
// read until it would block, and that each keepalive found there was handed
// over before this call (B9).
func (m *Machine) Drained(now Instant) {
	if !m.leading || m.hold != holdDrain || !m.drainAsked {
		return
	}
	if m.drainAgain {
		m.drainAsked, m.drainAgain = false, false
		return
	}
	m.hold, m.drainedAt = holdConfirm, now
}

// Clock is the leader's clock at now, for the header of the next entry (B2).
// It is 0 unless this machine leads.
func (m *Machine) Clock(now Instant) core.Clock {
	if !m.leading {
		return 0
	}
	return m.time.at(now)
}
