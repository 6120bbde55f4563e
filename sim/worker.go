package sim

import (
	"slices"
	"strconv"
	"time"

	"holdfast/fence"
	"holdfast/internal/planted"
	"holdfast/internal/watchdog"
	"holdfast/server/core"
)

// A want is one acquire of a client.
type want struct {
	s       *session
	request watchdog.Request
	lock    *lockPlan
	shared  bool
	try     bool
	value   []byte        // published with the grant
	asked   time.Duration // true time
	floor   uint64        // the highest number that any client had been told before
	done    bool
}

// A hold is a grant in the hands of a client's worker.
type hold struct {
	s      *session
	lock   *lockPlan
	grant  string
	number uint64
	token  fence.Token
	base   int // version of the resource that it knows
	armed  bool
	writes int // still to be done
	over   bool
}

// work begins one piece of work after a pause.
func (c *client) work() {
	c.in(between(c.rng, 0, c.w.TTL), func() {
		if c.w.calm {
			return
		}
		if c.current == nil {
			c.open()
			c.work()
			return
		}
		c.current.acquire()
	})
}

// acquire asks for a lock.
func (s *session) acquire() {
	c := s.c
	l := c.w.locks[c.rng.IntN(len(c.w.locks))]
	q := &want{s: s, lock: l, asked: c.w.now, floor: c.w.judge.highest, try: c.rng.IntN(5) == 0}
	q.shared = l.shares && c.rng.IntN(2) == 0
	if c.rng.IntN(4) == 0 {
		q.value = []byte(c.name)
	}
	id, actions, err := s.m.Begin(s.moment(), q.try)
	if err != nil {
		s.perform(actions, nil) // it is over, and may say so here first
		c.work()
		return
	}
	q.request = id
	s.wants[id] = q
	c.w.judge.tale.begins(place{s.id, core.Request(id)}, c.w.now)
	c.w.judge.counts.Acquires++
	s.perform(actions, nil)
	if c.rng.IntN(6) == 0 { // its owner is impatient
		patience := pick(c.rng, 2*c.w.TTL, 10*time.Millisecond) // often just while the grant is on its way
		c.in(between(c.rng, 0, patience), func() {
			if !q.done && !s.over {
				s.perform(s.m.Abandon(s.moment(), id), nil)
				q.end(false)
			}
		})
	}
}

// command is the acquire as the server gets it.
func (q *want) command(id core.SessionID, act watchdog.Action) core.Acquire {
	l := q.lock
	return core.Acquire{
		Session: id, Request: core.Request(act.Request), Lock: l.name, Shared: q.shared, Try: act.Try, Limit: l.limit,
		LockDelay: l.delay, Value: q.value, OncePer: l.oncePer, RetryFailed: l.retryFailed, MaxHold: l.maxHold,
	}
}

// end goes on to the next piece of work.
func (q *want) end(granted bool) {
	if q.done {
		return
	}
	q.done = true
	if !granted {
		q.s.c.work()
	}
}

func (s *session) ended(act watchdog.Action) {
	q := s.wants[act.Request]
	if q == nil {
		return
	}
	if act.Kind != watchdog.GaveUp { // of one that it gave up, the end is still to come
		delete(s.wants, act.Request)
	}
	q.end(false)
}

// granted begins to work under a grant: arm before you read.
func (s *session) granted(act watchdog.Action, a *answer) {
	q := s.wants[act.Request]
	delete(s.wants, act.Request)
	g := a.result.Grant
	h := &hold{s: s, lock: q.lock, grant: act.Grant, number: g.Number, writes: 1 + s.c.rng.IntN(4)}
	mode := fence.Exclusive
	if g.Shared {
		mode = fence.Shared
	}
	h.token = fence.Token{Domain: fence.Domain(a.domain), Incarnation: fence.Incarnation(g.Incarnation), Lock: g.Lock, Slot: g.Slot, Mode: mode, Number: g.Generation}
	s.holds[act.Grant] = h
	q.end(true)
	s.c.say("holds %s by %d, token %d", h.lock.name, h.number, h.token.Number)
	s.c.w.judge.granted(h, q)
	h.arm()
}

// believes reports whether the client's clock says that it holds.
func (h *hold) believes() bool {
	if h.over || h.s.over {
		return false
	}
	st := h.s.m.State(h.s.c.time(), h.grant)
	return st == watchdog.Held || st == watchdog.Jeopardy
}

// resource is what the lock protects, by slot.
func (h *hold) resource() *resource { return h.lock.slots[h.token.Slot] }

// arm raises the mark of the gate, and reads.
func (h *hold) arm() {
	if planted.On("E3-arm-after-read") {
		h.readAndArm()
		return
	}
	h.at(armings, func(r *resource) answer { return r.arm(h) }, func(a answer) {
		if a.retry { // refused
			h.release(true)
			return
		}
		h.base, h.armed = a.version, true
		h.next()
	}, h.arm)
}

// at lets something happen at the resource, and then here. The way there and
// back takes time, or is lost; then the worker does not know what became of it,
// and does what unknown says if it still holds.
func (h *hold) at(what exchange, there func(*resource) answer, here func(answer), unknown func()) {
	c, r := h.s.c, h.resource()
	answered := false
	done := c.answered(func(a answer) {
		if !answered && !h.over {
			answered = true
			here(a)
		}
	})
	arrived := false
	c.w.net.carry(what, &c.process, &r.process, func() {
		if arrived { // a connection delivers once
			return
		}
		arrived = true
		r.enter(what, func() {
			a := there(r)
			c.w.net.carry(what+1, &r.process, &c.process, func() { done(a) }, nil)
		})
	}, nil)
	c.in(c.w.TTL/2, func() {
		if !answered && !h.over {
			answered = true
			if h.believes() {
				unknown()
			} else {
				h.release(true)
			}
		}
	})
}

// next thinks, looks whether it still holds, and writes. Between the look and
// the write lies what no client can see: a pause.
func (h *hold) next() {
	c := h.s.c
	most := c.w.TTL / 4
	if c.w.calm { // those behind it are to be served soon
		h.writes, most = min(h.writes, 1), 2*time.Millisecond
	}
	if h.writes == 0 {
		h.release(c.rng.IntN(4) == 0)
		return
	}
	h.writes--
	if c.rng.IntN(5) == 0 {
		h.publish()
	}
	c.in(between(c.rng, time.Millisecond, most), func() {
		if h.over || !h.believes() {
			return
		}
		if long := takeStop(&c.w.stepStops); long > 0 {
			c.w.stop(StopInStep, &c.process, long, false)
		}
		c.in(between(c.rng, time.Microsecond, time.Millisecond), func() {
			if h.over {
				return
			}
			base := h.base
			h.at(writes, func(r *resource) answer { return r.write(h, base) }, func(a answer) {
				if a.retry {
					h.release(true)
					return
				}
				h.base = a.version
				h.next()
			}, func() { h.release(true) }) // its write may still land: only a newer token keeps it out
		})
	})
}

// lose is the end of a hold that its owner did not want.
func (h *hold) lose(cause watchdog.Cause) {
	if h.over {
		return
	}
	h.s.c.say("lost %s by %d: %v", h.lock.name, h.number, cause)
	h.s.c.w.judge.lost(h, cause)
	h.finish()
	if !h.s.over { // taken back: it acknowledges
		h.s.perform(h.s.m.Release(h.s.moment(), h.grant, true), nil)
	}
}

// release gives the grant back.
func (h *hold) release(failed bool) {
	if h.over {
		return
	}
	if planted.On("E2-mark-falls") {
		h.resource().mark = fence.Token{}
	}
	h.s.c.w.judge.stops(h)
	h.finish()
	if !h.s.over {
		h.s.perform(h.s.m.Release(h.s.moment(), h.grant, failed), nil)
	}
}

func (h *hold) finish() {
	h.over = true
	delete(h.s.holds, h.grant)
	h.s.c.work()
}

func (s *session) sortedHolds() []*hold {
	var out []*hold
	for _, h := range s.holds {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b *hold) int { return int(a.number) - int(b.number) })
	return out
}

func (s *session) sortedWants() []*want {
	var out []*want
	for _, q := range s.wants {
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b *want) int { return int(a.request.Lane) - int(b.request.Lane) })
	return out
}

func numberOf(grant string) uint64 {
	n, _ := strconv.ParseUint(grant, 10, 64)
	return n
}
