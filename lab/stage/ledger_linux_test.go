package stage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdfast/fence"
)

func token(n uint64) fence.Token {
	return fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: testLock, Mode: fence.Exclusive, Number: n}
}

func openLedger(t *testing.T, path string) *Ledger {
	t.Helper()
	l, err := OpenLedger(t.Context(), path, testLock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestCorruption(t *testing.T) {
	whole := []Line{{Seq: 1, Worker: "A", Token: 1}, {Seq: 2, Worker: "B", Token: 3, Basis: 1}}
	if found := Corruption(whole); found != nil {
		t.Errorf("a whole ledger is called corrupted: %+v", found)
	}
	late := append(whole, Line{Seq: 3, Worker: "A", Token: 2, Basis: 1})
	if found := Corruption(late); len(found) != 2 || found[0].Line != 3 || found[1].Line != 3 {
		t.Errorf("a zombie's line brought %+v: want the fallen token and the lost update", found)
	}
	lost := append(whole, Line{Seq: 3, Worker: "A", Token: 4, Basis: 1})
	if found := Corruption(lost); len(found) != 1 || !strings.Contains(Texts(found), "lost") {
		t.Errorf("a lost update brought %+v", found)
	}
}

// TestLedgerPaths: the file is the one that was named, whatever its name is.
func TestLedgerPaths(t *testing.T) {
	for _, name := range []string{"plain", "with space", "a?mode=memory", "50%41", "#1", "ünï"} {
		path := filepath.Join(t.TempDir(), name)
		openLedger(t, path)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestWritesAndMark(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "ledger")
	l, other := openLedger(t, path), openLedger(t, path)
	mark := func(want uint64) {
		t.Helper()
		if got, err := other.Mark(ctx); err != nil || got != want {
			t.Errorf("the mark is %d, %v: want %d", got, err, want)
		}
	}
	write := func(f Fencing, n uint64, want Written) {
		t.Helper()
		got, err := l.Write(ctx, f, token(n), Line{Worker: "A", Value: "v", Basis: want.Line - 1})
		if err != nil || got != want {
			t.Errorf("%s with token %d: %+v, %v: want %+v", f, n, got, err, want)
		}
	}
	refused := func(f Fencing, n, seen uint64) {
		t.Helper()
		_, err := l.Write(ctx, f, token(n), Line{Worker: "A", Value: "v"})
		if stale, ok := errors.AsType[*fence.StaleError](err); !ok || stale.Seen.Number != seen || stale.Gate != GateName {
			t.Errorf("%s with token %d: %v: want a refusal for %d", f, n, err, seen)
		}
	}
	mark(0)
	write(Never, 9, Written{Line: 1})
	mark(0)
	write(Always, 5, Written{Line: 2, Compared: true, Mark: 5})
	refused(Always, 4, 5)
	if on, err := other.Comparing(ctx); err != nil || !on {
		t.Errorf("a new ledger compares: %v, %v", on, err)
	}
	refused(BySwitch, 4, 5)
	write(BySwitch, 6, Written{Line: 3, Compared: true, Mark: 6})
	if err := other.SetComparing(ctx, false); err != nil {
		t.Fatal(err)
	}
	write(BySwitch, 4, Written{Line: 4, Mark: 6})
	write(BySwitch, 8, Written{Line: 5, Mark: 8})
	mark(8) // the highest number seen, though nobody compares
	refused(Always, 7, 8)
	if n, err := other.Last(ctx); err != nil || n != 5 {
		t.Errorf("the last line is %d, %v", n, err)
	}
	if _, err := l.Write(ctx, "sometimes", token(9), Line{}); err == nil {
		t.Error("a fencing that does not exist is accepted")
	}
	wrong := token(10)
	wrong.Lock = "other"
	if _, err := l.Write(ctx, BySwitch, wrong, Line{Worker: "A", Value: "v"}); err == nil {
		t.Error("the token of another lock is accepted: only staleness is ignored")
	}
}

// TestSwitchIsObeyed: once the switch is on, no stale write lands any more,
// also none that began while it was off.
func TestSwitchIsObeyed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	l := openLedger(t, path)
	if err := l.Gate().Arm(t.Context(), token(100)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers sync.WaitGroup
	for range 3 {
		w := openLedger(t, path)
		writers.Go(func() {
			for ctx.Err() == nil {
				_, _ = w.Write(ctx, BySwitch, token(1), Line{Worker: "zombie", Value: "v"})
			}
		})
	}
	for range 15 {
		if err := l.SetComparing(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		before, err := l.Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "a stale line with the switch off", func() bool {
			n, err := l.Last(t.Context())
			return err == nil && n > before
		})
		if err := l.SetComparing(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		at, err := l.Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if n, err := l.Last(t.Context()); err != nil || n != at {
				t.Fatalf("with the switch on the ledger went from %d to %d lines, %v", at, n, err)
			}
			_, _ = l.Mark(t.Context())
		}
	}
	cancel()
	writers.Wait()
}
