package sim

import (
	"time"

	"holdfast/internal/planted"
)

// A clock is a machine's monotonic clock: it runs at a rate of its own and may
// stand still.
type clock struct {
	read  time.Duration // at since
	since time.Duration // true time
	skew  int64         // millionths by which it runs fast
	still bool
}

// now is the clock's reading at a true instant.
func (c *clock) now(t time.Duration) time.Duration {
	if c.still {
		return c.read
	}
	d := t - c.since
	return c.read + d + d*time.Duration(c.skew)/1_000_000
}

// turn changes how the clock runs from a true instant on.
func (c *clock) turn(t time.Duration, skew int64, still bool) {
	c.read, c.since, c.skew, c.still = c.now(t), t, skew, still
}

// until is how much true time passes until the clock has moved on by d, if it
// runs on as it does.
func (c *clock) until(d time.Duration) time.Duration {
	return max(0, d*1_000_000/time.Duration(1_000_000+c.skew)+1)
}

// A process runs on a machine of its own: a server or a client. It may be down,
// or stand still.
type process struct {
	w     *world
	name  string
	clock clock // counts a sleep for a client, and not for a server
	// counts: its clock counts a sleep.
	counts bool
	up     bool
	life   uint64 // counts its starts
	still  int    // reasons to stand still (SIGSTOP, sleep)
	sleep  int    // those for which its clock does too
	due    []func()
	// steady is since when it has run without a break, at its clock's rate.
	steady time.Duration
	halted time.Duration // when it last began to stand still
	// stalled is when it last went on after what its own clock shows to be a
	// stall (B9), which began when that showed haltedAt.
	stalled, haltedAt time.Duration
	stood             stood // before that
}

// time is the process's own clock.
func (p *process) time() time.Duration { return p.clock.now(p.w.now) }

// in lets the process do something when its clock has moved on by d: later if
// it stands still then, and never if it has died before.
func (p *process) in(d time.Duration, do func()) { p.w.after(p.clock.until(d), p.alive(do)) }

// alive is do, for the present life of the process, when it runs.
func (p *process) alive(do func()) func() {
	life := p.life
	return func() {
		switch {
		case !p.up || p.life != life:
		case p.still > 0:
			p.due = append(p.due, do)
		default:
			do()
		}
	}
}

// start begins a life.
func (p *process) start() {
	p.up, p.due = true, nil
	p.still, p.sleep = 0, 0
	p.clock.turn(p.w.now, p.clock.skew, false)
	p.life++
	p.steady, p.stalled = p.w.now, 0
}

// stall is the gap above which a server has stalled (B9).
func (w *world) stall() time.Duration { return max(2*w.Tick, 100*time.Millisecond) }

// stoodStill is how long it has stood still until now.
func (p *process) stoodStill() stood {
	s := p.stood
	if p.still > 0 {
		s.long += p.w.now - p.halted
		s.times++
	}
	return s
}

// die ends it.
func (p *process) die() { p.up, p.due = false, nil }

// halt makes the process stand still until the function that it returns is
// called. If its machine sleeps, its clock may stand still as well.
func (p *process) halt(sleep bool) (resume func()) {
	life := p.life
	if p.still == 0 {
		p.halted, p.haltedAt = p.w.now, p.time()
	}
	p.still++
	clock := 0
	if sleep && (!p.counts || planted.On("B10-clock-stops-in-sleep")) {
		clock = 1
	}
	p.sleep += clock
	p.clock.turn(p.w.now, p.clock.skew, p.sleep > 0)
	return func() {
		if p.life != life {
			return // it died, and runs again
		}
		if p.still--; p.still == 0 {
			p.steady = p.w.now
			p.stood.long += p.w.now - p.halted
			p.stood.times++
		}
		p.sleep -= clock
		p.clock.turn(p.w.now, p.clock.skew, p.sleep > 0)
		if p.still == 0 && p.time()-p.haltedAt > p.w.stall() {
			p.stalled = p.w.now
		}
		for p.still == 0 && len(p.due) > 0 && !p.w.stopped {
			do := p.due[0]
			p.due = p.due[1:]
			do()
		}
	}
}
