package fencetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/fence"
)

// checkArmBeforeRead is the lost update: without arming first, the zombie's
// write would land between the new holder's read and write, and vanish.
func checkArmBeforeRead(w *world) {
	zombie, holder := w.gate(), w.gate()
	w.mustArm(zombie, exclusive(1))
	w.mustWrite(zombie, exclusive(1), "balance 100")
	w.mustArm(holder, exclusive(2))
	read := w.resource.Ledger(w)
	w.refused(zombie, w.uses()[1], exclusive(1), fence.KindStale)
	w.mustWrite(holder, exclusive(2), "balance 150, from "+read[len(read)-1].Value)
	w.wantLedger("balance 100", "balance 150, from balance 100")
}

func checkC01(w *world) {
	a, b := w.gate(), w.gate()
	w.mustArm(a, exclusive(33))
	w.mustWrite(a, exclusive(33), "by 33")
	resume, late := make(chan struct{}), make(chan error, 1)
	go func() {
		<-resume // the pause, between what A computed and its write
		late <- a.Write(w.ctx, Write{Token: exclusive(33), Value: "late"})
	}()
	w.mustArm(b, exclusive(34))
	w.mustWrite(b, exclusive(34), "by 34")
	close(resume)
	w.wantStale("the late write", w.await("the late write", late), exclusive(33), exclusive(34))
	w.wantLedger("by 33", "by 34")
}

func (w *world) wantStale(what string, err error, offered, seen fence.Token) {
	w.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Offered != offered || stale.Seen != seen {
		w.Fatalf("%s got %v; want it refused as stale, offered %s and seen %s", what, err, offered, seen)
	}
}

// await waits for an answer that must come within the harness's bound.
func (w *world) await(what string, answer <-chan error) error {
	w.Helper()
	bound := time.NewTimer(w.h.ArmBound)
	defer bound.Stop()
	select {
	case err := <-answer:
		return err
	case <-bound.C:
		w.Fatalf("%s did not answer within %v: the door is held", what, w.h.ArmBound)
		return nil
	}
}

// bounded calls without a deadline and awaits the answer.
func (w *world) bounded(what string, call func(context.Context) error) error {
	w.Helper()
	answer := make(chan error, 1)
	go func() { answer <- call(context.WithoutCancel(w.ctx)) }()
	return w.await(what, answer)
}

// stopped starts a write of token 1 that stops in the place that at sets, and
// waits until it is there. resume lets it go on and returns its answer.
func (w *world) stopped(g Gate, at func(*Write, func())) (resume func() error) {
	w.Helper()
	there, goOn, late := make(chan error, 2), make(chan struct{}), make(chan error, 1)
	open := sync.OnceFunc(func() { close(goOn) })
	w.Cleanup(open)
	write := Write{Token: exclusive(1), Value: "late"}
	at(&write, func() {
		there <- nil
		<-goOn
	})
	go func() {
		err := g.Write(context.WithoutCancel(w.ctx), write)
		there <- errors.Join(errors.New("Write returned before it got there"), err)
		late <- err
	}()
	if err := w.await("a write, on its way to where it stops,", there); err != nil {
		w.Fatalf("the write did not stop where it should: %v; does the harness call Inside and Final?", err)
	}
	return func() error {
		w.Helper()
		open()
		return w.await("the write that was stopped", late)
	}
}

// A holder that is stopped in its own code holds nobody up, and its late write
// is refused.
func checkStopInside(w *world) {
	a, b := w.gate(), w.gate()
	w.mustArm(a, exclusive(1))
	resume := w.stopped(a, func(write *Write, stop func()) { write.Inside = stop })
	if err := w.bounded("Arm, while another holder is stopped in its own code,", func(ctx context.Context) error {
		return b.Arm(ctx, exclusive(2))
	}); err != nil {
		w.Fatalf("Arm failed while another holder is stopped in its own code: %v", err)
	}
	if err := w.bounded("Write", func(ctx context.Context) error {
		return b.Write(ctx, Write{Token: exclusive(2), Value: "new"})
	}); err != nil {
		w.Fatalf("Write failed while another holder is stopped in its own code: %v", err)
	}
	w.wantStale("the late write", resume(), exclusive(1), exclusive(2))
	w.wantLedger("new")
	w.wantMark(b, exclusive(2))
}

// A holder that is stopped within the final step: Arm either succeeds, and the
// stopped write never takes effect; or it fails in bounded time and names who
// is in its way, and the gate is not armed.
func checkStopFinal(w *world) {
	a, b := w.gate(), w.gate()
	w.mustArm(a, exclusive(1))
	resume := w.stopped(a, func(write *Write, stop func()) { write.Final = stop })
	err := w.bounded("Arm, while another holder is stopped in the final step,", func(ctx context.Context) error {
		return b.Arm(ctx, exclusive(2))
	})
	if err == nil {
		if late := resume(); late == nil {
			w.Fatalf("Arm(2) returned nil, and a write of token 1 that was already in the final step took effect afterwards")
		}
		w.wantLedger()
		w.mustWrite(b, exclusive(2), "new")
		w.wantLedger("new")
		return
	}
	var undrained *fence.UndrainedError
	if !errors.Is(err, fence.ErrUndrained) || !errors.As(err, &undrained) {
		w.Fatalf("Arm, while another holder is stopped in the final step, got %v; want *fence.UndrainedError", err)
	}
	if !strings.Contains(undrained.By, "token 1") || !strings.Contains(err.Error(), undrained.By) {
		w.Fatalf("Arm says it is blocked by %q (%v); want it to name the holder of token 1", undrained.By, err)
	}
	short, cancel := context.WithTimeout(w.ctx, 10*time.Millisecond)
	defer cancel()
	if err := w.bounded("Arm with a short deadline", func(context.Context) error { return b.Arm(short, exclusive(2)) }); err == nil {
		w.Fatalf("Arm with a short deadline succeeded while the door was held")
	}
	if late := resume(); late != nil {
		w.Fatalf("the write that was stopped in the final step got %v, though no newer token was armed", late)
	}
	w.wantLedger("late")
	w.wantMark(b, exclusive(1))
	w.mustArm(b, exclusive(2))
	w.refused(a, w.uses()[1], exclusive(1), fence.KindStale)
}

// Holders of a shared generation that write all the time do not keep a newer
// token out (E5).
func checkCrowd(w *world) {
	const crowd = 6
	type end struct {
		writes int
		err    error
	}
	writing, ends := make(chan struct{}, crowd), make(chan end, crowd)
	var stop sync.Once
	quit := make(chan struct{})
	defer stop.Do(func() { close(quit) })
	for range crowd {
		g := w.open(Options{AllowShared: true})
		w.mustArm(g, sharedToken(1))
		go func() {
			var e end
			for e.err == nil {
				select {
				case <-quit:
					ends <- e
					return
				default:
				}
				err := g.Write(w.ctx, Write{Token: sharedToken(1), Value: "crowd"})
				if err == nil {
					e.writes++
				} else if !errors.Is(err, fence.ErrUndrained) { // another of the crowd was in the way
					e.err = err
				}
				if e.writes == 1 || e.err != nil {
					select {
					case writing <- struct{}{}:
					default:
					}
				}
			}
			ends <- e
		}()
	}
	newer := w.open(Options{AllowShared: true})
	for range crowd / 2 { // the crowd is at work
		<-writing
	}
	if err := w.bounded("Arm, among a crowd of writers,", func(ctx context.Context) error {
		return newer.Arm(ctx, exclusive(2))
	}); err != nil {
		w.Fatalf("Arm failed among a crowd of writers: %v", err)
	}
	armed := len(w.resource.Ledger(w))
	written := 0
	for range crowd {
		e := <-ends
		w.wantStale("a writer of the crowd", e.err, sharedToken(1), exclusive(2))
		written += e.writes
	}
	ledger := w.resource.Ledger(w)
	if len(ledger) != written || armed != written {
		w.Fatalf("the ledger had %d entries when Arm returned and has %d now; the crowd wrote %d: want all the same", armed, len(ledger), written)
	}
	if i := slices.IndexFunc(ledger, func(e Entry) bool { return e.Token != sharedToken(1) }); i >= 0 {
		w.Fatalf("entry %d of the ledger has token %s, want %s", i, ledger[i].Token, sharedToken(1))
	}
}
