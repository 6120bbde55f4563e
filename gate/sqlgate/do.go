package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"holdfast/fence"
)

// Do writes to the guarded data if t is not stale. It
//
//  1. arms the gate with t if it is not armed yet;
//  2. calls fn with a snapshot of the database, taken after that;
//  3. in one short step that no other writer interrupts: judges t again,
//     applies the statements that fn returned, and commits.
//
// fn may take long, and may be stopped: it holds nobody up. Another holder may
// then raise the mark, and step 3 refuses t with a [*fence.StaleError].
//
// If fn read from the snapshot, and another write passed the gate before step
// 3 (with the same token: of another goroutine, of a child process, of another
// shared holder), Do returns an error that wraps [ErrChanged], so that no
// update is lost; the caller may call Do again. Writes past the gate are not
// noticed. If fn read nothing, its statements are applied whatever came
// between. If fn returns no statements, step 3 is left out.
//
// After an error nothing was written, except after [ErrOutcomeUnknown]. The
// error of fn is returned as it is. A refusal wraps [fence.ErrRefused] or
// [fence.ErrMalformed]; the error of a writer that is in the way wraps
// [fence.ErrUndrained], as for Arm.
func (g *Gate) Do(ctx context.Context, t fence.Token, fn func(context.Context, *Snapshot) ([]Stmt, error)) error {
	if fn == nil {
		return errors.New("sqlgate: Do needs a function that returns statements")
	}
	err := g.do(ctx, t, fn)
	g.tell(ctx, fence.ToWrite, t, err)
	var theirs *notOurs
	if errors.As(err, &theirs) {
		return theirs.err
	}
	return err
}

// notOurs carries an error of the user's function past the gate's own.
type notOurs struct{ err error }

func (e *notOurs) Error() string { return e.err.Error() }

func (g *Gate) do(ctx context.Context, t fence.Token, fn func(context.Context, *Snapshot) ([]Stmt, error)) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	return g.withConn(ctx, t, func(conn *sql.Conn) error {
		p, err := g.plan(ctx, conn, t, fn)
		if errors.Is(err, errNotArmed) {
			if err := g.armOn(ctx, conn, t, fence.ToWrite); err != nil {
				return err
			}
			p, err = g.plan(ctx, conn, t, fn)
		}
		if errors.Is(err, errNotArmed) {
			return g.damaged("the mark fell below %d right after it was raised", t.Number)
		}
		if err != nil || len(p.stmts) == 0 {
			return err
		}
		return g.step(ctx, conn, t, false, func(ctx context.Context) error { return g.apply(ctx, conn, t, p) })
	})
}

// A plan is what a Do wants to write, and what it was made from.
type plan struct {
	stmts  []Stmt
	read   bool  // whether fn read the snapshot
	writes int64 // record.writes in the snapshot
}

var errNotArmed = errors.New("the gate is not armed with this token yet")

// plan lets fn read a snapshot in which t is the mark.
func (g *Gate) plan(ctx context.Context, conn *sql.Conn, t fence.Token, fn func(context.Context, *Snapshot) ([]Stmt, error)) (p plan, err error) {
	var end func() error
	var r record
	err = g.patient(ctx, t, func(ctx context.Context) error {
		var err error
		if end, err = g.dialect.snapshot(ctx, conn); err != nil {
			return err
		}
		verdict, have, err := g.judge(ctx, conn, t, fence.ToWrite)
		if err == nil && verdict == fence.Raise {
			err = errNotArmed
		}
		if err != nil {
			return errors.Join(err, end())
		}
		r = have
		return nil
	})
	if err != nil {
		return p, err
	}
	s := &Snapshot{conn: conn, check: func(text string) error { return g.dialect.check(text, false) }}
	defer func() { // also when fn panics
		_, closing := s.close()
		if closing = errors.Join(closing, end()); closing != nil {
			err = errors.Join(err, &brokenConn{closing})
		}
	}()
	stmts, err := fn(ctx, s)
	if err != nil {
		return p, &notOurs{err}
	}
	read, err := s.close()
	if err != nil {
		return p, err
	}
	for _, stmt := range stmts {
		if err := g.dialect.check(stmt.SQL, true); err != nil {
			return p, fmt.Errorf("gate %s: %w", g.guard.Gate, err)
		}
	}
	g.reached(ctx, pointPlanned)
	return plan{stmts: stmts, read: read, writes: r.writes}, nil
}

// apply judges t for the last time and executes the plan; the caller holds the
// write lock and commits.
func (g *Gate) apply(ctx context.Context, conn *sql.Conn, t fence.Token, p plan) error {
	verdict, r, err := g.judge(ctx, conn, t, fence.ToWrite)
	if err != nil {
		return err
	}
	if verdict != fence.Accept {
		return g.damaged("the mark fell below %d, from which this write began: was the database restored?", t.Number)
	}
	if p.read && r.writes != p.writes {
		return fmt.Errorf("gate %s: %w: %d other writes with token %d passed; call Do again", g.guard.Gate, ErrChanged, r.writes-p.writes, t.Number)
	}
	// The savepoint is gone if a statement ended the transaction, whatever
	// the check of the statements may have missed.
	if err := exec(ctx, conn, `UPDATE main.holdfast_gate SET writes = writes + 1 WHERE lock = ?`, g.guard.Lock); err != nil {
		return err
	}
	if err := exec(ctx, conn, `SAVEPOINT holdfast_gate_step`); err != nil {
		return err
	}
	for i, stmt := range p.stmts {
		if err := exec(ctx, conn, stmt.SQL, stmt.Args...); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("stopped, because the step must end within %v: %w", g.bound, err)
			}
			return fmt.Errorf("gate %s: statement %d of %d: %w", g.guard.Gate, i+1, len(p.stmts), err)
		}
	}
	if err := exec(ctx, conn, `RELEASE holdfast_gate_step`); err != nil {
		return fmt.Errorf("gate %s: %w: they ended the transaction: %w", g.guard.Gate, ErrStatement, err)
	}
	after, err := g.load(ctx, conn, t)
	if err != nil {
		return err
	}
	if after.active != r.active || after.seen != r.seen || after.writes != r.writes+1 {
		return fmt.Errorf("gate %s: %w: they, or a trigger, changed the gate's own record", g.guard.Gate, ErrStatement)
	}
	return nil
}

func exec(ctx context.Context, conn *sql.Conn, text string, args ...any) error {
	_, err := conn.ExecContext(ctx, text, args...)
	return err
}
