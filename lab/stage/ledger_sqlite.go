package stage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver of the ledger's database

	"holdfast/fence"
	"holdfast/gate/sqlgate"
)

// sqliteBook is a ledger in a file of SQLite.
type sqliteBook struct {
	db      *sql.DB
	guarded *sqlgate.Gate
}

const ledgerSchema = `
CREATE TABLE IF NOT EXISTS ledger (
	seq    INTEGER PRIMARY KEY AUTOINCREMENT,
	worker TEXT NOT NULL,
	token  INTEGER NOT NULL,
	value  TEXT NOT NULL,
	basis  INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS invoice (
	id     INTEGER PRIMARY KEY CHECK (id = 1),
	worker TEXT NOT NULL,
	value  TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS switch (
	id      INTEGER PRIMARY KEY CHECK (id = 1),
	compare INTEGER NOT NULL
);
INSERT OR IGNORE INTO switch (id, compare) VALUES (1, 1);`

func openSQLite(ctx context.Context, path, lock string) (*sqliteBook, error) {
	db, err := sql.Open("sqlite", ledgerURI(path))
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	b := &sqliteBook{db: db}
	if _, err := db.ExecContext(ctx, ledgerSchema); err != nil {
		db.Close()
		return nil, fmt.Errorf("making the ledger's tables: %w", err)
	}
	b.guarded, err = sqlgate.New(ctx, db, sqlgate.Config{
		Lock: lock, Name: GateName, Dialect: sqlgate.SQLite, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	return b, nil
}

// ledgerURI names the file for SQLite. A transaction begins with the right to
// write, so that what it read is still so when it writes. NORMAL loses no
// consistency, and a ledger need not outlive a crash of the machine; the gate
// asks for more by itself.
func ledgerURI(path string) string {
	slashed := filepath.ToSlash(path)
	if filepath.VolumeName(path) != "" {
		slashed = "/" + slashed // file:/C:/…
	}
	u := url.URL{Path: slashed}
	return "file:" + u.EscapedPath() + "?_txlock=immediate&_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
}

func (b *sqliteBook) close() error { return b.db.Close() }

func (b *sqliteBook) gate() Gate { return b.guarded }

func (b *sqliteBook) comparing(ctx context.Context) (bool, error) {
	var on bool
	err := b.db.QueryRowContext(ctx, `SELECT compare FROM switch WHERE id = 1`).Scan(&on)
	if err != nil {
		return false, fmt.Errorf("reading the switch: %w", err)
	}
	return on, nil
}

func (b *sqliteBook) setComparing(ctx context.Context, on bool) error {
	if _, err := b.db.ExecContext(ctx, `UPDATE switch SET compare = ? WHERE id = 1`, on); err != nil {
		return fmt.Errorf("turning the switch: %w", err)
	}
	return nil
}

func (b *sqliteBook) last(ctx context.Context) (seq int64, err error) {
	err = b.db.QueryRowContext(ctx, lastLine).Scan(&seq)
	return seq, err
}

func (b *sqliteBook) lines(ctx context.Context) ([]Line, Invoice, error) {
	return readTables(ctx, b.db)
}

// lastLine and readTables say what both databases understand.
const lastLine = `SELECT coalesce(max(seq), 0) FROM ledger`

func readTables(ctx context.Context, db *sql.DB) (all []Line, last Invoice, err error) {
	rows, err := db.QueryContext(ctx, `SELECT seq, worker, token, value, basis FROM ledger ORDER BY seq`)
	if err != nil {
		return nil, last, err
	}
	defer rows.Close()
	for rows.Next() {
		var n Line
		if err := rows.Scan(&n.Seq, &n.Worker, &n.Token, &n.Value, &n.Basis); err != nil {
			return nil, last, err
		}
		all = append(all, n)
	}
	if err := rows.Err(); err != nil {
		return nil, last, err
	}
	err = db.QueryRowContext(ctx, `SELECT worker, value FROM invoice WHERE id = 1`).Scan(&last.Worker, &last.Value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, last, fmt.Errorf("the invoice: %w", err)
	}
	return all, last, nil
}

func (b *sqliteBook) through(ctx context.Context, t fence.Token, n Line, inside func(basis int64) error) (seq int64, err error) {
	err = b.guarded.Do(ctx, t, func(ctx context.Context, snap *sqlgate.Snapshot) ([]sqlgate.Stmt, error) {
		if inside != nil {
			if err := snap.QueryRow(ctx, lastLine).Scan(&n.Basis); err != nil {
				return nil, err
			}
			if err := inside(n.Basis); err != nil {
				return nil, err
			}
		}
		return n.statements(), nil
	})
	if err != nil {
		return 0, err
	}
	// Only the grant's own worker writes with this token, one line at a time.
	err = b.db.QueryRowContext(context.WithoutCancel(ctx), `SELECT coalesce(max(seq), 0) FROM ledger WHERE worker = ? AND token = ?`, n.Worker, int64(n.Token)).Scan(&seq)
	if err != nil {
		return 0, fmt.Errorf("the line was written, but its number cannot be read: %w", err)
	}
	return seq, nil
}

// statements are the two writes of one run.
func (n Line) statements() []sqlgate.Stmt {
	return []sqlgate.Stmt{
		sqlgate.Exec(`INSERT INTO ledger (worker, token, value, basis) VALUES (?, ?, ?, ?)`, n.Worker, int64(n.Token), n.Value, n.Basis),
		sqlgate.Exec(`INSERT INTO invoice (id, worker, value) VALUES (1, ?, ?) ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, value = excluded.value`, n.Worker, n.Value),
	}
}

func (b *sqliteBook) past(ctx context.Context, n Line) (int64, error) {
	seq, _, err := b.append(ctx, n, false)
	return seq, err
}

func (b *sqliteBook) pastIfOff(ctx context.Context, n Line) (int64, bool, error) {
	return b.append(ctx, n, true)
}

// append appends a line without asking any gate. If it minds the switch and that
// is on by now, it writes nothing and reports false.
func (b *sqliteBook) append(ctx context.Context, n Line, minds bool) (seq int64, wrote bool, err error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, false, err
	}
	defer tx.Rollback() // ErrTxDone after a commit
	if minds {
		var on bool
		if err := tx.QueryRowContext(ctx, `SELECT compare FROM switch WHERE id = 1`).Scan(&on); err != nil || on {
			return 0, false, err
		}
	}
	for i, s := range n.statements() {
		res, err := tx.ExecContext(ctx, s.SQL, s.Args...)
		if err == nil && i == 0 {
			seq, err = res.LastInsertId()
		}
		if err != nil {
			return 0, false, err
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, false, err
	}
	return seq, true, nil
}
