package lease

import "holdfast/server/core"

// A timer is one entry of a timerHeap: a clock value and what is due then.
// Exactly one of s, g and c is set.
type timer struct {
	at  core.Clock
	pos int // 1-based place in its heap; 0 while in none
	in  *timerHeap
	s   *session
	g   *grant
	c   *closing
}

// before is a strict order over all timers of one heap, so that what leaves
// the heap does not depend on the order in which it was filled.
func (t *timer) before(o *timer) bool {
	if t.at != o.at {
		return t.at < o.at
	}
	switch {
	case t.s != nil && o.s != nil:
		return t.s.id < o.s.id
	case t.g != nil && o.g != nil:
		return t.g.number < o.g.number
	case t.c != nil && o.c != nil:
		return t.c.lock < o.c.lock
	}
	return t.g != nil // grants before locks
}

// A timerHeap is a binary heap of timers, earliest first. A timer knows its
// place, so moving and removing one costs the logarithm of the size.
type timerHeap struct{ list []*timer }

func (h *timerHeap) top() *timer {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// set puts t into h at clock at, taking it out of the heap where it is.
func (h *timerHeap) set(t *timer, at core.Clock) {
	if t.in != h {
		t.drop()
		t.in = h
		h.list = append(h.list, t)
		t.pos = len(h.list)
	}
	t.at = at
	h.down(h.up(t.pos - 1))
}

// drop takes t out of the heap in which it is, if any.
func (t *timer) drop() {
	h := t.in
	if h == nil {
		return
	}
	i, last := t.pos-1, len(h.list)-1
	h.swap(i, last)
	h.list[last] = nil
	h.list = h.list[:last]
	t.pos, t.in = 0, nil
	if i < last {
		h.down(h.up(i))
	}
}

func (h *timerHeap) swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].pos, h.list[j].pos = i+1, j+1
}

func (h *timerHeap) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.list[i].before(h.list[parent]) {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	return i
}

func (h *timerHeap) down(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h.list) && h.list[child].before(h.list[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
