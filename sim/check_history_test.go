package sim

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// history builds operations by hand; times are in milliseconds.
type history struct {
	grants map[uint64]*granting
	ops    []porcupine.Operation
	limit  int
}

func newHistory(limit int) *history { return &history{grants: map[uint64]*granting{}, limit: limit} }

func (h *history) add(input any, from, to int) *history {
	until := time.Duration(to) * time.Millisecond
	if to < 0 {
		until = forever
	}
	h.ops = append(h.ops, porcupine.Operation{Input: input, Call: int64(time.Duration(from) * time.Millisecond), Return: int64(until)})
	return h
}

// grant is one that was asked for and told at these times; a negative one is never.
func (h *history) grant(n uint64, from, to int, change ...func(*granting)) *history {
	g := &granting{number: n, token: n, limit: h.limit}
	for _, c := range change {
		c(g)
	}
	h.grants[n] = g
	return h.add(grants{g}, from, to)
}

func (h *history) end(n uint64, from, to int) *history { return h.add(ends{h.grants[n]}, from, to) }

func (h *history) read(from, to int, holders ...uint64) *history {
	return h.add(&look{holders: holders}, from, to)
}

func (h *history) busy(from, to int) *history {
	return h.add(&look{busy: true, limit: h.limit}, from, to)
}

func sharing(token uint64) func(*granting) {
	return func(g *granting) { g.shared, g.token = true, token }
}

func atSlot(n uint32) func(*granting) { return func(g *granting) { g.slot = n } }

// What one lock can have done is accepted, what it cannot is not.
func TestSearch(t *testing.T) {
	for name, c := range map[string]struct {
		h    *history
		want porcupine.CheckResult
	}{
		"one after the other":            {newHistory(1).grant(1, 0, 1).end(1, 5, 6).grant(2, 0, 6).end(2, 8, 9), porcupine.Ok},
		"a grant before the end":         {newHistory(1).grant(1, 0, 1).end(1, 5, 6).grant(2, 2, 4), porcupine.Illegal},
		"no end at all":                  {newHistory(1).grant(1, 0, 1).grant(2, 2, 4), porcupine.Illegal},
		"an end that nobody confirmed":   {newHistory(1).grant(1, 0, 1).end(1, 2, -1).grant(2, 3, 4), porcupine.Ok},
		"a grant that nobody heard of":   {newHistory(1).grant(1, 0, -1).end(1, 0, -1).grant(2, 3, 4), porcupine.Ok},
		"a read of the holder":           {newHistory(1).grant(1, 0, 1).read(2, 3, 1).end(1, 5, 6).read(7, 8), porcupine.Ok},
		"a stale read of a holder":       {newHistory(1).grant(1, 0, 1).end(1, 5, 6).read(7, 8, 1), porcupine.Illegal},
		"a stale read of none":           {newHistory(1).grant(1, 0, 1).read(2, 3).end(1, 5, 6), porcupine.Illegal},
		"a read that goes back":          {newHistory(1).grant(1, 0, 10).read(2, 3, 1).read(4, 5).end(1, 11, 12), porcupine.Illegal},
		"a read at the same time":        {newHistory(1).grant(1, 0, 10).read(2, 3).read(4, 5, 1).end(1, 11, 12), porcupine.Ok},
		"refused while held":             {newHistory(1).grant(1, 0, 1).busy(2, 3).end(1, 5, 6), porcupine.Ok},
		"refused while free":             {newHistory(1).grant(1, 0, 1).end(1, 5, 6).busy(7, 8), porcupine.Illegal},
		"readers of one generation":      {newHistory(1).grant(1, 0, 1, sharing(1)).grant(2, 0, 1, sharing(1)).end(1, 5, 6), porcupine.Ok},
		"readers of two generations":     {newHistory(1).grant(1, 0, 1, sharing(1)).grant(2, 0, 1, sharing(2)).end(1, 5, 6), porcupine.Illegal},
		"a writer beside a reader":       {newHistory(1).grant(1, 0, 1, sharing(1)).grant(2, 2, 3).end(1, 5, 6), porcupine.Illegal},
		"two permits":                    {newHistory(2).grant(1, 0, 1).grant(2, 0, 1, atSlot(1)).read(2, 3, 1, 2), porcupine.Ok},
		"one permit twice":               {newHistory(2).grant(1, 0, 1).grant(2, 0, 1).read(2, 3, 1, 2), porcupine.Illegal},
		"refused with a permit left":     {newHistory(2).grant(1, 0, 1).busy(2, 3), porcupine.Illegal},
		"numbers that fall":              {newHistory(1).grant(2, 0, 1).end(2, 2, 3).grant(1, 4, 5), porcupine.Illegal},
		"ended before it began":          {newHistory(1).grant(1, 5, 6).end(1, 0, 1), porcupine.Illegal},
		"a lost grant taken by somebody": {newHistory(1).grant(1, 0, 1).grant(2, 0, -1).end(2, 0, -1).end(1, 4, -1).grant(3, 2, 6), porcupine.Ok},
	} {
		if got := search(c.h.ops); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A search that takes too long is undecided, and not passed.
func TestSearchGivesUp(t *testing.T) {
	h := newHistory(1)
	for n := uint64(1); n <= 200; n++ { // all at once, and a read that fits nowhere
		h.grant(n, 0, 1000, sharing(1)).end(n, 0, 1000)
	}
	h.read(0, 1000, 1, 3, 5, 7, 9, 300)
	if got := search(h.ops); got != porcupine.Unknown {
		t.Errorf("%s, want %s", got, porcupine.Unknown)
	}
}

// What is kept of a world becomes the operations that the search looks at.
func TestTale(t *testing.T) {
	tale := newTale()
	by := place{session: 1, request: req(1)}
	tale.begins(by, 1)
	s := newScript()
	e := got(1, 1, "plain", 7).events[0]
	tale.logged(e, by, 1, 5)
	if g := tale.grants[7]; g.asked != 1 || g.told != 5 || g.ends != 1 || g.ended != forever {
		t.Errorf("a grant that nobody was told of: %+v", g)
	}
	tale.told(7, 6, false)
	if g := tale.grants[7]; g.told != 5 || g.ends != forever {
		t.Errorf("a grant that its client was told of: %+v", g)
	}
	tale.mayEnd(7, 9)
	tale.hasEnded(7, 12)
	if g := tale.grants[7]; g.ends != 9 || g.ended != 12 {
		t.Errorf("a grant that ended: %+v", g)
	}
	if n := len(tale.operations("plain")); n != 2 {
		t.Errorf("%d operations, want a beginning and an end", n)
	}
	tale.from = 2
	if n := len(tale.operations("plain")); n != 0 {
		t.Errorf("%d operations of before the service began anew", n)
	}
	if s.w.judge.histories(); s.w.judge.counts.Histories != 0 {
		t.Errorf("histories of nothing: %+v", s.w.judge.counts)
	}
}
