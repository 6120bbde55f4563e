package fencetest

import (
	"errors"

	"holdfast/fence"
)

func ofB(n uint64) fence.Token {
	return but(exclusive(n), func(t *fence.Token) { t.Domain = domainB })
}

func checkDomainPinned(w *world) {
	g := w.gate()
	w.mustArm(g, exclusive(5))
	if s := w.show(g); s.Active != domainA {
		w.Fatalf("after the first Arm the active domain is %s, want %s", s.Active, domainA)
	}
	for _, u := range w.uses() {
		for _, n := range []uint64{1, 5, 6, fence.MaxNumber} {
			w.refused(g, u, ofB(n), fence.KindDomain)
			w.refused(w.gate(), u, ofB(n), fence.KindDomain)
		}
	}
	w.mustWrite(g, exclusive(5), "a")
	w.wantLedger("a")
}

func checkDomainConfigured(w *world) {
	g := w.open(Options{Domain: domainA})
	for _, u := range w.uses() {
		w.refused(g, u, ofB(5), fence.KindDomain)
	}
	w.mustWrite(g, exclusive(1), "a")
	g = w.gate()
	for _, u := range w.uses() {
		w.refused(g, u, ofB(5), fence.KindDomain)
	}
	if _, err := w.resource.Open(w, Options{Lock: lockName, Name: gateName, Domain: domainB}); err == nil {
		w.Fatalf("a gate that serves one domain was opened for another; want it refused until it is moved")
	}
	w.mustWrite(w.open(Options{Domain: domainA}), exclusive(2), "b")
	w.wantLedger("a", "b")
}

func (w *world) mustMove(g Gate, m fence.Move) {
	w.Helper()
	if err := g.Move(w.ctx, m); err != nil {
		w.Fatalf("Move to %s with %s: %v", m.To, m.Token, err)
	}
}

// There and back: numbers of two domains have no order, and old marks count on
// return.
func checkMove(w *world) {
	g, other := w.gate(), w.gate()
	w.mustWrite(g, exclusive(5), "a")
	w.mustMove(g, fence.Move{From: domainA, Expected: w.show(g).Tokens(domainA), To: domainB, Token: ofB(3)})
	for _, h := range []Gate{g, other, w.gate()} {
		w.wantMark(h, exclusive(5))
		w.wantMark(h, ofB(3))
		for _, u := range w.uses() {
			w.refused(h, u, exclusive(5), fence.KindDomain)
			w.refused(h, u, exclusive(6), fence.KindDomain)
			w.refused(h, u, ofB(2), fence.KindStale)
		}
	}
	w.mustWrite(other, ofB(4), "b")
	for _, n := range []uint64{4, 5} {
		w.moveRefused(other, fence.Move{From: domainB, Expected: w.show(g).Tokens(domainB), To: domainA, Token: exclusive(n)})
	}
	w.mustMove(other, fence.Move{From: domainB, Expected: w.show(g).Tokens(domainB), To: domainA, Token: exclusive(6)})
	w.wantMark(g, exclusive(6))
	w.wantMark(g, ofB(4))
	for _, u := range w.uses() {
		w.refused(g, u, exclusive(5), fence.KindStale)
		w.refused(g, u, ofB(9), fence.KindDomain)
	}
	w.mustWrite(g, exclusive(6), "a again")
	w.wantLedger("a", "b", "a again")
}

// moveRefused checks that m changes nothing and is reported.
func (w *world) moveRefused(g Gate, m fence.Move) {
	w.Helper()
	before := w.show(g)
	w.reports.take()
	err := g.Move(w.ctx, m)
	if err == nil {
		w.Fatalf("Move %+v was done; want it refused", m)
	}
	if !errors.Is(err, fence.ErrRefused) && !errors.Is(err, fence.ErrMalformed) {
		w.Fatalf("Move %+v: %v; want a refusal", m, err)
	}
	if after := w.show(g); !sameState(before, after) {
		w.Fatalf("a refused Move %+v changed the gate from %v to %v", m, before, after)
	}
	if told := w.reports.take(); len(told) != 1 || told[0].Use != fence.ToMove {
		w.Fatalf("a refused Move %+v was reported as %+v; want one report", m, told)
	}
}

func checkMoveRefused(w *world) {
	g := w.open(Options{Slots: 2})
	slot1 := but(exclusive(4), func(t *fence.Token) { t.Slot = 1 })
	w.moveRefused(g, fence.Move{From: domainA, To: domainB, Token: ofB(1)}) // never armed
	w.mustArm(g, exclusive(5))
	w.mustArm(g, slot1)
	all := []fence.Token{slot1, exclusive(5)}
	forked := but(exclusive(5), func(t *fence.Token) { t.Incarnation = incY })
	for _, m := range []fence.Move{
		{From: domainA, Expected: nil, To: domainB, Token: ofB(1)},
		{From: domainA, Expected: []fence.Token{exclusive(5)}, To: domainB, Token: ofB(1)},
		{From: domainA, Expected: []fence.Token{exclusive(5), exclusive(5)}, To: domainB, Token: ofB(1)},
		{From: domainA, Expected: []fence.Token{exclusive(4), slot1}, To: domainB, Token: ofB(1)},
		{From: domainA, Expected: []fence.Token{exclusive(6), slot1}, To: domainB, Token: ofB(1)},
		{From: domainA, Expected: []fence.Token{forked, slot1}, To: domainB, Token: ofB(1)},
		{From: domainB, Expected: all, To: domainA, Token: exclusive(9)},
		{From: domainA, Expected: all, To: domainA, Token: exclusive(9)},
		{From: domainA, Expected: all, To: domainB, Token: exclusive(9)},
		{From: domainA, Expected: all, To: domainB},
		{From: domainA, Expected: all, To: domainB, Token: but(ofB(1), func(t *fence.Token) { t.Lock = "other" })},
		{From: domainA, Expected: all, To: domainB, Token: but(ofB(1), func(t *fence.Token) { t.Slot = 2 })},
		{From: domainA, Expected: all, To: domainB, Token: but(ofB(1), func(t *fence.Token) { t.Mode = fence.Shared })},
	} {
		w.moveRefused(g, m)
	}
	w.mustMove(g, fence.Move{From: domainA, Expected: all, To: domainB, Token: ofB(1)})
}

// Of two moves that expect the same, one happens; and a move that races with a
// raise of the mark happens only before it.
func checkMoveRace(w *world) {
	a, b := w.gate(), w.gate()
	w.mustArm(a, exclusive(5))
	move := func(g Gate, to byte, err *error) func() {
		t := but(exclusive(1), func(t *fence.Token) { t.Domain = fence.Domain{to} })
		return func() {
			*err = g.Move(w.ctx, fence.Move{From: domainA, Expected: []fence.Token{exclusive(5)}, To: t.Domain, Token: t})
		}
	}
	var first, second, raise error
	together(move(a, 1, &first), move(b, 2, &second), func() { raise = b.Arm(w.ctx, exclusive(6)) })
	moved := 0
	for _, err := range []error{first, second} {
		if err == nil {
			moved++
		} else if !errors.Is(err, fence.ErrRefused) {
			w.Fatalf("a move that lost the race got %v; want it refused", err)
		}
	}
	switch {
	case raise == nil && moved != 0:
		w.Fatalf("the mark rose to 6, and a move that expected 5 happened")
	case raise != nil && (moved != 1 || fence.KindOf(raise) != fence.KindDomain):
		w.Fatalf("%d moves happened, and the raise got %v; want one move, and the raise refused for its domain", moved, raise)
	}
}
