package fencetest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"holdfast/fence"
)

func checkEqual(w *world) {
	a, b := w.gate(), w.gate()
	w.mustArm(a, exclusive(5))
	var want []string
	for i := range 10 {
		for name, g := range []Gate{a, b} {
			value := fmt.Sprintf("%d from %d", i, name)
			w.mustWrite(g, exclusive(5), value)
			want = append(want, value)
		}
		w.mustArm(b, exclusive(5))
	}
	w.wantLedger(want...)
	for _, e := range w.resource.Ledger(w) {
		if e.Token != exclusive(5) {
			w.Fatalf("the ledger has token %s, want %s: does the harness record the token?", e.Token, exclusive(5))
		}
	}
	w.wantMark(a, exclusive(5))
	if told := w.reports.take(); len(told) != 0 {
		w.Fatalf("accepted tokens were reported: %+v", told)
	}
}

// Each token is wrong in more than one way: the first in E2's order decides.
func checkOrderOfVerdicts(w *world) {
	g := w.gate()
	w.mustArm(g, exclusive(5))
	shared := func(t *fence.Token) { t.Mode = fence.Shared }
	fork := func(t *fence.Token) { t.Incarnation = incY }
	otherDomain := func(t *fence.Token) { t.Domain = domainB }
	otherLock := func(t *fence.Token) { t.Lock = "other" }
	otherSlot := func(t *fence.Token) { t.Slot = 1 }
	all := func(changes ...func(*fence.Token)) func(*fence.Token) {
		return func(t *fence.Token) {
			for _, c := range changes {
				c(t)
			}
		}
	}
	for _, u := range w.uses() {
		for _, c := range []struct {
			number uint64
			change func(*fence.Token)
			kind   fence.Kind
		}{
			{4, all(otherDomain, otherLock, otherSlot, shared), fence.KindDomain},
			{9, otherDomain, fence.KindDomain},
			{4, all(otherLock, otherSlot, shared), fence.KindLock},
			{4, otherLock, fence.KindLock},
			{5, otherLock, fence.KindLock},
			{9, otherLock, fence.KindLock},
			{4, all(otherSlot, shared), fence.KindSlot},
			{4, otherSlot, fence.KindSlot},
			{9, otherSlot, fence.KindSlot},
			{4, all(fork, shared), fence.KindStale},
			{4, fork, fence.KindStale},
			{4, all(), fence.KindStale},
			{1, all(), fence.KindStale},
			{5, all(fork, shared), fence.KindFork},
			{5, fork, fence.KindFork},
			{5, shared, fence.KindShared},
			{9, shared, fence.KindShared},
		} {
			w.refused(g, u, but(exclusive(c.number), c.change), c.kind)
		}
	}
	err := g.Write(w.ctx, Write{Token: exclusive(4), Value: "stale"})
	if err == nil || !strings.Contains(err.Error(), "4") || !strings.Contains(err.Error(), "5") {
		w.Fatalf("the refusal says %q; want both numbers, 4 and 5, in it", err)
	}
	w.mustWrite(g, but(exclusive(6), fork), "of another incarnation, and higher")
	w.refused(g, w.uses()[0], exclusive(5), fence.KindStale)
}

func checkMalformed(w *world) {
	fresh := w.gate()
	bad := []fence.Token{
		{},
		but(exclusive(0), func(*fence.Token) {}),
		exclusive(fence.MaxNumber + 1),
		exclusive(math.MaxUint64),
		but(exclusive(9), func(t *fence.Token) { t.Domain = fence.Domain{} }),
		but(exclusive(9), func(t *fence.Token) { t.Mode = 0 }),
		but(exclusive(9), func(t *fence.Token) { t.Mode = fence.Revocation + 1 }),
		but(exclusive(9), func(t *fence.Token) { t.Lock = "" }),
		but(exclusive(9), func(t *fence.Token) { t.Lock = "in\x00voices" }),
		but(exclusive(9), func(t *fence.Token) { t.Lock = "\xff\xfe" }),
		but(exclusive(9), func(t *fence.Token) { t.Lock = strings.Repeat("x", fence.MaxLockName+1) }),
	}
	for _, u := range w.uses() {
		for _, t := range bad {
			w.refused(fresh, u, t, fence.KindMalformed)
		}
	}
	if s := w.show(fresh); s.Active != (fence.Domain{}) || len(s.Marks) != 0 {
		w.Fatalf("malformed tokens armed the gate: %v", s)
	}
}

// Numbers that a float64 does not tell apart, that overflow 32 bits, and whose
// order as text is another one.
func checkLargeNumbers(w *world) {
	g := w.gate()
	var want []string
	for _, n := range []uint64{9, 10, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 48, 1<<48 + 1, 1<<53 + 1, 1<<53 + 2, 1<<62 + 1, fence.MaxNumber - 1, fence.MaxNumber} {
		value := strconv.FormatUint(n, 10)
		w.mustWrite(g, exclusive(n), value)
		want = append(want, value)
		w.wantMark(g, exclusive(n))
		for _, u := range w.uses() {
			w.refused(g, u, exclusive(n-1), fence.KindStale)
		}
		g = w.gate()
		w.mustWrite(g, exclusive(n), value+" again")
		want = append(want, value+" again")
	}
	w.wantLedger(want...)
}

func checkRevocation(w *world) {
	g := w.gate()
	arm, write := w.uses()[0], w.uses()[1]
	revocation := func(n uint64) fence.Token {
		return but(exclusive(n), func(t *fence.Token) { t.Mode = fence.Revocation })
	}
	w.refused(g, write, revocation(1), fence.KindRevocation)
	if s := w.show(g); s.Active != (fence.Domain{}) {
		w.Fatalf("a revocation token that was refused pinned domain %s", s.Active)
	}
	w.mustWrite(g, exclusive(4), "holder")
	w.refused(g, write, revocation(5), fence.KindRevocation)
	w.mustArm(g, revocation(5))
	w.wantMark(g, revocation(5))
	w.mustArm(g, revocation(5))
	w.refused(g, write, revocation(5), fence.KindRevocation)
	w.refused(g, write, exclusive(4), fence.KindStale)
	w.refused(g, arm, exclusive(4), fence.KindStale)
	w.refused(g, write, revocation(4), fence.KindStale)
	w.mustArm(g, exclusive(6))
	w.mustWrite(g, exclusive(6), "next")
	w.wantLedger("holder", "next")
}

func sharedToken(n uint64) fence.Token {
	return but(exclusive(n), func(t *fence.Token) { t.Mode = fence.Shared })
}

func checkSharedRefused(w *world) {
	g := w.gate()
	for _, u := range w.uses() {
		w.refused(g, u, sharedToken(3), fence.KindShared)
	}
	w.mustWrite(g, exclusive(2), "exclusive")
	w.wantLedger("exclusive")
}

func checkSharedAllowed(w *world) {
	a, b := w.open(Options{AllowShared: true}), w.open(Options{AllowShared: true})
	w.mustArm(a, sharedToken(5))
	w.mustArm(b, sharedToken(5))
	w.mustWrite(a, sharedToken(5), "one")
	w.mustWrite(b, sharedToken(5), "other")
	w.mustWrite(a, sharedToken(5), "one again")
	w.mustArm(b, exclusive(6))
	for _, u := range w.uses() {
		w.refused(a, u, sharedToken(5), fence.KindStale)
	}
	w.mustWrite(b, exclusive(6), "exclusive")
	w.wantLedger("one", "other", "one again", "exclusive")
}

func checkSlots(w *world) {
	g := w.open(Options{Slots: 3})
	slot := func(n uint64, slot uint32) fence.Token {
		return but(exclusive(n), func(t *fence.Token) { t.Slot = slot })
	}
	w.mustArm(g, slot(9, 0))
	w.mustArm(g, slot(4, 1))
	w.mustWrite(g, slot(4, 1), "slot 1")
	w.mustWrite(g, slot(9, 0), "slot 0")
	for _, u := range w.uses() {
		w.refused(g, u, slot(8, 0), fence.KindStale)
		w.refused(g, u, slot(3, 1), fence.KindStale)
		w.refused(g, u, slot(10, 3), fence.KindSlot)
		w.refused(g, u, slot(10, math.MaxUint32), fence.KindSlot)
	}
	w.mustWrite(g, slot(1, 2), "slot 2")
	g = w.open(Options{Slots: 3})
	w.wantMark(g, slot(9, 0))
	w.wantMark(g, slot(4, 1))
	w.wantMark(g, slot(1, 2))
	w.wantLedger("slot 1", "slot 0", "slot 2")
}

func checkLockNames(w *world) {
	names := []string{
		"a", "A", "a ", " a", "a%20", "a+", "á", "a\u0301", "a/b", "a/b/", "a.b", "a..", "./a", "..",
		"a'b", `a"b`, "a`b", `a\b`, "a;b", "a--b", "a:b@c", "a?b", "$1", "?1", "%s%d%n", "{}", "NULL",
		"'; DROP TABLE holdfast_gate_mark; --", "\u00a0", "日本語", "🔒", strings.Repeat("n", fence.MaxLockName), strings.Repeat("ü", fence.MaxLockName/2),
	}
	var want []string
	for i, name := range names {
		t := but(exclusive(uint64(i+2)), func(t *fence.Token) { t.Lock = name })
		g := w.open(Options{Lock: name})
		if s := w.show(g); s.Active != (fence.Domain{}) || len(s.Marks) != 0 {
			w.Fatalf("the gate of lock %q already knows %v: it shares its mark with another lock", name, s)
		}
		w.mustArm(g, t)
		w.mustWrite(g, t, name)
		want = append(want, name)
	}
	for i, name := range names {
		t := but(exclusive(uint64(i+2)), func(t *fence.Token) { t.Lock = name })
		g := w.open(Options{Lock: name})
		w.wantMark(g, t)
		if err := g.Arm(w.ctx, but(t, func(t *fence.Token) { t.Number-- })); fence.KindOf(err) != fence.KindStale {
			w.Fatalf("lock %q: a lower token got %v; want it refused as stale", name, err)
		}
	}
	w.wantLedger(want...)
	for _, name := range []string{"", "a\nb", "a\x00b", "\x7f", "\u0085", "\xc3\x28", strings.Repeat("n", fence.MaxLockName+1)} {
		if _, err := w.resource.Open(w, Options{Lock: name, Name: gateName}); err == nil {
			w.Fatalf("a gate for the lock name %q was opened; want it refused", name)
		}
	}
}
