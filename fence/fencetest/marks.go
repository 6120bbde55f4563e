package fencetest

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"holdfast/fence"
)

func checkReopen(w *world) {
	g := w.gate()
	w.mustArm(g, exclusive(5))
	w.mustWrite(g, exclusive(5), "first")
	w.mustArm(g, exclusive(7))
	before := w.show(g)
	again := w.gate()
	if after := w.show(again); !sameState(before, after) {
		w.Fatalf("after reopening the gate knows %v, want %v", after, before)
	}
	for _, u := range w.uses() {
		w.refused(again, u, exclusive(5), fence.KindStale)
		w.refused(g, u, exclusive(6), fence.KindStale)
	}
	w.mustWrite(again, exclusive(7), "second")
	w.wantLedger("first", "second")
}

// A write that the gate let in and that failed, or was refused, lowers nothing.
func checkFailedWrites(w *world) {
	g := w.gate()
	w.mustArm(g, exclusive(5))
	fail := func(t fence.Token) {
		w.Helper()
		if err := g.Write(w.ctx, Write{Token: t, Value: "must not land", Fail: true}); err == nil {
			w.Fatalf("a write that was to fail succeeded: does the harness honour Write.Fail?")
		}
		w.wantLedger()
	}
	fail(exclusive(5))
	w.wantMark(g, exclusive(5))
	fail(exclusive(7)) // whether its raise lasts is the gate's affair
	if mark := w.show(g).Mark(domainA, 0); mark.Number < 5 {
		w.Fatalf("a failed write lowered the mark to %s", mark)
	}
	fail(exclusive(4))
	for _, u := range w.uses() {
		w.refused(g, u, exclusive(4), fence.KindStale)
		w.refused(w.gate(), u, exclusive(4), fence.KindStale)
	}
	w.mustWrite(g, exclusive(7), "lands")
	w.wantLedger("lands")
}

// A write without Arm raises the mark and pins the domain as Arm does.
func checkFirstWrite(w *world) {
	g := w.gate()
	w.mustWrite(g, exclusive(5), "first")
	w.wantMark(g, exclusive(5))
	if s := w.show(g); s.Active != domainA {
		w.Fatalf("after the first write the active domain is %s, want %s", s.Active, domainA)
	}
	for _, u := range w.uses() {
		w.refused(g, u, exclusive(4), fence.KindStale)
		w.refused(g, u, but(exclusive(9), func(t *fence.Token) { t.Domain = domainB }), fence.KindDomain)
	}
	w.mustWrite(g, exclusive(6), "raises")
	w.wantMark(g, exclusive(6))
	w.wantLedger("first", "raises")
}

// Show says when the mark last rose, which an equal token does not change.
func checkRaisedAt(w *world) {
	g := w.gate()
	w.mustArm(g, exclusive(5))
	before := w.show(g)
	if len(before.Marks) != 1 || before.Marks[0].RaisedAt.IsZero() {
		w.Fatalf("Show gives %v; want one mark, and when it rose", before.Marks)
	}
	if before.Guard.Gate != gateName || before.Guard.Lock != lockName {
		w.Fatalf("Show is about gate %q and lock %q, want %q and %q", before.Guard.Gate, before.Guard.Lock, gateName, lockName)
	}
	w.mustWrite(g, exclusive(5), "equal")
	w.mustArm(g, exclusive(5))
	if after := w.show(g); !sameState(before, after) {
		w.Fatalf("an equal token changed the marks from %v to %v", before.Marks, after.Marks)
	}
}

func checkCancelled(w *world) {
	g := w.gate()
	w.mustArm(g, exclusive(5))
	before := w.show(g)
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	for name, err := range map[string]error{
		"Arm":           g.Arm(ctx, exclusive(6)),
		"Write":         g.Write(ctx, Write{Token: exclusive(5), Value: "must not land"}),
		"raising Write": g.Write(ctx, Write{Token: exclusive(7), Value: "must not land"}),
		"Move": g.Move(ctx, fence.Move{From: domainA, Expected: before.Tokens(domainA), To: domainB,
			Token: but(exclusive(1), func(t *fence.Token) { t.Domain = domainB })}),
	} {
		if !errors.Is(err, context.Canceled) {
			w.Fatalf("%s with a cancelled context returned %v; want context.Canceled", name, err)
		}
	}
	if after := w.show(g); !sameState(before, after) {
		w.Fatalf("calls with a cancelled context changed the gate from %v to %v", before, after)
	}
	w.wantLedger()
}

func checkC46(w *world) {
	a, b := w.gate(), w.gate()
	w.mustWrite(a, exclusive(5), "a")
	w.mustArm(b, exclusive(6))
	w.wantMark(a, exclusive(6))
	w.wantLedger("a")
	for _, u := range w.uses() {
		w.refused(a, u, exclusive(5), fence.KindStale)
		w.refused(w.gate(), u, exclusive(5), fence.KindStale)
	}
	w.wantMark(w.gate(), exclusive(6))
	w.mustWrite(b, exclusive(6), "b")
	w.wantLedger("a", "b")
}

func checkC45(w *world) {
	g := w.gate()
	ofY := func(n uint64) fence.Token {
		return but(exclusive(n), func(t *fence.Token) { t.Incarnation = incY })
	}
	w.mustWrite(g, exclusive(7), "7 of X")
	for _, u := range w.uses() {
		w.refused(g, u, ofY(7), fence.KindFork)
		w.refused(w.gate(), u, ofY(7), fence.KindFork)
	}
	w.mustWrite(g, exclusive(7), "7 of X again")
	w.mustWrite(g, ofY(8), "8 of Y")
	for _, u := range w.uses() {
		w.refused(g, u, exclusive(7), fence.KindStale)
		w.refused(g, u, exclusive(8), fence.KindFork)
		// A service that was set up anew has another domain.
		w.refused(g, u, but(exclusive(100), func(t *fence.Token) { t.Domain = domainB }), fence.KindDomain)
	}
	s := w.show(g)
	moved := but(exclusive(1), func(t *fence.Token) { t.Domain = domainB })
	if err := g.Move(w.ctx, fence.Move{From: domainA, Expected: s.Tokens(domainA), To: domainB, Token: moved}); err != nil {
		w.Fatalf("Move: %v", err)
	}
	w.mustWrite(g, moved, "1 of the new domain")
	w.wantLedger("7 of X", "7 of X again", "8 of Y", "1 of the new domain")
}

// Two first writers race for a mark that is not there yet.
func checkC48(w *world) {
	order := map[string]int{}
	type result struct{ older, newer error }
	var results []result
	name := func(round int) string { return lockName + "/" + strconv.Itoa(round) }
	for round := range w.h.Rounds {
		lock := name(round)
		a, b := w.open(Options{Lock: lock}), w.open(Options{Lock: lock})
		write := func(g Gate, n uint64, err *error) func() {
			return func() {
				*err = g.Write(w.ctx, Write{Token: but(exclusive(n), func(t *fence.Token) { t.Lock = lock }), Value: lock + " " + strconv.Itoa(int(n))})
			}
		}
		var r result
		calls := []func(){write(a, 1, &r.older), write(b, 2, &r.newer)}
		if round%2 == 1 {
			calls[0], calls[1] = calls[1], calls[0]
		}
		together(calls...)
		results = append(results, r)
		if mark := w.show(a).Mark(domainA, 0); mark.Number != 2 {
			w.Fatalf("round %d: the mark is %s, want number 2", round, mark)
		}
	}
	for i, e := range w.resource.Ledger(w) {
		order[e.Value] = i + 1
	}
	for round, r := range results {
		older, newer := order[name(round)+" 1"], order[name(round)+" 2"]
		switch {
		case r.newer != nil || newer == 0:
			w.Fatalf("round %d: the newer writer got %v; want it accepted, and in the ledger", round, r.newer)
		case r.older == nil && (older == 0 || older > newer):
			w.Fatalf("round %d: both were accepted, but the older is not before the newer in the ledger", round)
		case r.older != nil && fence.KindOf(r.older) != fence.KindStale:
			w.Fatalf("round %d: the older writer got %v; want it accepted or refused as stale", round, r.older)
		case r.older != nil && older != 0:
			w.Fatalf("round %d: the older writer was refused, but its write is in the ledger", round)
		}
	}
}

// together runs the calls at the same time, as far as that can be done.
func together(calls ...func()) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for _, call := range calls {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			call()
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}
