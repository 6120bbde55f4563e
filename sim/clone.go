package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"holdfast/internal/watchdog"
)

// clone makes two clients of one: a snapshot of its machine was started beside
// it. Both have one memory, and act as the same session. The copy's connections
// are broken: what was under way there gets no answer. After a while somebody
// notices, and ends both: what one acquired the other does not know, and would
// keep alive for ever.
func (w *world) clone(c *client, long time.Duration) {
	if !c.up || c.still > 0 || len(w.clients) > 100 {
		return
	}
	w.clones++
	d := &client{id: c.id + 1000*w.clones, rng: stream(w.Seed, fmt.Sprint("clone", w.clones)), looks: stream(w.Seed, fmt.Sprint("clone looks", w.clones)), guess: c.guess}
	d.process = process{w: w, name: fmt.Sprintf("%s, clone %d", c.name, w.clones), counts: true, clock: c.clock}
	d.process.start()
	d.secrets = c.secrets
	w.inject(Clone, "%s", c.name)
	for _, s := range c.sessions {
		if !s.over {
			d.copySession(s, c.current == s)
		}
	}
	w.clients = append(w.clients, d)
	d.work()
	w.lasts(long, func() {
		d.crash()
		if c.crash(); c.id < 1000 {
			w.after(0, func() {
				if !c.up {
					c.boot()
				}
			})
		}
		w.clients = slices.DeleteFunc(slices.Clone(w.clients), func(o *client) bool { return o == d })
	})
}

// copySession gives a clone the session of its original.
func (c *client) copySession(from *session, current bool) {
	from.cloned = true
	s := &session{
		c: c, id: from.id, m: from.m.Clone(), name: from.name, cloned: true,
		calls: map[watchdog.CallID]*call{}, wants: map[watchdog.Request]*want{}, holds: map[string]*hold{},
	}
	c.sessions = append(c.sessions, s)
	if current {
		c.current = s
	}
	for _, q := range from.sortedWants() {
		own := *q
		own.s = s
		s.wants[own.request] = &own
	}
	for _, h := range from.sortedHolds() {
		own := *h
		own.s = s
		c.w.judge.breaks(own.number)
		s.holds[own.grant] = &own
		c.w.judge.meet(CloneHeld)
		if own.armed {
			own.next()
		} else {
			own.arm()
		}
	}
	for _, id := range slices.Sorted(maps.Keys(from.calls)) {
		k := *from.calls[id]
		s.calls[id] = &k
		c.in(between(c.rng, 0, c.w.TTL/2), func() { s.settle(&k, watchdog.Reply{}, nil) })
	}
	s.setTimer()
}
