package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"holdfast/fence"
	"holdfast/internal/planted"
)

// A lockPlan is one lock of a world: how it is asked for, and what it protects.
type lockPlan struct {
	name        string
	shares      bool
	limit       uint32
	delay       time.Duration
	oncePer     time.Duration
	retryFailed bool
	maxHold     time.Duration
	slots       []*resource
}

// drawLock draws what kind of lock one is.
func (w *world) drawLock(i int, r *rand.Rand) *lockPlan {
	l := &lockPlan{name: fmt.Sprint("lock/", i)}
	switch r.IntN(8) {
	case 0, 1:
		l.shares = true
	case 2:
		l.limit = uint32(2 + r.IntN(3))
	case 3:
		l.oncePer, l.retryFailed = w.TTL, r.IntN(2) == 0
	}
	if r.IntN(4) == 0 {
		l.delay = between(r, 100*time.Millisecond, 2*w.TTL)
	}
	if r.IntN(4) == 0 {
		l.maxHold = between(r, w.TTL/2, 3*w.TTL)
	}
	for slot := range max(l.limit, 1) {
		x := &resource{lock: l, slot: slot}
		x.process = process{w: w, name: fmt.Sprintf("%s.%d", l.name, slot), up: true}
		l.slots = append(l.slots, x)
		w.stores = append(w.stores, x)
	}
	return l
}

// A resource is what a lock protects, with its gate: the rules are package
// fence's, and check, write and raise are one step.
type resource struct {
	process
	lock    *lockPlan
	slot    uint32
	mark    fence.Token
	version int
	writes  []written
	// held: somebody stands still inside the guarded step, and all others wait
	// at the door.
	held    bool
	waiting []func()
}

// written is one accepted write.
type written struct {
	token  fence.Token
	client int
}

// enter does something at the resource: at once, unless somebody stands still
// in the guarded step. What a fault holds up waits before the step, or inside
// it, where it holds the door.
func (r *resource) enter(what exchange, do func()) {
	if r.held {
		r.waiting = append(r.waiting, do)
		return
	}
	long := time.Duration(0)
	if what == writes && !r.w.calm {
		long = takeStop(&r.w.stepHolds)
	}
	switch {
	case long == 0:
		do()
	case r.w.net.rng.IntN(2) == 0:
		r.w.inject(HoldWrite, "before %s for %v", r.name, long)
		r.w.after(long, func() { r.enter(anyExchange, do) })
	default:
		r.w.inject(HoldWrite, "inside %s for %v", r.name, long)
		r.held = true
		r.w.lasts(long, func() {
			do()
			r.held = false
			waiting := r.waiting
			r.waiting = nil
			for _, next := range waiting {
				r.enter(anyExchange, next)
			}
		})
	}
}

// offer shows a token to the gate.
func (r *resource) offer(t fence.Token, use fence.Use) error {
	g := fence.Guard{Gate: r.name, Lock: r.lock.name, Slots: uint32(len(r.lock.slots)), Shared: r.lock.shares}
	if planted.On("E2-no-gate") {
		r.mark = t
		return nil
	}
	v, err := fence.Judge(g, domain, r.mark, t, use)
	if v == fence.Raise {
		r.mark = t
	}
	return err
}

// arm raises the mark for a holder, and reads.
func (r *resource) arm(h *hold) answer {
	if planted.On("E3-not-armed") {
		return answer{version: r.version}
	}
	if err := r.offer(h.token, fence.ToArm); err != nil {
		r.w.say("%s: arm refused: %v", r.name, err)
		r.w.judge.refused(r, h)
		return answer{retry: true}
	}
	r.w.judge.armedFor(r, h)
	return answer{version: r.version}
}

// write is the guarded step, decided on when the resource had the version base.
// A shared holder only looks.
func (r *resource) write(h *hold, base int) answer {
	if err := r.offer(h.token, fence.ToWrite); err != nil {
		r.w.say("%s: write refused: %v", r.name, err)
		r.w.judge.refused(r, h)
		return answer{retry: true}
	}
	if planted.On("E1-check-then-write") {
		return r.writeLater(h, base)
	}
	if h.token.Mode == fence.Exclusive {
		r.w.judge.wrote(r, h, base)
		r.writes = append(r.writes, written{h.token, h.s.c.id})
		r.version++
		r.w.say("%s: version %d by token %d of %s", r.name, r.version, h.token.Number, h.s.c.name)
	}
	return answer{version: r.version}
}
