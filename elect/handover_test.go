package elect_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/elect"
)

// A revoke and StepDown end the time in office and not the process: the
// function ends first, then the next one begins, and the old one queues again.
func TestHandOverIsDrained(t *testing.T) {
	for _, how := range []string{"revoke", "step down", "end of Run"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(w *world) {
				a, b := w.candidate("a", elect.Options{}), w.candidate("b", elect.Options{})
				const work = 2 * time.Second
				a.run(func(ctx context.Context, g *holdfast.Grant) error {
					w.say("a in")
					<-ctx.Done()
					w.say("a asked: %s", reason(ctx))
					pass(work)
					w.say("a ended, held %v", w.service.Lock(office).Holder.Label == "a")
					return nil
				})
				b.stand()
				began := time.Now()
				switch how {
				case "revoke":
					w.revoke(office)
				case "step down":
					if err := a.StepDown(context.Background()); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took < work {
						t.Errorf("StepDown returned after %v, before the function", took)
					}
				case "end of Run":
					a.quit()
				}
				pass(ttl)
				cause := map[string]string{"revoke": "revoked", "step down": "stepped down", "end of Run": "context canceled"}[how]
				w.expect("a in; a asked: " + cause + "; a ended, held true; b in")
				if how == "end of Run" {
					a.is(elect.Stopped)
					return
				}
				a.is(elect.Queued)
			})
		})
	}
}

// Who stepped down rests, so that one who did not wait just then has a chance;
// if nobody comes, it is in office again.
func TestStepDownGivesOthersAChance(t *testing.T) {
	inBubble(t, func(w *world) {
		a, b := w.candidate("a", elect.Options{}), w.candidate("b", elect.Options{})
		if err := a.StepDown(context.Background()); !errors.Is(err, elect.ErrNotPrimary) {
			t.Errorf("step down without an office: %v", err)
		}
		a.stand()
		if err := a.StepDown(context.Background()); err != nil {
			t.Fatal(err)
		}
		pass(elect.DefaultRest / 2)
		a.is(elect.Pausing)
		if s := a.Standing(); !errors.Is(s.Why, elect.ErrSteppedDown) {
			t.Errorf("it pauses because %v", s.Why)
		}
		if err := a.StepDown(context.Background()); !errors.Is(err, elect.ErrNotPrimary) {
			t.Errorf("step down at rest: %v", err)
		}
		b.stand()
		pass(elect.DefaultRest)
		a.is(elect.Queued)
		w.expect("a in; a out: stepped down; b in")
		b.quit()
		pass(ttl)
		if err := a.StepDown(context.Background()); err != nil {
			t.Fatal(err)
		}
		pass(elect.DefaultRest)
		w.expect("b out: context canceled; a in; a out: stepped down; a in")
	})
}

// StepDown is bounded by its context, and the office is left all the same.
func TestStepDownDoesNotWaitForEver(t *testing.T) {
	inBubble(t, func(w *world) {
		end := make(chan struct{})
		a := w.candidate("a", elect.Options{}).run(func(ctx context.Context, _ *holdfast.Grant) error { <-end; return nil })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := a.StepDown(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("StepDown: %v", err)
		}
		a.is(elect.Leaving)
		if w.service.Lock(office).Holder == nil {
			t.Error("the lock was released before the function returned")
		}
		close(end)
		pass(time.Second)
		a.is(elect.Pausing)
	})
}
