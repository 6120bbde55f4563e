package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast"
	"holdfast/engine/cluster"
	"holdfast/fence"
)

// TestDisaster is the whole lesson, on workers of both kinds: A is paused
// between its look and its write, its lease runs out at the service, B writes
// with the next number, A wakes and writes. Whether that lands is the switch's
// doing and nothing else's.
func TestDisaster(t *testing.T) {
	t.Parallel()
	for name, comparing := range map[string]bool{"compare off": false, "compare on": true} {
		t.Run(name, func(t *testing.T) {
			kinds(t, func(t *testing.T, p *play) { disaster(t, p, comparing) })
		})
	}
}

func disaster(t *testing.T, p *play, comparing bool) {
	if err := p.ledger.SetComparing(t.Context(), comparing); err != nil {
		t.Fatal(err)
	}
	a, b := p.mortal("A", "from A"), p.hire("B", "from B")
	first := a.tell(DoAcquire, SaidAcquired)
	if n := first.Token.Number; first.Mark != n || first.Line != 0 || first.Left <= 0 || first.Left > shortTTL {
		t.Errorf("A acquired: %+v", first)
	}
	if s := a.await(SaidPulse); s.Token != first.Token || s.Left <= 0 || s.Left > shortTTL {
		t.Errorf("A's pulse: %+v", s)
	}
	if s := a.tell(DoPoise, SaidLooked); !s.Held || s.Token != first.Token || s.Left <= 0 {
		t.Fatalf("A looked: %+v", s)
	}
	a.freeze()
	silent(t, a)
	second := b.tell(DoAcquire, SaidAcquired)
	if second.Token.Number != first.Token.Number+1 || second.Mark != second.Token.Number || second.Took < shortTTL/4 {
		t.Errorf("after %+v B acquired %+v", first, second)
	}
	if cause := p.released(first.Token.Number); cause != "expired" {
		t.Errorf("A's grant ended because %q, want expired", cause)
	}
	wrote := b.tell(DoWrite, SaidWrote)
	if wrote.Line != 1 || wrote.Basis != 0 || wrote.Value != "from B" || wrote.Compared != comparing || wrote.Mark != second.Token.Number {
		t.Errorf("B wrote %+v", wrote)
	}
	silent(t, a)
	if err := a.Tell(DoGo); err != nil {
		t.Fatal(err)
	}
	silent(t, a)
	a.thaw()
	late := a.await(SaidWrote, SaidRefused)
	if lost := awaitBeside(a, SaidLost); lost.Token != first.Token || lost.Text == "" {
		t.Errorf("A lost: %+v", lost)
	}
	if late.Token != first.Token || late.Mark != second.Token.Number || late.Value != "from A" {
		t.Errorf("A's late write: %+v", late)
	}
	lines := judged(t, p, late, second.Token, comparing)
	// Whoever lost may acquire again, and everything works as before.
	if s := b.tell(DoRelease, SaidReleased); s.Text != "" {
		t.Errorf("B released: %+v", s)
	}
	third := a.tell(DoAcquire, SaidAcquired)
	if third.Token.Number != second.Token.Number+1 || third.Line != int64(lines) {
		t.Errorf("A acquired again: %+v", third)
	}
	if s := a.tell(DoWrite, SaidWrote); s.Basis != int64(lines) || s.Line != s.Basis+1 {
		t.Errorf("A wrote again: %+v", s)
	}
}

// judged checks the late write and the ledger after it, and returns how many
// lines that has.
func judged(t *testing.T, p *play, late Said, seen fence.Token, comparing bool) int {
	t.Helper()
	lines, last, err := p.ledger.Lines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := Corruption(lines)
	if comparing {
		if late.Event != SaidRefused || late.Seen != seen || !strings.Contains(late.Text, "stale token") {
			t.Errorf("with the comparison A's late write is %+v", late)
		}
		if len(lines) != 1 || len(found) != 0 || last.Worker != "B" {
			t.Errorf("with the comparison the ledger is %+v, %+v, %+v", lines, found, last)
		}
	} else {
		if late.Event != SaidWrote || late.Line != 2 || late.Basis != 0 || late.Compared {
			t.Errorf("without the comparison A's late write is %+v", late)
		}
		if len(lines) != 2 || len(found) != 2 || found[0].Line != 2 || found[1].Line != 2 || last.Worker != "A" {
			t.Errorf("without the comparison the ledger is %+v, %+v, %+v", lines, found, last)
		}
	}
	return len(lines)
}

// silent fails the test if the worker has something to say.
func silent(t *testing.T, a *actor) {
	t.Helper()
	select {
	case s := <-a.Said():
		t.Errorf("worker %s stands still, and says %+v", a.name, s)
	default:
	}
}

// awaitBeside is await for what may have been said already.
func awaitBeside(a *actor, what string) Said {
	a.t.Helper()
	for _, s := range a.all {
		if s.Event == what {
			return s
		}
	}
	return a.await(what)
}

func TestKilledHolderIsHeldUntilItsLeaseRunsOut(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]bool{"running": false, "standing still": true} {
		t.Run(name, func(t *testing.T) {
			kinds(t, func(t *testing.T, p *play) {
				a, b := p.mortal("A", "from A"), p.hire("B", "from B")
				first := a.tell(DoAcquire, SaidAcquired)
				b.tell(DoAcquire, SaidQueued)
				if frozen {
					a.freeze()
				}
				a.Kill()
				a.Kill()
				for s := range a.Said() {
					if s.Event != SaidPulse {
						t.Errorf("the killed worker says %+v", s)
					}
				}
				if err := a.Tell(DoWrite); err == nil {
					t.Error("a killed worker takes words")
				}
				if err := a.Freeze(t.Context()); err == nil {
					t.Error("a killed worker can be stopped")
				}
				if s := b.await(SaidAcquired); s.Token.Number != first.Token.Number+1 {
					t.Errorf("B acquired %+v", s)
				}
				if cause := p.released(first.Token.Number); cause != "expired" {
					t.Errorf("the grant of the killed ended because %q, want expired", cause)
				}
			})
		})
	}
}

func TestGivingUpTheWait(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a, b := p.hire("A", "from A"), p.hire("B", "from B")
		a.tell(DoAcquire, SaidAcquired)
		b.tell(DoAcquire, SaidQueued)
		if s := b.await(SaidPulse); !s.Token.IsZero() {
			t.Errorf("a pulse of a waiting worker carries token %s", s.Token)
		}
		b.tell(DoAcquire, SaidError)
		b.tell(DoWrite, SaidError)
		if s := b.tell(DoRelease, SaidGaveUp); s.Text != "" {
			t.Errorf("gave up, as it was told: %+v", s)
		}
		b.tell(DoRelease, SaidError)
		a.tell(DoRelease, SaidReleased)
		b.tell(DoAcquire, SaidAcquired)
	})
}

// TestPausedInTheQueue: a waiting worker is stopped for longer than its
// session lives, and wakes with its place gone.
func TestPausedInTheQueue(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a, b := p.hire("A", "from A"), p.mortal("B", "from B")
		a.tell(DoAcquire, SaidAcquired)
		b.tell(DoAcquire, SaidQueued)
		b.freeze()
		eventually(t, "an empty queue", func() bool {
			l, err := p.watcher.Get(t.Context(), testLock, cluster.GetOptions{})
			return err == nil && l.Waiters == 0
		})
		silent(t, b)
		b.thaw()
		if s := b.await(SaidError); !strings.Contains(s.Text, "session") {
			t.Errorf("the error after a lost place is %q", s.Text)
		}
		if s := b.await(SaidGaveUp); s.Text == "" {
			t.Error("it gave up by itself, and does not say why")
		}
		a.tell(DoRelease, SaidReleased)
		b.tell(DoAcquire, SaidAcquired)
	})
}

func TestWordsThatDoNotFit(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a := p.hire("A", "from A")
		for _, word := range []string{"surprise", DoWrite, DoPoise, DoGo, DoRelease, DoRead, DoInside, " ", doValue, "value 17", `value ""`, `value "a` + "\t" + `b"`, DoValue(strings.Repeat("x", MaxValue+1))} {
			a.tell(word, SaidError)
		}
		for _, word := range []string{"", "two\nlines", strings.Repeat("x", maxWord+1)} {
			if err := a.Tell(word); err == nil {
				t.Errorf("the word %.20q of %d bytes is taken", word, len(word))
			}
		}
		a.tell(DoAcquire, SaidAcquired)
		a.tell(DoAcquire, SaidError)
		a.tell(DoGo, SaidError)
		a.tell(DoPoise, SaidLooked)
		for _, word := range []string{DoPoise, DoWrite, DoRelease, DoAcquire, DoRead, "surprise"} {
			if s := a.tell(word, SaidError); !strings.Contains(s.Text, DoGo) {
				t.Errorf("the answer to %q does not say what fits: %q", word, s.Text)
			}
		}
		if s := a.tell(DoGo, SaidWrote); s.Line != 1 {
			t.Errorf("after all that: %+v", s)
		}
		a.tell(DoGo, SaidError)
	})
}

// TestValueOfAPoisedWriteStays: what stands before the write is the write.
func TestValueOfAPoisedWriteStays(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		const hostile = `<img src=x onerror="alert(1)"> 'é' \n`
		a := p.hire("A", "before")
		a.tell(DoAcquire, SaidAcquired)
		a.tell(DoPoise, SaidLooked)
		if s := a.tell(DoValue(hostile), SaidValue); s.Value != hostile {
			t.Errorf("the value is now %q", s.Value)
		}
		if s := a.tell(DoGo, SaidWrote); s.Value != "before" {
			t.Errorf("the poised write is %q", s.Value)
		}
		if s := a.tell(DoWrite, SaidWrote); s.Value != hostile || s.Basis != 1 || s.Line != 2 {
			t.Errorf("the next write is %+v", s)
		}
		if _, last, err := p.ledger.Lines(t.Context()); err != nil || last.Value != hostile {
			t.Errorf("the invoice says %+v, %v", last, err)
		}
	})
}

func TestPausedInsideTheGuardedStep(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a, b := p.mortal("A", "from A"), p.hire("B", "from B")
		a.tell(DoAcquire, SaidAcquired)
		a.tell(DoInside, SaidInside)
		a.tell("surprise", SaidError)
		a.freeze()
		b.tell(DoAcquire, SaidAcquired)
		b.tell(DoWrite, SaidWrote)
		if err := a.Tell(DoGo); err != nil {
			t.Fatal(err)
		}
		a.thaw()
		if s := a.await(SaidRefused); s.Value != "from A" || s.Seen.Number != s.Token.Number+1 {
			t.Errorf("refused: %+v", s)
		}
	})
}

// TestServiceGone: an acquire that finds no service fails, and the worker
// stays.
func TestServiceGone(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a := p.hire("A", "from A")
		held := p.mortal("B", "from B")
		held.tell(DoAcquire, SaidAcquired)
		p.stopService()
		a.tell(DoAcquire, SaidError)
		a.await(SaidGaveUp)
		a.tell("surprise", SaidError)
		if s := awaitBeside(held, SaidLost); s.Token.IsZero() {
			t.Errorf("lost: %+v", s)
		}
		// It knows, so it does not write: the error comes after the look.
		if s := held.tell(DoWrite, SaidLooked); s.Held {
			t.Errorf("looked after the loss: %+v", s)
		}
		held.await(SaidError)
		held.tell(DoPoise, SaidError)
		held.tell(DoGo, SaidError)
		held.tell(DoRelease, SaidError)
	})
}

// TestEndOfWords: a worker whose words end gives back what it holds, and ends.
func TestEndOfWords(t *testing.T) {
	t.Parallel()
	for _, last := range []string{DoWrite, DoPoise, DoInside} {
		t.Run(last, func(t *testing.T) {
			t.Parallel()
			p := newPlay(t, "")
			in, words := io.Pipe()
			out, told := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- RunWorker(context.Background(), p.spec("A", "from A"), in, told)
				told.Close()
			}()
			said := bufio.NewScanner(out)
			go func() { _, _ = io.WriteString(words, DoAcquire+"\n") }()
			token := next(t, said, SaidAcquired).Token.Number
			go func() { _, _ = io.WriteString(words, last+"\n"); words.Close() }()
			for said.Scan() {
			}
			if err := <-done; err != nil {
				t.Errorf("the worker ended with %v", err)
			}
			if cause := p.released(token); cause == "expired" {
				t.Error("it took leave of nobody: the lock stayed held until the lease ran out")
			}
			lines, _, err := p.ledger.Lines(t.Context())
			if want := map[string]int{DoWrite: 1}[last]; err != nil || len(lines) != want {
				t.Errorf("the ledger has %+v, %v: want %d lines", lines, err, want)
			}
		})
	}
}

func next(t *testing.T, said *bufio.Scanner, what string) Said {
	t.Helper()
	for said.Scan() {
		var s Said
		if err := json.Unmarshal(said.Bytes(), &s); err != nil {
			t.Fatalf("%q: %v", said.Text(), err)
		}
		if s.Event == what {
			return s
		}
	}
	t.Fatalf("the worker ended before %q: %v", what, said.Err())
	return Said{}
}

// TestNever: a worker past the gate arms nothing and is asked for nothing.
func TestNever(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		spec := p.spec("A", "from A")
		spec.Fencing = Never
		a := p.hireSpec(spec)
		if s := a.tell(DoAcquire, SaidAcquired); s.Mark != 0 {
			t.Errorf("acquired: %+v", s)
		}
		a.tell(DoInside, SaidError)
		if s := a.tell(DoWrite, SaidWrote); s.Mark != 0 || s.Compared || s.Line != 1 {
			t.Errorf("wrote %+v", s)
		}
		if mark, err := p.ledger.Mark(t.Context()); err != nil || mark != 0 {
			t.Errorf("the gate's mark is %d, %v", mark, err)
		}
	})
}

// TestReleaseMeetsTheGrant tells a waiting worker to give up at the moment at
// which it is granted the lock: whatever comes first, nothing stays held.
func TestReleaseMeetsTheGrant(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a := p.hire("A", "from A")
		for range 20 {
			if err := a.Tell(DoAcquire, DoRelease); err != nil {
				t.Fatal(err)
			}
			switch s := a.await(SaidGaveUp, SaidReleased, SaidError); {
			case s.Event == SaidError:
				t.Fatal(s.Text)
			case s.Text != "":
				t.Errorf("%+v", s)
			}
		}
		eventually(t, "a free lock", func() bool {
			l, err := p.watcher.Get(t.Context(), testLock, cluster.GetOptions{})
			return err != nil || len(l.Holders) == 0 && l.Waiters == 0
		})
	})
}

// TestGrantedWhileGivingUp: the grant was there before the word to give up.
func TestGrantedWhileGivingUp(t *testing.T) {
	t.Parallel()
	p := newPlay(t, "")
	grant, err := p.watcher.Locker().Acquire(t.Context(), testLock)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	w := &program{spec: p.spec("A", "from A"), around: surroundings{out: func(s Said) { said = append(said, s.Event) }}}
	w.acquiring = &acquiring{cancel: func() {}, queued: make(chan struct{}, 1), gaveUp: true}
	w.acquiring.queued <- struct{}{}
	w.answered(t.Context(), acquired{grant: grant})
	if !slices.Equal(said, []string{SaidQueued, SaidAcquired, SaidReleased}) || grant.State() != holdfast.StateReleased || w.grant != nil {
		t.Errorf("it said %q, and the grant is %v", said, grant.State())
	}
}

// TestNothingComesAfterFreeze: what a worker said before it stood still has
// been read when Freeze returns, so that nobody takes it for alive.
func TestNothingComesAfterFreeze(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a := p.hire("A", "from A")
		var heard atomic.Int64
		go func() {
			for range a.Said() {
				heard.Add(1)
			}
		}()
		late := 0
		for round := range int64(25) {
			before := heard.Load()
			for range 40 {
				if err := a.Tell("surprise"); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the first answer", func() bool { return heard.Load() > before })
			if err := a.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
			at := heard.Load()
			if err := a.Tell("surprise"); err != nil {
				t.Fatal(err)
			}
			if _, err := p.ledger.Last(t.Context()); err != nil { // takes a moment
				t.Fatal(err)
			}
			if heard.Load() != at {
				late++
			}
			a.thaw()
			eventually(t, "all answers", func() bool { return heard.Load() == 41*(round+1) })
		}
		if late > 0 {
			t.Errorf("in %d of 25 pauses something came after the worker stood still", late)
		}
	})
}

// wrote is what it said of line n, which may have been read already.
func (a *actor) wrote(n int64) Said {
	a.t.Helper()
	for {
		for _, s := range a.all {
			if s.Event == SaidWrote && s.Line == n {
				return s
			}
		}
		a.await(SaidWrote)
	}
}

// TestFreezeAgainAndAgain stops a worker at arbitrary moments of its work; it
// must never be left standing, and never say what did not happen.
func TestFreezeAgainAndAgain(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a := p.hire("A", "from A")
		a.tell(DoAcquire, SaidAcquired)
		const writes = 12
		for n := int64(1); n <= writes; n++ {
			if err := a.Tell(DoWrite); err != nil {
				t.Fatal(err)
			}
			for range rand.IntN(4) {
				a.freeze()
				a.thaw()
			}
			s := a.wrote(n)
			if s.Basis != n-1 {
				t.Errorf("write %d: %+v", n, s)
			}
		}
		if lines, _, err := p.ledger.Lines(t.Context()); err != nil || len(lines) != writes || Corruption(lines) != nil {
			t.Errorf("the ledger: %+v, %v", lines, err)
		}
	})
}
