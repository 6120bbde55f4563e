package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// SQLite is the dialect of SQLite 3.37 or newer. The database must be a file
// in WAL mode: with a rollback journal, a reader that is stopped keeps every
// writer from committing, so a stopped holder would hold the door.
var SQLite Dialect = sqlite{}

type sqlite struct{}

func (sqlite) String() string { return "SQLite" }

func (sqlite) busy(err error) bool {
	if err == nil {
		return false
	}
	// Each driver has an error type of its own; all carry SQLite's text.
	s := err.Error()
	return strings.Contains(s, "database is locked") || strings.Contains(s, "database table is locked") || strings.Contains(s, "SQLITE_BUSY")
}

func (sqlite) check(text string, writes bool) error {
	if writes {
		return checkSQL(text, true, "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH", "CREATE", "ALTER", "DROP")
	}
	return checkSQL(text, false, "SELECT", "WITH", "VALUES")
}

func (d sqlite) begin(ctx context.Context, conn *sql.Conn, urgent bool) (w writing, err error) {
	restore, err := setPragmas(ctx, conn, []pragma{
		{name: "busy_timeout", want: 0},
		{name: "synchronous", want: 2, orMore: true}, // FULL: what is committed stays
	})
	if err != nil {
		return w, err
	}
	if err := retry(ctx, d.busy, urgent, func() error { return exec(ctx, conn, "BEGIN IMMEDIATE") }); err != nil {
		// A cancelled BEGIN may have begun all the same.
		return w, errors.Join(err, d.rollback(ctx, conn, restore))
	}
	w.commit = func() error {
		err := exec(context.WithoutCancel(ctx), conn, "COMMIT")
		if err == nil {
			return nil
		}
		if undo := exec(context.WithoutCancel(ctx), conn, "ROLLBACK"); undo != nil {
			return &brokenConn{fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)}
		}
		return err
	}
	w.end = func() error { return d.rollback(ctx, conn, restore) }
	return w, nil
}

// rollback ends a transaction that may have ended already: after a commit, or
// where SQLite rolled back by itself.
func (sqlite) rollback(ctx context.Context, conn *sql.Conn, restore func() error) error {
	ctx = context.WithoutCancel(ctx)
	if err := exec(ctx, conn, "ROLLBACK"); err != nil && !strings.Contains(err.Error(), "no transaction is active") {
		return &brokenConn{err}
	}
	if err := restore(); err != nil {
		return &brokenConn{err}
	}
	return nil
}

func (d sqlite) snapshot(ctx context.Context, conn *sql.Conn) (func() error, error) {
	restore, err := setPragmas(ctx, conn, []pragma{{name: "query_only", want: 1}})
	if err != nil {
		return nil, err
	}
	// Not through BeginTx: a driver may be set to begin at once with a lock.
	if err := exec(ctx, conn, "BEGIN DEFERRED"); err != nil {
		return nil, errors.Join(err, d.rollback(ctx, conn, restore))
	}
	return func() error { return d.rollback(ctx, conn, restore) }, nil
}

// A pragma is a setting of one connection with a number as its value.
type pragma struct {
	name   string
	want   int64
	orMore bool // more than want is as good
}

// setPragmas makes the settings on conn; restore brings back what was there,
// since conn belongs to the user's pool.
func setPragmas(ctx context.Context, conn *sql.Conn, ps []pragma) (restore func() error, err error) {
	var undo []string
	restore = func() error {
		if len(undo) == 0 {
			return nil
		}
		return exec(context.WithoutCancel(ctx), conn, strings.Join(undo, "; "))
	}
	for _, p := range ps {
		var have int64
		if err := conn.QueryRowContext(ctx, "PRAGMA "+p.name).Scan(&have); err != nil {
			return nil, errors.Join(fmt.Errorf("PRAGMA %s: %w", p.name, err), restore())
		}
		if have == p.want || (p.orMore && have > p.want) {
			continue
		}
		undo = append(undo, fmt.Sprintf("PRAGMA %s = %d", p.name, have))
		if err := exec(ctx, conn, fmt.Sprintf("PRAGMA %s = %d", p.name, p.want)); err != nil {
			return nil, errors.Join(fmt.Errorf("PRAGMA %s = %d: %w", p.name, p.want, err), restore())
		}
	}
	return restore, nil
}
