package memgate_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
	"holdfast/gate/memgate"
)

// ledger is the guarded resource: a list in memory.
type ledger struct {
	memory  *memgate.Memory
	mu      sync.Mutex
	entries []fencetest.Entry
}

func (l *ledger) Ledger(fencetest.T) []fencetest.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

func (l *ledger) Open(_ fencetest.T, o fencetest.Options) (fencetest.Gate, error) {
	g, err := memgate.New(memgate.Config{
		Lock: o.Lock, Name: o.Name, Slots: o.Slots, AllowShared: o.AllowShared, Domain: o.Domain,
		Reporter: o.Reporter, Memory: l.memory, Bound: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	return &suiteGate{Gate: g, ledger: l}, err
}

type suiteGate struct {
	*memgate.Gate
	ledger *ledger
}

var errFailed = errors.New("the write was to fail")

func (g *suiteGate) Write(ctx context.Context, w fencetest.Write) error {
	if w.Inside != nil {
		w.Inside()
	}
	return g.Do(ctx, w.Token, func() error {
		if w.Final != nil {
			w.Final()
		}
		if w.Fail {
			return errFailed
		}
		g.ledger.mu.Lock()
		defer g.ledger.mu.Unlock()
		g.ledger.entries = append(g.ledger.entries, fencetest.Entry{Token: w.Token, Value: w.Value})
		return nil
	})
}

func harness() fencetest.Harness {
	return fencetest.Harness{
		New:      func(fencetest.T) fencetest.Resource { return &ledger{memory: memgate.NewMemory()} },
		ArmBound: 5 * time.Second,
	}
}

func TestGate(t *testing.T) { fencetest.Run(t, harness()) }

func TestCasebookC01_PausedHolderWritesAfterExpiry(t *testing.T) {
	fencetest.Case(t, harness(), "C01")
}

func TestCasebookC45_EqualNumberOfAnotherIncarnation(t *testing.T) {
	fencetest.Case(t, harness(), "C45")
}

func TestCasebookC46_ArmWithoutData(t *testing.T) { fencetest.Case(t, harness(), "C46") }

func TestCasebookC48_FirstUseRace(t *testing.T) { fencetest.Case(t, harness(), "C48") }

func token(n uint64) fence.Token {
	return fence.Token{Domain: fence.Domain{1}, Incarnation: 2, Lock: "invoices", Mode: fence.Exclusive, Number: n}
}

func quiet(c memgate.Config) memgate.Config {
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}

func TestNewRefusesBadConfig(t *testing.T) {
	for name, c := range map[string]memgate.Config{
		"no lock":        {},
		"lock too long":  {Lock: strings.Repeat("x", 513)},
		"name too long":  {Lock: "a", Name: strings.Repeat("x", 257)},
		"negative bound": {Lock: "a", Bound: -1},
	} {
		if g, err := memgate.New(quiet(c)); !errors.Is(err, fence.ErrMalformed) || g != nil {
			t.Errorf("%s: New gave %v, %v; want nil and ErrMalformed", name, g, err)
		}
	}
}

// The error of the function that writes comes back as it is, is no refusal of
// this gate, and the mark stays raised; a panic leaves the door open.
func TestDoWhenTheWriterFails(t *testing.T) {
	ctx := t.Context()
	g, err := memgate.New(quiet(memgate.Config{Lock: "invoices"}))
	if err != nil {
		t.Fatal(err)
	}
	other := &fence.StaleError{Gate: "another", Offered: token(1), Seen: token(2)}
	if err := g.Do(ctx, token(5), func() error { return other }); err != error(other) {
		t.Fatalf("Do returned %v, want the writer's error", err)
	}
	if n := g.Refusals(); len(n) != 0 {
		t.Fatalf("a writer's error was counted: %v", n)
	}
	func() {
		defer func() { _ = recover() }()
		_ = g.Do(ctx, token(6), func() error { panic("writer") })
	}()
	if err := g.Arm(ctx, token(5)); fence.KindOf(err) != fence.KindStale {
		t.Fatalf("after a writer that panicked at 6, Arm(5) got %v; want it stale", err)
	}
	if n := g.Refusals(); n[fence.KindStale] != 1 {
		t.Fatalf("refusals are %v, want one stale", n)
	}
	if err := g.Do(ctx, token(7), nil); err == nil {
		t.Fatal("Do without a function succeeded")
	}
}

func TestShowGivesTheClockOfConfig(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	g, err := memgate.New(quiet(memgate.Config{Lock: "invoices", Now: func() time.Time { return at }}))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Arm(t.Context(), token(1)); err != nil {
		t.Fatal(err)
	}
	s, err := g.Show(t.Context())
	if err != nil || len(s.Marks) != 1 || !s.Marks[0].RaisedAt.Equal(at) {
		t.Fatalf("Show gave %v, %v; want one mark raised at %v", s, err, at)
	}
	if g.Name() != "memgate" || g.Lock() != "invoices" {
		t.Fatalf("the gate is %q for %q", g.Name(), g.Lock())
	}
}
