package sim

import (
	"math/rand/v2"
	"time"
)

// A network carries messages between processes. A link from one process to
// another keeps their order, as TCP does, but for those that a fault lets
// overtake.
type network struct {
	w     *world
	rng   *rand.Rand
	links map[link]*line
}

type link struct{ from, to *process }

// A line is the state of one link.
type line struct {
	cuts int           // reasons for which nothing passes
	slow time.Duration // added to every delay
	last time.Duration // when the latest message arrives
	// mended is when the latest fault of the link ended.
	mended time.Duration
}

// line is the state of a link. The map is never ranged over: its order would
// be another each time.
func (n *network) line(from, to *process) *line {
	l := n.links[link{from, to}]
	if l == nil {
		l = &line{}
		n.links[link{from, to}] = l
	}
	return l
}

// send carries a message: arrive happens at the receiver's end, even if the
// process there is down or stands still; lost, if not nil, tells the sender,
// sometimes, that it did not arrive.
func (n *network) send(from, to *process, arrive, lost func()) {
	w, l := n.w, n.line(from, to)
	if l.cuts > 0 || n.fault(Drop) {
		if lost != nil && n.rng.IntN(2) == 0 {
			w.after(between(n.rng, time.Millisecond, w.TTL/2), lost)
		}
		return
	}
	d := between(n.rng, 50*time.Microsecond, 2*time.Millisecond) + l.slow
	if n.fault(Delay) {
		d += between(n.rng, 10*time.Millisecond, 2*w.TTL)
	}
	at := w.now + d
	if !n.fault(Reorder) {
		at = max(at, l.last)
		l.last = at
	}
	w.at(at, arrive)
	if n.fault(Duplicate) {
		w.at(at+between(n.rng, 0, w.TTL), arrive)
	}
}

// fault draws whether a fault happens to a message.
func (n *network) fault(f Fault) bool {
	if n.w.calm || !chance(n.rng, n.w.Rates[f]) {
		return false
	}
	n.w.counts[f]++
	return true
}

// cut stops all messages of a link until the function that it returns is
// called.
func (n *network) cut(from, to *process) (mend func()) {
	l := n.line(from, to)
	l.cuts++
	return func() { l.cuts--; l.mended = n.w.now }
}

// slow makes all messages of a link take longer.
func (n *network) slow(from, to *process, by time.Duration) (mend func()) {
	l := n.line(from, to)
	l.slow += by
	return func() { l.slow -= by; l.mended = n.w.now }
}
