package sim

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"holdfast/server/core"
)

// mostSearch is after how many steps a search for an order gives up: the check
// of that lock is undecided. It is a number of steps and no time, so that a seed
// has the same result everywhere.
const mostSearch = 300_000

// forever is when a call ends that was never answered.
const forever = time.Duration(math.MaxInt64)

// A tale is what clients saw of all locks.
type tale struct {
	grants map[uint64]*granting
	order  []uint64 // of grants, as the log has them
	asked  map[place]time.Duration
	looks  []look
	from   time.Duration // what was called before is not part of it
}

// A granting is one grant, from outside. Its beginning lies somewhere between
// the call and the first sign of it: the answer, or a member that applied it.
// Its end lies between the moment at which its client stopped believing in it,
// or may have, and the first sign of that. What nobody was told of may end from
// the call on.
type granting struct {
	number, token uint64
	lock          string
	slot          uint32
	shared        bool
	limit         int
	asked, told   time.Duration
	ends, ended   time.Duration // forever: there was none
	known         bool          // its client was told
	exempt        bool          // an operator frees it at once
}

// A look is a read that was answered, or a try that found the lock taken.
type look struct {
	lock     string
	from, to time.Duration
	busy     bool
	limit    int      // of holders, at which a try is refused
	holders  []uint64 // of a read
}

func newTale() tale {
	return tale{grants: map[uint64]*granting{}, asked: map[place]time.Duration{}}
}

// begins keeps that a client asked.
func (t *tale) begins(at place, now time.Duration) { t.asked[at] = now }

// logged keeps a grant that stands in the log: whether its client was told or
// not, it may have been there.
func (t *tale) logged(e core.Event, by place, limit int, now time.Duration) {
	asked := t.asked[by]
	t.order = append(t.order, e.Grant)
	t.grants[e.Grant] = &granting{
		number: e.Grant, token: e.Token, lock: e.Lock, slot: e.Slot, shared: e.Shared, limit: limit,
		asked: asked, told: now, ends: asked, ended: forever,
	}
}

// told keeps that a client was told of its grant. From now on it ends when the
// client says so, or stops believing in it.
func (t *tale) told(number uint64, now time.Duration, outside bool) {
	if g := t.grants[number]; g != nil && !g.known {
		g.known, g.told = true, min(g.told, now)
		if !outside && !g.exempt {
			g.ends = forever
		}
	}
}

// mayEnd keeps that a grant may end from an instant on.
func (t *tale) mayEnd(number uint64, at time.Duration) {
	if g := t.grants[number]; g != nil {
		g.ends = min(g.ends, at)
	}
}

// hasEnded keeps that a release was answered, or that a member applied the end.
func (t *tale) hasEnded(number uint64, at time.Duration) {
	if g := t.grants[number]; g != nil {
		g.ended = min(g.ended, at)
	}
}

// stopped is when the client stopped believing in a hold, at the latest now: if
// its process did not run at that moment, earlier. Its clock may have run at
// another rate since, so it is counted somewhat too early.
func (h *hold) stopped() time.Duration {
	w, c := h.s.c.w, h.s.c
	late := c.time() - h.s.m.Deadline()
	if late <= 0 {
		return w.now
	}
	return max(0, w.now-late*3/2)
}

// ends of a grant at its client: it gives it back, loses it, or dies.
func (j *judge) stops(h *hold) { j.tale.mayEnd(h.number, h.stopped()) }

// histories checks what clients saw of each lock.
func (j *judge) histories() {
	for _, l := range j.w.locks {
		ops := j.tale.operations(l.name)
		if len(ops) == 0 {
			continue
		}
		j.counts.Histories++
		j.counts.Operations += len(ops)
		switch verdict := search(ops); verdict {
		case porcupine.Unknown:
			j.counts.Undecided++
			j.w.say("undecided: the history of %s, %d operations", l.name, len(ops))
		case porcupine.Illegal:
			j.object(NotLinear, "no order fits what clients saw of %s (%d operations)", l.name, len(ops))
		}
	}
}

// operations are those of a lock.
func (t *tale) operations(lock string) (ops []porcupine.Operation) {
	for _, n := range t.order {
		g := t.grants[n]
		if g.lock != lock || g.asked < t.from {
			continue
		}
		ops = append(ops, porcupine.Operation{Input: grants{g}, Call: int64(g.asked), Return: int64(max(g.told, g.asked))})
		if g.ends != forever {
			ops = append(ops, porcupine.Operation{Input: ends{g}, Call: int64(g.ends), Return: int64(max(g.ended, g.ends))})
		}
	}
	for i := range t.looks {
		if l := &t.looks[i]; l.lock == lock && l.from >= t.from {
			ops = append(ops, porcupine.Operation{Input: l, Call: int64(l.from), Return: int64(l.to)})
		}
	}
	return ops
}

type (
	grants struct{ g *granting }
	ends   struct{ g *granting }
)

// search looks for an order in which one lock, that a child could keep, would
// have given all these answers.
func search(ops []porcupine.Operation) porcupine.CheckResult {
	steps := 0
	book, before := books(ops)
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			if steps++; steps > mostSearch {
				return false, state
			}
			next, ok := step(book, before, state.(string), input)
			return ok, next
		},
		Hash: func(state any) uint64 { return hashOf(state.(string)) },
	}
	fits := porcupine.CheckOperations(model, ops)
	switch {
	case fits:
		return porcupine.Ok
	case steps > mostSearch:
		return porcupine.Unknown
	}
	return porcupine.Illegal
}

// books are the grants of a history, and which one comes before which.
func books(ops []porcupine.Operation) (book map[uint64]*granting, before map[uint64]uint64) {
	book, before = map[uint64]*granting{}, map[uint64]uint64{}
	var numbers []uint64
	for _, o := range ops {
		if g, ok := o.Input.(grants); ok {
			book[g.g.number] = g.g
			numbers = append(numbers, g.g.number)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers[min(1, len(numbers)):] {
		before[n] = numbers[i]
	}
	return book, before
}

func hashOf(state string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(state) {
		h = (h ^ uint64(state[i])) * 1099511628211
	}
	return h
}

// step is the naive model. Its state is a string: the highest number so far, then
// the numbers of the holders, in order. Numbers rise, so that each grant comes
// right after the one before it.
func step(book map[uint64]*granting, before map[uint64]uint64, state string, input any) (next string, ok bool) {
	last, holders := unpack(state)
	switch x := input.(type) {
	case grants:
		g := x.g
		if before[g.number] != last || !g.fits(book, holders) {
			return state, false
		}
		return pack(g.number, append(holders, g.number)), true
	case ends:
		i := slices.Index(holders, x.g.number)
		if i < 0 {
			return state, false
		}
		return pack(last, slices.Delete(holders, i, i+1)), true
	case *look:
		if x.busy {
			return state, len(holders) >= max(1, x.limit)
		}
		return state, slices.Equal(holders, x.holders)
	}
	panic(fmt.Sprintf("sim: operation %T", input)) // a mistake of this package
}

// fits reports whether a grant may stand beside the holders.
func (g *granting) fits(book map[uint64]*granting, holders []uint64) bool {
	for _, n := range holders {
		o := book[n]
		beside := g.shared && o.shared && g.token == o.token
		if g.limit > 1 {
			beside = g.slot != o.slot
		}
		if !beside {
			return false
		}
	}
	return len(holders) < g.limit || g.shared
}

func pack(last uint64, holders []uint64) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+8*len(holders)), last)
	for _, n := range holders {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return string(b)
}

func unpack(state string) (last uint64, holders []uint64) {
	b := []byte(state)
	if len(b) == 0 {
		return 0, nil
	}
	last = binary.BigEndian.Uint64(b)
	for b = b[8:]; len(b) > 0; b = b[8:] {
		holders = append(holders, binary.BigEndian.Uint64(b))
	}
	return last, holders
}
