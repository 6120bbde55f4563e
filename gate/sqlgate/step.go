package sqlgate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"holdfast/fence"
)

// The points of a step that tests stop at.
const (
	pointPlanned     = "planned"     // a function has read and returned; no lock is held
	pointLocked      = "locked"      // the right to write is held
	pointUncommitted = "uncommitted" // all is written but the commit
)

// How long retry pauses between two tries. SQLite serves no queue: whoever
// asks at the right moment gets the lock. A raise asks most often, so that a
// crowd of writers with the older token cannot starve it (E5).
const (
	urgentPause  = 500 * time.Microsecond
	shortPause   = time.Millisecond
	longestPause = 16 * time.Millisecond
)

// retry calls do until it does not fail for another connection's sake, or ctx
// ends.
func retry(ctx context.Context, busy func(error) bool, urgent bool, do func() error) error {
	pause := shortPause
	if urgent {
		pause = urgentPause
	}
	var timer *time.Timer
	var inTheWay error
	for {
		err := do()
		if !busy(err) {
			if err != nil && inTheWay != nil && ctx.Err() != nil {
				return inTheWay // says more than that the time is over
			}
			return err
		}
		inTheWay = err
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return err
		case <-timer.C:
		}
		if !urgent {
			pause = min(2*pause, longestPause)
		}
	}
}

// patient runs a read that another connection may be in the way of for a
// moment (SQLite: while a log is recovered or removed).
func (g *Gate) patient(ctx context.Context, t fence.Token, read func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	err := retry(bounded, g.dialect.busy, false, func() error { return read(bounded) })
	if g.dialect.busy(err) {
		return &fence.UndrainedError{Gate: g.guard.Gate, Offered: t, By: "a connection that shuts readers out", Err: err}
	}
	return err
}

// step runs do with the right to write and commits. It waits for the right at
// most for the gate's bound, and do has as long again.
func (g *Gate) step(ctx context.Context, conn *sql.Conn, t fence.Token, urgent bool, do func(context.Context) error) (err error) {
	waiting, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	w, err := g.dialect.begin(waiting, conn, urgent)
	if err != nil {
		if g.dialect.busy(err) || waiting.Err() != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			return g.undrained(ctx, conn, t, err)
		}
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	defer func() {
		// What went wrong in ending says nothing about what was done, but
		// the connection is thrown away.
		if ending := w.end(); ending != nil {
			putBack(conn, ending)
		}
	}()
	working, cancelWork := context.WithTimeout(ctx, g.bound)
	defer cancelWork()
	g.reached(ctx, pointLocked)
	if err := do(working); err != nil {
		return err
	}
	if err := working.Err(); err != nil {
		return fmt.Errorf("gate %s: nothing was written: %w", g.guard.Gate, err)
	}
	g.reached(ctx, pointUncommitted)
	if err := w.commit(); err != nil {
		return fmt.Errorf("gate %s: commit: %w", g.guard.Gate, err)
	}
	return nil
}

// undrained says who keeps the gate from writing, as far as it can be known:
// what a writer has not committed nobody else sees, but with a lawful token it
// is the holder of the mark.
func (g *Gate) undrained(ctx context.Context, conn *sql.Conn, t fence.Token, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(g.bound, time.Second))
	defer cancel()
	by := "a writer of the same database that has not ended its transaction"
	if s, err := g.state(ctx, conn); err == nil && holders(s) != "" {
		by += ", most likely the holder of " + holders(s)
	}
	return &fence.UndrainedError{Gate: g.guard.Gate, Offered: t, By: by, Err: cause}
}
