package main

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite" // the resource of the drill

	"holdfast/fence"
	"holdfast/gate/sqlgate"
)

// drillLock is the lock that the drill is about.
const drillLock = "invoices"

// A ledger is the resource that the drill's workers fight for: a table in
// SQLite to which each run appends one line, and one invoice that each run
// overwrites. A run first reads the last line; it is whole if nobody wrote
// between its reading and its writing.
type ledger struct {
	db *sql.DB
}

// A line is one accepted write.
type line struct {
	Seq    int64
	Worker string
	Token  uint64
	Value  string
	Basis  int64 // the last line when the writer read
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
);`

// openLedger opens the file at path, and makes its tables if they are missing.
func openLedger(ctx context.Context, path string) (*ledger, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	if _, err := db.ExecContext(ctx, ledgerSchema); err != nil {
		db.Close()
		return nil, fmt.Errorf("making the ledger's tables: %w", err)
	}
	return &ledger{db: db}, nil
}

func (l *ledger) close() error { return l.db.Close() }

// last returns the number of the last line, 0 if there is none.
func (l *ledger) last(ctx context.Context) (int64, error) {
	var seq int64
	err := l.db.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM ledger`).Scan(&seq)
	return seq, err
}

// statements are the two writes of one run.
func (n line) statements() []sqlgate.Stmt {
	return []sqlgate.Stmt{
		sqlgate.Exec(`INSERT INTO ledger (worker, token, value, basis) VALUES (?, ?, ?, ?)`, n.Worker, int64(n.Token), n.Value, n.Basis),
		sqlgate.Exec(`INSERT INTO invoice (id, worker, value) VALUES (1, ?, ?) ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, value = excluded.value`, n.Worker, n.Value),
	}
}

// writePast appends a line without asking any gate: the writer that the drill
// calls "fencing off".
func (l *ledger) writePast(ctx context.Context, n line) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range n.statements() {
		if _, err := tx.ExecContext(ctx, s.SQL, s.Args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// writeThrough appends a line through the gate. inside, if not nil, is called
// inside the guarded step, after its reads.
func writeThrough(ctx context.Context, gate *sqlgate.Gate, token fence.Token, n line, inside func()) error {
	return gate.Do(ctx, token, func(ctx context.Context, snap *sqlgate.Snapshot) ([]sqlgate.Stmt, error) {
		if inside != nil {
			if err := snap.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM ledger`).Scan(&n.Basis); err != nil {
				return nil, err
			}
			inside()
		}
		return n.statements(), nil
	})
}

// lines returns the whole ledger, and the value and writer of the invoice.
func (l *ledger) lines(ctx context.Context) (all []line, worker, value string, err error) {
	rows, err := l.db.QueryContext(ctx, `SELECT seq, worker, token, value, basis FROM ledger ORDER BY seq`)
	if err != nil {
		return nil, "", "", err
	}
	defer rows.Close()
	for rows.Next() {
		var n line
		if err := rows.Scan(&n.Seq, &n.Worker, &n.Token, &n.Value, &n.Basis); err != nil {
			return nil, "", "", err
		}
		all = append(all, n)
	}
	if err := rows.Err(); err != nil {
		return nil, "", "", err
	}
	err = l.db.QueryRowContext(ctx, `SELECT worker, value FROM invoice WHERE id = 1`).Scan(&worker, &value)
	if err == sql.ErrNoRows {
		err = nil
	}
	return all, worker, value, err
}

// corruption says what is wrong with a ledger: a line whose token is lower
// than one accepted before it, or whose writer had read an older ledger than
// the one it wrote to. Nil means that it is whole.
func corruption(all []line) []string {
	var found []string
	var highest line
	var before int64
	for _, n := range all {
		if n.Token < highest.Token {
			found = append(found, fmt.Sprintf("line %d was written with token %d after line %d with token %d", n.Seq, n.Token, highest.Seq, highest.Token))
		}
		if n.Basis != before {
			found = append(found, fmt.Sprintf("line %d by %s rests on line %d, but line %d had come in between: that update is lost", n.Seq, n.Worker, n.Basis, before))
		}
		if n.Token > highest.Token {
			highest = n
		}
		before = n.Seq
	}
	return found
}
