package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"

	"holdfast/fence"
)

// Each refusal has a type, a kind, wraps ErrRefused, names the gate and both
// numbers, and says what to do; and none is as long as what it quotes.
func TestErrors(t *testing.T) {
	offered, seen := token(33), token(34)
	long := token(33, func(t *fence.Token) { t.Lock = strings.Repeat("n", 512) })
	for kind, c := range map[fence.Kind]struct {
		err  error
		says []string
	}{
		fence.KindStale:      {&fence.StaleError{Gate: "g", Offered: offered, Seen: seen}, []string{"gate g", "33", "34", "acquire the lock again"}},
		fence.KindFork:       {&fence.ForkError{Gate: "g", Offered: offered, Seen: token(33, func(t *fence.Token) { t.Incarnation = 0xb2 })}, []string{"gate g", "33", "00a1", "00b2", hexA, "stop one of them"}},
		fence.KindDomain:     {&fence.WrongDomainError{Gate: "g", Offered: offered, Active: domainB}, []string{"gate g", "33", hexA, domainB.String(), "move the gate"}},
		fence.KindLock:       {&fence.WrongLockError{Gate: "g", Offered: long, Lock: "other"}, []string{"gate g", "33", `"other"`, "acquire that lock"}},
		fence.KindSlot:       {&fence.WrongSlotError{Gate: "g", Offered: offered, Slots: 3}, []string{"gate g", "33", "slot 0", "0 … 2"}},
		fence.KindShared:     {&fence.SharedError{Gate: "g", Offered: long}, []string{"gate g", "33", "exclusively"}},
		fence.KindRevocation: {&fence.RevocationError{Gate: "g", Offered: offered}, []string{"gate g", "33", "never write"}},
		fence.KindMove:       {&fence.MoveError{Gate: "g", Move: fence.Move{From: domainA, To: domainB}, Reason: "because"}, []string{"gate g", hexA, domainB.String(), "because"}},
	} {
		wrapped := fmt.Errorf("while writing: %w", c.err)
		if fence.KindOf(wrapped) != kind || !errors.Is(wrapped, fence.ErrRefused) || errors.Is(wrapped, fence.ErrMalformed) {
			t.Errorf("%T has kind %s and wraps ErrRefused: %v; want %s and true", c.err, fence.KindOf(wrapped), errors.Is(wrapped, fence.ErrRefused), kind)
		}
		for _, says := range c.says {
			if !strings.Contains(c.err.Error(), says) {
				t.Errorf("%T says %q, without %q", c.err, c.err, says)
			}
		}
		if len(c.err.Error()) > 500 {
			t.Errorf("%T has %d bytes", c.err, len(c.err.Error()))
		}
	}
	undrained := &fence.UndrainedError{Gate: "g", Offered: offered, By: "the holder of token 32", Err: io.ErrClosedPipe}
	if !errors.Is(undrained, fence.ErrUndrained) || !errors.Is(undrained, io.ErrClosedPipe) || errors.Is(undrained, fence.ErrRefused) {
		t.Errorf("%v wraps the wrong errors", undrained)
	}
	if s := undrained.Error(); !strings.Contains(s, "33") || !strings.Contains(s, "the holder of token 32") || !strings.Contains(s, "try again") {
		t.Errorf("UndrainedError says %q", s)
	}
	if err := (&fence.UndrainedError{}); !errors.Is(err, fence.ErrUndrained) || fence.KindOf(err) != fence.KindNone {
		t.Errorf("an empty UndrainedError is of kind %s", fence.KindOf(err))
	}
	for err, kind := range map[error]fence.Kind{nil: fence.KindNone, io.EOF: fence.KindNone, fence.ErrMalformed: fence.KindMalformed, fence.ErrRecord: fence.KindRecord} {
		if got := fence.KindOf(err); got != kind {
			t.Errorf("KindOf(%v) is %s, want %s", err, got, kind)
		}
	}
}

func TestRefusal(t *testing.T) {
	if _, ok := fence.NewRefusal(guard, fence.ToArm, token(1), io.EOF); ok {
		t.Error("an error of the resource became a refusal")
	}
	stale := &fence.StaleError{Gate: "g", Offered: token(33), Seen: token(34)}
	r, ok := fence.NewRefusal(guard, fence.ToWrite, token(33), stale)
	want := fence.Refusal{Gate: "g", Lock: "invoices", Use: fence.ToWrite, Kind: fence.KindStale, Offered: token(33), Seen: token(34), Err: stale}
	if !ok || !reflect.DeepEqual(r, want) {
		t.Errorf("NewRefusal gives %+v, %v; want %+v", r, ok, want)
	}
	fork := &fence.ForkError{Offered: token(33), Seen: token(33, func(t *fence.Token) { t.Incarnation++ })}
	if r, _ := fence.NewRefusal(guard, fence.ToArm, token(33), fork); r.Seen != fork.Seen {
		t.Errorf("a fork's Seen is %v", r.Seen)
	}
}

func TestReporters(t *testing.T) {
	var tally fence.Tally
	var said []any
	logging := fence.Logging(func(_ context.Context, msg string, args ...any) { said = append(append(said, msg), args...) })
	all := fence.Reporters(nil, &tally, logging, nil, &tally)
	stale := &fence.StaleError{Gate: "g", Offered: token(33), Seen: token(34)}
	r, _ := fence.NewRefusal(guard, fence.ToWrite, token(33), stale)
	all.Report(t.Context(), r)
	if tally.Count(fence.KindStale) != 2 || tally.Count(fence.KindFork) != 0 || len(tally.Counts()) != 1 {
		t.Errorf("the tally is %v", tally.Counts())
	}
	line := fmt.Sprintln(said...)
	for _, part := range []string{"gate g", "lock invoices", "use write", "kind stale", "offered " + token(33).String(), "seen " + token(34).String(), "error gate g: stale"} {
		if !strings.Contains(line, part) {
			t.Errorf("the log line is %q, without %q", line, part)
		}
	}
	said = nil
	r, _ = fence.NewRefusal(guard, fence.ToArm, fence.Token{}, fence.ErrMalformed)
	all.Report(t.Context(), r)
	if line := fmt.Sprintln(said...); strings.Contains(line, "offered") || strings.Contains(line, "seen") {
		t.Errorf("a refusal without tokens logs %q", line)
	}
	counts := tally.Counts()
	counts[fence.KindFork] = 99
	if tally.Count(fence.KindFork) != 0 {
		t.Error("Counts gives out the tally's own map")
	}
}

func TestTallyCountsConcurrently(t *testing.T) {
	var tally fence.Tally
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				tally.Report(context.Background(), fence.Refusal{Kind: fence.KindStale})
			}
		})
	}
	all.Wait()
	if n := tally.Count(fence.KindStale); n != 800 {
		t.Errorf("counted %d of 800", n)
	}
}

func TestUnsignedVerifier(t *testing.T) {
	var v fence.Verifier = fence.Unsigned{}
	if got, err := v.Verify(t.Context(), textA); err != nil || got != token(33) {
		t.Errorf("Verify gives %v, %v", got, err)
	}
	if _, err := v.Verify(t.Context(), "33"); !errors.Is(err, fence.ErrMalformed) {
		t.Errorf("a bare number gives %v", err)
	}
}

func TestWords(t *testing.T) {
	got := []string{
		fence.Exclusive.String(), fence.Shared.String(), fence.Revocation.String(), fence.Mode(9).String(),
		fence.ToArm.String(), fence.ToWrite.String(), fence.ToMove.String(), fence.Use(9).String(),
		fence.Refuse.String(), fence.Accept.String(), fence.Raise.String(), fence.Verdict(9).String(),
		fence.Incarnation(0xa1).String(),
	}
	want := []string{"x", "s", "r", "Mode(9)", "arm", "write", "move", "Use(9)", "refuse", "accept", "raise", "refuse", "00000000000000a1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("words are %q, want %q", got, want)
	}
}
