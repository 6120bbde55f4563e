package explore

import (
	"slices"
	"time"

	"holdfast/internal/watchdog"
)

// Flapping is a long story: the holder of x died, a patient waiter waits, and
// leaders follow each other.
type Flapping struct {
	// Left is how much longer the leader that last heard the holder stays.
	Left time.Duration
	// Office is how long each later leader stays, Gap the time before it
	// without one.
	Office, Gap time.Duration
}

// Fine is the world of the long stories: T is 1 s, and time passes in steps of
// 25 ms.
func Fine() Config {
	c := Warm()
	c.Unit, c.Tick = 25*time.Millisecond, 100*time.Millisecond
	c.TTL = []time.Duration{time.Second, 24 * time.Hour}
	return c
}

// Flap tells the story until the waiter is granted, and returns how long that
// took as B7 counts: without the time without a leader, and without the time
// of leaders in office for less than max(T/8, 4 ticks). It gives up after limit
// of counted time: false.
func Flap(cfg Config, f Flapping, limit time.Duration) (counted time.Duration, ok bool) {
	w := newWorld(&cfg)
	office, counts := f.Left, true
	for counted < limit {
		for end := w.now + office; w.now < end; {
			w.step(0)
			if counts {
				counted += cfg.Unit
			}
			if w.holds(1) {
				return counted, true
			}
		}
		old := w.leader
		w.stepDown(w.node(old))
		for end := w.now + f.Gap; w.now < end; {
			w.now += cfg.Unit
		}
		w.elect(1-old, len(w.nodes[old].log))
		office, counts = f.Office, f.Office >= max(cfg.TTL[0]/8, 4*cfg.Tick)
		if !counts {
			counted += cfg.Unit // lest it never ends
		}
	}
	return counted, false
}

// step lets a unit pass in which nothing is late, except that client dead says
// nothing (-1: all live).
func (w *world) step(dead int) {
	w.pass()
	w.hush(dead)
	w.settle()
}

// hush loses what a client has sent.
func (w *world) hush(client int) {
	w.net = slices.DeleteFunc(slices.Clone(w.net), func(m message) bool { return m.client == client })
}

func (w *world) holds(client int) bool {
	v, ok := w.nodes[w.leader].st.Lock("x", 0)
	return ok && len(v.Holders) > 0 && v.Holders[0].Session == sessionOf(client)
}

// Stalled is a long story: the leader is stalled again and again, and the
// holder's session belongs to a script that sends a keepalive every T/4 and
// does not mind those that fail. (The Go client gives up when it hears nothing
// for T, so with it there would be nothing to lose in longer stalls.)
type Stalled struct {
	// Every is the time from the end of one stall to the next, Stall the
	// length of each, Times their number.
	Every, Stall time.Duration
	Times        int
}

// Stall tells the story and reports whether the session lived through it.
func Stall(cfg Config, s Stalled) bool {
	w := newWorld(&cfg)
	calls, next := watchdog.CallID(1000), w.now
	for range s.Times {
		for end := w.now + s.Every; w.now < end; {
			w.step(0)
			if w.now >= next {
				calls++
				next = w.now + cfg.TTL[0]/4
				w.receive(w.node(w.leader), message{client: 0, call: calls, kind: watchdog.CallKeepalive})
				w.hush(0)
				w.settle()
			}
		}
		w.node(w.leader).stalled = true
		for end := w.now + s.Stall; w.now < end; {
			w.pass()
			w.hush(0)
		}
		w.resume(w.node(w.leader))
		w.settle()
	}
	return w.expired == 0
}

// Patience tells the story of a holder that keeps x as long as it may, and
// returns how long the waiter waits with nothing late, at most limit.
func Patience(cfg Config, limit time.Duration) (waited time.Duration) {
	w := newWorld(&cfg)
	for start := w.now; !w.holds(1) && w.now-start < limit; waited = w.now - start {
		w.step(-1)
	}
	return waited
}
