package elect_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/elect"
)

const (
	settle = 5 * time.Second
	marker = office + "/preferred"
)

// on makes candidates that see each other's wishes.
func (w *world) on(name string, prefers bool) *candidate {
	return w.candidate(name, elect.Options{Board: board{w.service}, Prefer: prefers, Settle: settle})
}

// A preferred candidate gets the office by one polite hand-over: through a
// queue of others, none of whom begins in between.
func TestPreferredIsHandedTheOffice(t *testing.T) {
	inBubble(t, func(w *world) {
		a, b, c := w.on("a", false), w.on("b", false), w.on("c", false)
		for _, x := range []*candidate{a, b, c} {
			x.stand()
		}
		p := w.on("p", true).stand()
		pass(settle - time.Second)
		w.expect("a in") // it has not settled yet
		pass(2 * time.Second)
		w.expect("a out: " + elect.ErrPreferred.Error() + "; p in")
		pass(time.Minute)
		w.expect("")
		p.is(elect.InOffice)
		if got := standing(a, b, c); len(got) != 3 {
			t.Errorf("only %v stand", got)
		}
		if v := w.service.Lock(marker); v.Holder != nil || v.Waiters != 0 {
			t.Errorf("the marker is held by %+v in office", v.Holder)
		}
		for _, x := range []*candidate{a, b, c} {
			if s := x.Standing(); s.Offices > 1 {
				t.Errorf("%s was in office %d times", x.name, s.Offices)
			}
		}
	})
}

// The primary that is asked ends its work first, in its own time.
func TestPreferredWaitsForTheWork(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.on("a", false).run(func(ctx context.Context, _ *holdfast.Grant) error {
			<-ctx.Done()
			pass(3 * ttl)
			w.say("a ended: %s", reason(ctx))
			return nil
		})
		w.on("p", true).stand()
		pass(settle + time.Second)
		a.is(elect.Leaving)
		pass(2 * ttl)
		w.expect("")
		pass(2 * ttl)
		w.expect("a ended: " + elect.ErrPreferred.Error() + "; p in")
	})
}

// The office does not go to and fro: a preferred candidate must settle anew
// after each loss, and does not ask again after it left by its own will.
func TestPreferredDoesNotFlap(t *testing.T) {
	inBubble(t, func(w *world) {
		p := w.on("p", true).stand()
		w.on("a", false).stand()
		w.expect("p in")
		p.link.Cut() // loses its office without a fault of its own
		pass(ttl + ttl/2)
		p.link.Restore()
		pass(settle / 2)
		w.expect("p out: unreachable; a in")
		pass(2 * settle)
		w.expect("a out: " + elect.ErrPreferred.Error() + "; p in")
		w.revoke(office) // leaves by an operator's will
		pass(10 * time.Minute)
		w.expect("p out: revoked; a in")
		p.is(elect.Queued)
	})
}

// A wish that comes to nothing leaves the next in the queue in office: nobody
// hands the lock round for ever.
func TestPreferredThatIsNotInTheQueue(t *testing.T) {
	inBubble(t, func(w *world) {
		a, b := w.on("a", false).stand(), w.on("b", false).stand()
		l, err := w.service.Locker(&holdfast.Options{TTL: ttl, Clock: func() time.Duration { return time.Since(w.start) }})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(context.Background())
		ghost, err := l.Acquire(context.Background(), marker) // asks, and does not stand
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if h := w.history(); !strings.HasPrefix(h, "a in; a out: "+elect.ErrPreferred.Error()+"; ") || strings.Count(h, " in") != 2 {
			t.Errorf("want one hand-over: %s", h)
		}
		if got := standing(a, b); len(got) != 2 || a.Standing().State == b.Standing().State {
			t.Errorf("a is %v, b is %v", a.Standing().State, b.Standing().State)
		}
		pass(10 * time.Minute)
		w.expect("")
		if err := ghost.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// Of two preferred candidates, the one in office stays; the other gets it when
// the first has gone, before those who came earlier.
func TestTwoPreferred(t *testing.T) {
	inBubble(t, func(w *world) {
		p := w.on("p", true).stand()
		w.on("a", false).stand()
		q := w.on("q", true).stand()
		pass(10 * time.Minute)
		w.expect("p in")
		q.is(elect.Queued)
		p.quit()
		pass(time.Second)
		w.expect("p out: context canceled; q in")
	})
}

// A candidate whose wish an operator takes away gives it up.
func TestRevokedWish(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.candidate("a", elect.Options{}).stand() // has no board, and hands over to nobody
		p := w.on("p", true).stand()
		pass(2 * settle)
		w.revoke(marker)
		pass(2 * ttl)
		if h := w.service.Lock(marker).Holder; h != nil {
			t.Errorf("the marker is held by %v", h)
		}
		a.is(elect.InOffice)
		p.is(elect.Queued)
	})
}
