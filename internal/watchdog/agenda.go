package watchdog

import (
	"cmp"
	"slices"
)

// An agenda is a set of small numbers, lanes or slots, each with the instant
// at which it is due. It knows the one that is due first, of several the
// lowest number, however many there are: a binary heap, so that a change costs
// the logarithm of its size. How the heap is arranged reaches no output.
type agenda struct {
	heap  []due
	place []int // by number: 1 + its index in heap; 0 if it is not in
}

type due struct {
	at Instant
	n  int
}

func (d due) compare(e due) int {
	return cmp.Or(cmp.Compare(d.at, e.at), cmp.Compare(d.n, e.n))
}

func (a *agenda) clone() agenda {
	return agenda{heap: slices.Clone(a.heap), place: slices.Clone(a.place)}
}

// first returns what is due first; false if nothing is.
func (a *agenda) first() (due, bool) {
	if len(a.heap) == 0 {
		return due{}, false
	}
	return a.heap[0], true
}

// set puts n in, or moves it to another instant.
func (a *agenda) set(n int, at Instant) {
	for len(a.place) <= n {
		a.place = append(a.place, 0)
	}
	i := a.place[n] - 1
	if i < 0 {
		i = len(a.heap)
		a.heap = append(a.heap, due{})
	}
	a.put(i, due{at: at, n: n})
	a.fix(i)
}

// remove takes n out, if it is in.
func (a *agenda) remove(n int) {
	if n >= len(a.place) || a.place[n] == 0 {
		return
	}
	i, last := a.place[n]-1, len(a.heap)-1
	moved := a.heap[last]
	a.heap, a.place[n] = a.heap[:last], 0
	if i < last {
		a.put(i, moved)
		a.fix(i)
	}
}

func (a *agenda) put(i int, d due) {
	a.heap[i], a.place[d.n] = d, i+1
}

// fix moves the entry at index i, the only one out of order, to its place.
func (a *agenda) fix(i int) {
	d := a.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if d.compare(a.heap[parent]) >= 0 {
			break
		}
		a.put(i, a.heap[parent])
		i = parent
	}
	for {
		child := 2*i + 1
		if child+1 < len(a.heap) && a.heap[child+1].compare(a.heap[child]) < 0 {
			child++
		}
		if child >= len(a.heap) || d.compare(a.heap[child]) <= 0 {
			break
		}
		a.put(i, a.heap[child])
		i = child
	}
	a.put(i, d)
}
