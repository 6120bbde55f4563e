package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A lock, as naive as can be: free, or held under a number. What a client does
// not know, whether its try was granted, when its grant ended, is an operation
// that may take effect at any instant from then on.
type lockState struct {
	held   bool
	number uint64 // of the holder; 0 if nobody knows it
	try    string // the holder's try
	last   uint64 // the highest number that was granted and is known
}

// A step is one operation on a lock.
type step struct {
	what   string // acquire, end, get
	try    string
	number uint64 // acquire: 0 if it is not known whether it was granted
}

func apply(s lockState, in step) (bool, lockState) {
	switch in.what {
	case "acquire":
		if in.number == 0 {
			if s.held {
				return true, s // it was never granted
			}
			return true, lockState{held: true, try: in.try, last: s.last}
		}
		if s.held || in.number <= s.last {
			return false, s
		}
		return true, lockState{held: true, number: in.number, try: in.try, last: in.number}
	case "end":
		if s.held && s.try == in.try {
			return true, lockState{last: s.last}
		}
		return in.number == 0, s // what was never granted has no end
	default:
		if !s.held {
			return in.number == 0, s
		}
		return s.number == in.number || s.number == 0 && in.number > s.last, s
	}
}

var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		return apply(state.(lockState), input.(step))
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(step)
		return fmt.Sprintf("%s %s %d", in.what, in.try, in.number)
	},
}

// operations are those on one lock. Instants with an error of nothing: the
// clients share a clock.
func (h *history) operations(lock string) []porcupine.Operation {
	var ops []porcupine.Operation
	add := func(in step, from, to int64) {
		ops = append(ops, porcupine.Operation{Input: in, Call: from, Return: to})
	}
	for _, o := range h.holds {
		switch {
		case o.lock != lock:
		case o.granted == 0:
			add(step{"acquire", o.op, 0}, o.asked, math.MaxInt64)
			add(step{"end", o.op, 0}, o.asked, math.MaxInt64)
		default:
			add(step{"acquire", o.op, o.number}, o.asked, o.granted)
			from, to := o.until, int64(math.MaxInt64)
			if o.release != 0 {
				from = min(o.until, o.release)
				if o.result == resultDone {
					to = o.released
				}
			}
			add(step{"end", o.op, o.number}, max(from, o.asked), to)
		}
	}
	for _, g := range h.reads {
		if g.lock == lock && g.ended != 0 {
			add(step{"get", "", g.number}, g.began, g.ended)
		}
	}
	for i := range ops { // each on a line of its own: they overlap
		ops[i].ClientId = i
	}
	return ops
}

// linearizable checks each lock, for so long at most.
func (h *history) linearizable(j *judge, patience time.Duration) (decided int) {
	locks := map[string]bool{}
	for _, o := range h.holds {
		locks[o.lock] = true
	}
	var names []string
	for lock := range locks {
		names = append(names, lock)
	}
	slices.Sort(names)
	for _, lock := range names {
		ops := h.operations(lock)
		switch porcupine.CheckOperationsTimeout(lockModel, ops, patience) {
		case porcupine.Ok:
			decided++
		case porcupine.Illegal:
			decided++
			j.object("linearizable", "%s: no order of its %d operations is one of a lock", lock, len(ops))
		default:
			j.undecided = append(j.undecided, fmt.Sprintf("%s: %d operations, not decided in %v", lock, len(ops), patience))
		}
	}
	return decided
}
