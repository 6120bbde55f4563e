package fencetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"holdfast/fence"
)

// The domains and incarnations that the checks use.
var (
	domainA = fence.Domain{0xa0, 1}
	domainB = fence.Domain{0xb0, 2}
)

const (
	incX = fence.Incarnation(0x11)
	incY = fence.Incarnation(0x22)
)

const (
	lockName = "invoices"
	gateName = "suite"
)

// world is one resource under test and what was reported about it.
type world struct {
	T
	h        Harness
	resource Resource
	ctx      context.Context
	reports  *reports
}

func newWorld(t T, h Harness) *world {
	t.Helper()
	if h.ArmBound <= 0 {
		t.Fatalf("Harness.ArmBound is %v: want the longest time in which Arm answers", h.ArmBound)
	}
	if h.Rounds == 0 {
		h.Rounds = 200
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return &world{T: t, h: h, resource: h.New(t), ctx: ctx, reports: &reports{}}
}

// gate opens a plain gate for the usual lock.
func (w *world) gate() Gate {
	w.Helper()
	return w.open(Options{})
}

// open fills in what o leaves out.
func (w *world) open(o Options) Gate {
	w.Helper()
	if o.Lock == "" {
		o.Lock = lockName
	}
	o.Name = gateName
	o.Reporter = w.reports
	g, err := w.resource.Open(w, o)
	if err != nil {
		w.Fatalf("cannot open the gate of lock %q: %v", o.Lock, err)
	}
	return g
}

// exclusive makes a token of the usual lock, domain and incarnation.
func exclusive(number uint64) fence.Token {
	return fence.Token{Domain: domainA, Incarnation: incX, Lock: lockName, Mode: fence.Exclusive, Number: number}
}

// but returns t with a change.
func but(t fence.Token, change func(*fence.Token)) fence.Token {
	change(&t)
	return t
}

func (w *world) mustArm(g Gate, t fence.Token) {
	w.Helper()
	if err := g.Arm(w.ctx, t); err != nil {
		w.Fatalf("Arm(%s): %v; want it accepted", t, err)
	}
}

func (w *world) mustWrite(g Gate, t fence.Token, value string) {
	w.Helper()
	if err := g.Write(w.ctx, Write{Token: t, Value: value}); err != nil {
		w.Fatalf("Write(%s): %v; want it accepted", t, err)
	}
}

func (w *world) show(g Gate) fence.State {
	w.Helper()
	s, err := g.Show(w.ctx)
	if err != nil {
		w.Fatalf("Show: %v", err)
	}
	return s
}

// wantMark checks the mark of t's domain and slot.
func (w *world) wantMark(g Gate, t fence.Token) {
	w.Helper()
	if got := w.show(g).Mark(t.Domain, t.Slot); got != t {
		w.Fatalf("the mark is %s, want %s", got, t)
	}
}

// wantLedger checks the values that took effect.
func (w *world) wantLedger(values ...string) {
	w.Helper()
	var got []string
	for _, e := range w.resource.Ledger(w) {
		got = append(got, e.Value)
	}
	if !slices.Equal(got, values) {
		w.Fatalf("the ledger has %q, want %q", got, values)
	}
}

// use is one way to offer a token.
type use struct {
	name  string
	use   fence.Use
	offer func(g Gate, t fence.Token) error
}

func (w *world) uses() []use {
	return []use{
		{"Arm", fence.ToArm, func(g Gate, t fence.Token) error { return g.Arm(w.ctx, t) }},
		{"Write", fence.ToWrite, func(g Gate, t fence.Token) error {
			return g.Write(w.ctx, Write{Token: t, Value: "must not land"})
		}},
	}
}

// refused offers t in the way u and checks that the gate refuses it with kind,
// changes nothing, and reports it once.
func (w *world) refused(g Gate, u use, t fence.Token, kind fence.Kind) {
	w.Helper()
	before, entries := w.show(g), w.resource.Ledger(w)
	w.reports.take()
	err := u.offer(g, t)
	if err == nil {
		w.Fatalf("%s(%s) was accepted; want it refused as %s", u.name, t, kind)
	}
	if got := fence.KindOf(err); got != kind {
		w.Fatalf("%s(%s) was refused as %s (%v); want %s", u.name, t, got, err, kind)
	}
	if malformed := kind == fence.KindMalformed; !malformed && !errors.Is(err, fence.ErrRefused) {
		w.Fatalf("%s(%s): %v; want an error that wraps fence.ErrRefused", u.name, t, err)
	}
	w.checkFields(u, t, before, err)
	if after := w.show(g); !sameState(before, after) {
		w.Fatalf("a refused %s(%s) changed the gate from %v to %v", u.name, t, before, after)
	}
	if after := w.resource.Ledger(w); !slices.Equal(after, entries) {
		w.Fatalf("a refused %s(%s) changed the ledger from %v to %v", u.name, t, entries, after)
	}
	told := w.reports.take()
	if len(told) != 1 {
		w.Fatalf("a refused %s(%s) was reported %d times, want once", u.name, t, len(told))
	}
	if r := told[0]; r.Kind != kind || r.Offered != t || r.Use != u.use || r.Lock != lockName || r.Gate != gateName || r.Err == nil {
		w.Fatalf("a refused %s(%s) was reported as %+v; want kind %s, use %s, gate %s and lock %s", u.name, t, r, kind, u.use, gateName, lockName)
	}
}

// checkFields checks that the typed errors carry both tokens.
func (w *world) checkFields(u use, t fence.Token, s fence.State, err error) {
	w.Helper()
	mark := s.Mark(t.Domain, t.Slot)
	var stale *fence.StaleError
	if errors.As(err, &stale) && (stale.Offered != t || stale.Seen != mark || stale.Gate != gateName) {
		w.Fatalf("%s: the error is %+v; want offered %s and seen %s at gate %s", u.name, *stale, t, mark, gateName)
	}
	var fork *fence.ForkError
	if errors.As(err, &fork) && (fork.Offered != t || fork.Seen != mark || fork.Gate != gateName) {
		w.Fatalf("%s: the error is %+v; want offered %s and seen %s at gate %s", u.name, *fork, t, mark, gateName)
	}
	var domain *fence.WrongDomainError
	if errors.As(err, &domain) && (domain.Offered != t || domain.Active != s.Active) {
		w.Fatalf("%s: the error is %+v; want offered %s and active domain %s", u.name, *domain, t, s.Active)
	}
}

func sameState(a, b fence.State) bool {
	return a.Active == b.Active && slices.EqualFunc(a.Marks, b.Marks, func(x, y fence.Mark) bool {
		return x.Token == y.Token && x.RaisedAt.Equal(y.RaisedAt)
	})
}

// reports collects what a gate reports.
type reports struct {
	mu  sync.Mutex
	all []fence.Refusal
}

func (r *reports) Report(_ context.Context, f fence.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, f)
}

func (r *reports) take() []fence.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}
