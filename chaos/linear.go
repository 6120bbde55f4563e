package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A lock, as naive as can be: free, or held under a number. When a grant ended
// that its client did not release is not known: that end may take effect at any
// instant from the client's deadline on.
//
// Whether a try was granted whose client gave up, or was killed, is not known
// either. It takes part only if somebody read the number that nobody was told:
// otherwise no order needs it, and none is forbidden by it, since it may never
// have taken effect.
type lockState struct {
	held   bool
	number uint64 // of the holder
	last   uint64 // the highest number that was granted
}

// A step is one operation on a lock.
type step struct {
	what   string // acquire, end, get
	number uint64 // get: 0 says that nobody held it
	// acquire: the next lower number of which anything is known. All of these
	// take effect, and in their order; saying so spares the search from trying
	// others.
	after uint64
}

func apply(s lockState, in step) (bool, lockState) {
	switch in.what {
	case "acquire":
		return !s.held && in.after == s.last, lockState{held: true, number: in.number, last: in.number}
	case "end":
		return s.held && s.number == in.number, lockState{last: s.last}
	default:
		return s.held == (in.number != 0) && (!s.held || s.number == in.number), s
	}
}

var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		return apply(state.(lockState), input.(step))
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(step)
		return fmt.Sprintf("%s %d", in.what, in.number)
	},
}

// operations are those on one lock. Instants have no error: the clients share a
// clock.
func (h *history) operations(lock string, j *judge) []porcupine.Operation {
	var ops []porcupine.Operation
	add := func(in step, from, to int64) { // each on a line of its own: they overlap
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: in, Call: from, Return: to})
	}
	told := map[uint64]bool{0: true}
	var unknown []*hold
	for _, o := range h.holds {
		switch {
		case o.lock != lock:
		case o.granted == 0:
			unknown = append(unknown, o)
		default:
			told[o.number] = true
			add(step{what: "acquire", number: o.number}, o.asked, o.granted)
			from, to := o.until, int64(math.MaxInt64)
			if o.release != 0 {
				from = min(o.until, o.release)
				if o.result == resultDone {
					to = o.released
				}
			}
			add(step{what: "end", number: o.number}, max(from, o.asked), to)
		}
	}
	seen := map[uint64]int64{} // number that nobody was told → when it was first read
	for _, g := range h.reads {
		if g.lock != lock || g.ended == 0 {
			continue
		}
		add(step{what: "get", number: g.number}, g.began, g.ended)
		if at, was := seen[g.number]; !told[g.number] && (!was || g.ended < at) {
			seen[g.number] = g.ended
		}
	}
	for number, until := range seen {
		asked := until
		for _, o := range unknown {
			asked = min(asked, o.asked)
		}
		if asked == until {
			j.object("linearizable", "%s: number %d was read, and nobody can have been granted it", lock, number)
		}
		add(step{what: "acquire", number: number}, asked, until)
		add(step{what: "end", number: number}, asked, math.MaxInt64)
	}
	inOrder(ops)
	return ops
}

// inOrder tells each acquire which one is before it.
func inOrder(ops []porcupine.Operation) {
	var all []*porcupine.Operation
	for i := range ops {
		if ops[i].Input.(step).what == "acquire" {
			all = append(all, &ops[i])
		}
	}
	number := func(o *porcupine.Operation) uint64 { return o.Input.(step).number }
	slices.SortFunc(all, func(a, b *porcupine.Operation) int { return cmp.Compare(number(a), number(b)) })
	for i, o := range all[min(1, len(all)):] {
		in := o.Input.(step)
		in.after = number(all[i])
		o.Input = in
	}
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
		ops := h.operations(lock, j)
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
