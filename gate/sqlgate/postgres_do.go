package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/fence"
)

// Do writes to the guarded data if t is not stale. It
//
//  1. arms the gate with t if it is not armed yet;
//  2. begins a transaction as opts say (nil: the database's defaults), judges
//     t in its first statement, and calls fn with it;
//  3. commits. The server itself checks, as a part of the commit, that the
//     mark by which t was judged is still in force, and keeps it from being
//     raised until the transaction has ended. That is right at every isolation
//     level.
//
// fn reads and writes by tx and returns; it neither commits nor rolls back. It
// may be stopped: it holds no lock of the gate, so another holder can raise
// the mark meanwhile, and step 3 refuses t with a [*fence.StaleError]. Rows
// that fn has written are locked until the server ends the transaction, which
// it does when it has heard nothing for half of Config.Bound. A statement of
// fn waits for another transaction's row at most for Config.Bound.
//
// After an error nothing was written, except after [ErrOutcomeUnknown]; when
// the connection broke during the commit, Do asks the server what became of
// the transaction. The error of fn is returned as it is, and joined with a
// refusal if the server had ended the transaction and t is stale by now. A
// refusal wraps [fence.ErrRefused] or [fence.ErrMalformed]. After a
// serialization failure or a deadlock at the commit the error wraps
// [ErrChanged]: call Do again.
func (g *Postgres) Do(ctx context.Context, t fence.Token, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	switch {
	case fn == nil:
		return errors.New("sqlgate: Do needs a function that writes")
	case opts != nil && opts.ReadOnly:
		return errors.New("sqlgate: Do is for writes: a read-only transaction needs no gate, only Arm")
	}
	err := t.Validate()
	if err != nil {
		err = fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	} else {
		err = g.do(ctx, t, opts, fn)
	}
	g.tell(ctx, fence.ToWrite, t, err)
	var theirs *notOurs
	if errors.As(err, &theirs) {
		return theirs.err
	}
	return err
}

// A guarded is a transaction of Do.
type guarded struct {
	*sql.Tx
	row  string // where its row in holdfast_gate_step is
	xact string // its number
}

// pgEnd is what became of a transaction that failed.
type pgEnd struct {
	err    error
	xact   string // "" before it began
	byFn   bool   // err is fn's
	commit bool   // err came from the commit
	conn   error  // the connection is of no use any more
}

func (g *Postgres) do(ctx context.Context, t fence.Token, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
	var end pgEnd
	err := g.withConn(ctx, t, func(conn *sql.Conn) error {
		end = g.attempt(ctx, conn, t, opts, fn)
		if errors.Is(end.err, errNotArmed) {
			if err := g.armOn(ctx, conn, t, fence.ToWrite); err != nil {
				return err
			}
			end = g.attempt(ctx, conn, t, opts, fn)
		}
		return end.conn
	})
	switch {
	case end.err == nil:
		return err // of withConn, or of arming
	case errors.Is(end.err, errNotArmed):
		if err != nil { // arming was refused
			return err
		}
		return g.damaged("the mark fell below %d right after it was raised", t.Number)
	}
	return g.explain(ctx, t, end)
}

// attempt runs one transaction.
func (g *Postgres) attempt(ctx context.Context, conn *sql.Conn, t fence.Token, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) (end pgEnd) {
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return pgEnd{err: err, conn: broken(err)}
	}
	defer func() { // also when fn panics
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			end.conn = &brokenConn{err}
		}
	}()
	w, err := g.enter(ctx, tx, t)
	if err != nil {
		return pgEnd{err: err}
	}
	end.xact = w.xact
	if end.err = fn(ctx, tx); end.err != nil {
		end.byFn = true
		return end
	}
	g.reached(ctx, pointPlanned)
	if end.err = g.leave(ctx, w); end.err != nil {
		return end
	}
	g.reached(ctx, pointUncommitted)
	end.commit = true
	end.err = tx.Commit()
	end.conn = broken(end.err)
	return end
}

// broken has a connection thrown away after an error that no server sent.
func broken(err error) error {
	if err == nil || sqlState(err) != "" {
		return nil
	}
	return &brokenConn{err}
}

// enter judges t in the transaction's first statement, which also queues the
// check at the commit, and sets the limits.
func (g *Postgres) enter(ctx context.Context, tx *sql.Tx, t fence.Token) (guarded, error) {
	w := guarded{Tx: tx}
	var (
		r             record
		active        string
		number        sql.NullInt64
		token, intent sql.NullString
	)
	bounded, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	err := tx.QueryRowContext(bounded, g.sql.enter, g.guard.Lock, t.Domain.String(), int64(t.Slot), milliseconds(g.bound/2), milliseconds(g.bound)).
		Scan(&active, &number, &token, &intent, &w.row, &w.xact)
	if errors.Is(err, sql.ErrNoRows) {
		return w, g.damaged("the row of lock %q is gone", g.guard.Lock)
	}
	if err != nil {
		return w, fmt.Errorf("gate %s: cannot read the mark: %w", g.guard.Gate, err)
	}
	if err := g.parse(&r, active, number, token); err != nil {
		return w, err
	}
	verdict, err := g.verdict(r, intent, t, fence.ToWrite)
	if err == nil && verdict == fence.Raise {
		err = errNotArmed
	}
	return w, err
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", max(d.Milliseconds(), 1)) }

// verdict judges t by the mark, and then by the intent: whoever arms a higher
// token has been granted it, so t's grant has ended.
func (g *Postgres) verdict(r record, intent sql.NullString, t fence.Token, use fence.Use) (fence.Verdict, error) {
	verdict, err := fence.Judge(g.guard, r.active, r.seen, t, use)
	if err != nil || use != fence.ToWrite || !intent.Valid {
		return verdict, err
	}
	newer, err := fence.ParseToken(intent.String)
	if err != nil {
		return fence.Refuse, g.damaged("intent: %w", err)
	}
	if newer.Number > t.Number {
		return fence.Refuse, &fence.StaleError{Gate: g.guard.Gate, Offered: t, Seen: newer}
	}
	return verdict, nil
}

// judge reads the record and judges t by it.
func (g *Postgres) judge(ctx context.Context, q queryer, t fence.Token, use fence.Use) (fence.Verdict, record, error) {
	ctx, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	var (
		r             record
		active        string
		number        sql.NullInt64
		token, intent sql.NullString
		standby       bool
	)
	err := q.QueryRowContext(ctx, g.sql.load, g.guard.Lock, t.Domain.String(), int64(t.Slot)).Scan(&active, &number, &token, &intent, &standby)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fence.Refuse, r, g.damaged("the row of lock %q is gone", g.guard.Lock)
	case err != nil:
		return fence.Refuse, r, fmt.Errorf("gate %s: cannot read the mark: %w", g.guard.Gate, err)
	case standby:
		return fence.Refuse, r, fmt.Errorf("gate %s: %w", g.guard.Gate, cannot("this connection reached a standby, whose marks may be old: connect to the primary (target_session_attrs=read-write)"))
	}
	if err := g.parse(&r, active, number, token); err != nil {
		return fence.Refuse, r, err
	}
	verdict, err := g.verdict(r, intent, t, use)
	return verdict, r, err
}

// leave makes sure that the transaction is still the one that was judged, so
// that its commit is checked, and limits the commit: from the check on, others
// wait for it.
func (g *Postgres) leave(ctx context.Context, w guarded) error {
	var mine int
	var ignored [2]string
	err := w.QueryRowContext(ctx, g.sql.leave, w.row, milliseconds(g.bound/2)).Scan(&mine, &ignored[0], &ignored[1])
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("gate %s: %w: the function ended it by itself; whether it was committed, only the function knows", g.guard.Gate, ErrTransaction)
	case sqlState(err) == stateFailed:
		return fmt.Errorf("gate %s: %w: one of its statements failed, and the function did not return that error: %w", g.guard.Gate, ErrTransaction, err)
	case err == nil && mine != 1:
		return fmt.Errorf("gate %s: %w: a statement ended it and began another", g.guard.Gate, ErrTransaction)
	}
	return err
}

// explain finds out what a failed transaction means for t.
func (g *Postgres) explain(ctx context.Context, t fence.Token, end pgEnd) error {
	if fence.KindOf(end.err) != fence.KindNone && !end.byFn {
		return end.err
	}
	if end.commit && uncertain(end.err) {
		committed, known := g.outcome(ctx, end.xact)
		switch {
		case !known:
			return fmt.Errorf("gate %s: %w: %w", g.guard.Gate, ErrOutcomeUnknown, end.err)
		case committed:
			return nil
		}
	}
	if end.byFn && end.conn == nil && !ofTransaction(end.err) {
		return &notOurs{end.err}
	}
	if errors.Is(end.err, ErrTransaction) {
		return end.err
	}
	// The server has ended the transaction, or the connection: because t is
	// stale?
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.bound)
	defer cancel()
	_, _, stale := g.judge(again, g.db, t, fence.ToWrite)
	switch {
	case fence.KindOf(stale) != fence.KindNone:
		return fmt.Errorf("%w (the transaction was ended: %w)", stale, end.err)
	case end.byFn:
		return &notOurs{end.err}
	case sqlState(end.err) == stateNoLock:
		return &fence.UndrainedError{Gate: g.guard.Gate, Offered: t, By: "somebody who raises or moves the mark", Err: end.err}
	}
	switch sqlState(end.err) {
	case stateSerialize, stateDeadlock, stateRefused:
		return fmt.Errorf("gate %s: %w: %w", g.guard.Gate, ErrChanged, end.err)
	case stateIdle, "":
		if !end.commit && ctx.Err() == nil {
			return fmt.Errorf("gate %s: nothing was written: the connection was lost (the server ends a transaction in which it hears nothing for %v): %w", g.guard.Gate, g.bound/2, end.err)
		}
	}
	return fmt.Errorf("gate %s: nothing was written: %w", g.guard.Gate, end.err)
}

// ofTransaction reports whether the server's error concerns the transaction or
// the session, and not the statement alone.
func ofTransaction(err error) bool {
	switch s := sqlState(err); s {
	case stateIdle, stateSerialize, stateDeadlock, stateNoLock:
		return true
	default:
		return strings.HasPrefix(s, "57P") || strings.HasPrefix(s, "08")
	}
}

// uncertain reports whether a commit that failed with err may have happened:
// the server did not say that it failed.
func uncertain(err error) bool {
	s := sqlState(err)
	if s == "" {
		return true
	}
	for _, class := range []string{"57P", "08", "58", "XX"} {
		if strings.HasPrefix(s, class) {
			return true
		}
	}
	return false
}

// outcome asks the server what became of a transaction; known is false if it
// does not answer in time.
func (g *Postgres) outcome(ctx context.Context, xact string) (committed, known bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.bound)
	defer cancel()
	again := time.NewTicker(longestPause)
	defer again.Stop()
	for {
		var status sql.NullString
		err := g.db.QueryRowContext(ctx, `SELECT pg_xact_status($1::text::xid8)`, xact).Scan(&status)
		if err == nil && status.String != "in progress" {
			return status.String == "committed", status.Valid
		}
		select {
		case <-ctx.Done():
			return false, false
		case <-again.C:
		}
	}
}
