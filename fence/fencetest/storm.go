package fencetest

import (
	"fmt"
	"sync"

	"holdfast/fence"
)

// storm is many callers with tokens old and new at once. What the ledger shows
// afterwards must be what a gate that does one thing at a time could have done.
type storm struct {
	*world
	mu sync.Mutex
	// accepted and refused are the values of writes by their answer.
	accepted map[string]fence.Token
	refused  map[string]error
	// cuts are instants at which Arm had returned.
	cuts []cut
	// best is the highest token per slot that the gate let in.
	best map[uint32]fence.Token
}

// cut says that after the first entries of the ledger no token below t may
// stand in its slot.
type cut struct {
	t       fence.Token
	entries int
}

const (
	stormWorkers = 8
	stormCalls   = 12
	stormSlots   = 2
)

func checkStorm(w *world) {
	s := &storm{world: w, accepted: map[string]fence.Token{}, refused: map[string]error{}, best: map[uint32]fence.Token{}}
	var calls []func()
	for worker := range stormWorkers {
		g := w.open(Options{Slots: stormSlots})
		calls = append(calls, func() { s.work(g, worker) })
	}
	together(calls...)
	s.verify()
	for slot, t := range s.best {
		if mark := w.show(w.open(Options{Slots: stormSlots})).Mark(domainA, slot); mark != t {
			w.Fatalf("slot %d: the mark is %s, but the highest token that was let in is %s", slot, mark, t)
		}
	}
}

// work offers tokens that rise with time but are often behind those of others.
func (s *storm) work(g Gate, worker int) {
	seed := uint64(worker)*0x9e3779b97f4a7c15 + 1
	next := func(n uint64) uint64 { // xorshift: the same calls in every run
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return seed % n
	}
	for i := range stormCalls {
		t := but(exclusive(1+uint64(i)/2+next(5)), func(t *fence.Token) { t.Slot = uint32(next(stormSlots)) })
		if next(3) == 0 {
			s.armed(g, t, g.Arm(s.ctx, t))
			continue
		}
		value := fmt.Sprintf("%d.%d", worker, i)
		err := g.Write(s.ctx, Write{Token: t, Value: value})
		s.mu.Lock()
		if err == nil {
			s.accepted[value] = t
			s.letIn(t)
		} else {
			s.refused[value] = err
		}
		s.mu.Unlock()
	}
}

func (s *storm) armed(g Gate, t fence.Token, err error) {
	if err != nil {
		return
	}
	entries := len(s.resource.Ledger(s))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts = append(s.cuts, cut{t, entries})
	s.letIn(t)
}

// letIn is called with mu held.
func (s *storm) letIn(t fence.Token) {
	if t.Number > s.best[t.Slot].Number {
		s.best[t.Slot] = t
	}
}

func (s *storm) verify() {
	s.Helper()
	ledger := s.resource.Ledger(s)
	last := map[uint32]fence.Token{}
	seen := map[string]bool{}
	for i, e := range ledger {
		if e.Token.Number < last[e.Token.Slot].Number {
			s.Fatalf("entry %d of the ledger has token %s after %s of the same slot", i, e.Token, last[e.Token.Slot])
		}
		last[e.Token.Slot] = e.Token
		if t, ok := s.accepted[e.Value]; !ok || t != e.Token || seen[e.Value] {
			s.Fatalf("entry %d of the ledger is %v (before: %v), and its write was answered with %v", i, e, seen[e.Value], s.refused[e.Value])
		}
		seen[e.Value] = true
	}
	if len(seen) != len(s.accepted) {
		s.Fatalf("%d writes were accepted, and %d are in the ledger", len(s.accepted), len(seen))
	}
	for _, c := range s.cuts {
		for i, e := range ledger[min(c.entries, len(ledger)):] {
			if e.Token.Slot == c.t.Slot && e.Token.Number < c.t.Number {
				s.Fatalf("Arm(%s) had returned when the ledger had %d entries, and entry %d has token %s", c.t, c.entries, c.entries+i, e.Token)
			}
		}
	}
	if len(s.accepted) == 0 || len(s.refused) == 0 {
		s.Fatalf("%d writes were accepted and %d refused: the storm shows nothing", len(s.accepted), len(s.refused))
	}
}
