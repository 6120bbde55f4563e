package stage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver of the ledger's database

	"holdfast/fence"
	"holdfast/gate/sqlgate"
)

// GateName is the name of a ledger's gate, in errors and reports.
const GateName = "ledger"

// A Ledger is the resource that workers fight for: a table in SQLite to which
// each run appends a line, and one invoice that each run overwrites. A run
// reads the last line before it writes; it is whole if nobody wrote between.
//
// Any number of processes may open one ledger. Its methods may be called by
// several goroutines.
type Ledger struct {
	db   *sql.DB
	gate *sqlgate.Gate
}

// A Line is one write that was accepted.
type Line struct {
	Seq    int64  // its number: 1, 2, …
	Worker string // who wrote it
	Token  uint64 // the number of the writer's token
	Value  string // what it says
	Basis  int64  // the last line that the writer knew
}

// An Invoice is what the ledger says in the end: the value of the last write,
// and who wrote it. It is zero before the first.
type Invoice struct{ Worker, Value string }

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

// OpenLedger opens the ledger in the file at path, and makes it if there is
// none, with the switch on. lock names the lock whose tokens its gate accepts.
func OpenLedger(ctx context.Context, path, lock string) (*Ledger, error) {
	db, err := sql.Open("sqlite", ledgerURI(path))
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	l := &Ledger{db: db}
	if _, err := db.ExecContext(ctx, ledgerSchema); err != nil {
		db.Close()
		return nil, fmt.Errorf("making the ledger's tables: %w", err)
	}
	l.gate, err = sqlgate.New(ctx, db, sqlgate.Config{
		Lock: lock, Name: GateName, Dialect: sqlgate.SQLite, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	return l, nil
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

// Close closes the file. Writes that are under way fail, and leave nothing.
func (l *Ledger) Close() error { return l.db.Close() }

// Gate returns the ledger's gate, to be armed at each acquire.
func (l *Ledger) Gate() *sqlgate.Gate { return l.gate }

// Mark returns the number of the highest token that the gate has seen, 0 if
// it has seen none.
func (l *Ledger) Mark(ctx context.Context) (uint64, error) {
	state, err := l.gate.Show(ctx)
	if err != nil {
		return 0, err
	}
	var highest uint64
	for _, m := range state.Marks {
		if m.Token.Domain == state.Active {
			highest = max(highest, m.Token.Number)
		}
	}
	return highest, nil
}

// Comparing reports whether the switch is on: whether a write by [BySwitch] is
// refused if its token is stale.
func (l *Ledger) Comparing(ctx context.Context) (bool, error) {
	var on bool
	err := l.db.QueryRowContext(ctx, `SELECT compare FROM switch WHERE id = 1`).Scan(&on)
	if err != nil {
		return false, fmt.Errorf("reading the switch: %w", err)
	}
	return on, nil
}

// SetComparing turns the switch. Once it has turned it on, no write by
// [BySwitch] lands uncompared.
func (l *Ledger) SetComparing(ctx context.Context, on bool) error {
	if _, err := l.db.ExecContext(ctx, `UPDATE switch SET compare = ? WHERE id = 1`, on); err != nil {
		return fmt.Errorf("turning the switch: %w", err)
	}
	return nil
}

// Last returns the number of the last line, 0 if there is none.
func (l *Ledger) Last(ctx context.Context) (int64, error) {
	var seq int64
	err := l.db.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM ledger`).Scan(&seq)
	if err != nil {
		return 0, fmt.Errorf("reading the ledger: %w", err)
	}
	return seq, nil
}

// Lines returns the whole ledger in order, and the invoice.
func (l *Ledger) Lines(ctx context.Context) (all []Line, last Invoice, err error) {
	rows, err := l.db.QueryContext(ctx, `SELECT seq, worker, token, value, basis FROM ledger ORDER BY seq`)
	if err != nil {
		return nil, last, fmt.Errorf("reading the ledger: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var n Line
		if err := rows.Scan(&n.Seq, &n.Worker, &n.Token, &n.Value, &n.Basis); err != nil {
			return nil, last, fmt.Errorf("reading the ledger: %w", err)
		}
		all = append(all, n)
	}
	if err := rows.Err(); err != nil {
		return nil, last, fmt.Errorf("reading the ledger: %w", err)
	}
	err = l.db.QueryRowContext(ctx, `SELECT worker, value FROM invoice WHERE id = 1`).Scan(&last.Worker, &last.Value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, last, fmt.Errorf("reading the invoice: %w", err)
	}
	return all, last, nil
}

// A Fencing says how a worker's writes reach the ledger.
type Fencing string

// The ways to the ledger.
const (
	// Always: through the gate, which compares tokens.
	Always Fencing = "always"
	// Never: past the gate. Nobody asks for a token, nothing is armed.
	Never Fencing = "never"
	// BySwitch: the gate is armed always; whether it then compares is what
	// the ledger's switch says at the moment of the write. That one
	// comparison is all that differs.
	BySwitch Fencing = "switch"
)

func (f Fencing) check() error {
	switch f {
	case Always, Never, BySwitch:
		return nil
	}
	return fmt.Errorf("fencing %q: want %s, %s or %s", string(f), Always, Never, BySwitch)
}

// A Written says how a write landed.
type Written struct {
	Line     int64  // its number
	Compared bool   // whether its token was compared
	Mark     uint64 // the gate's mark at that time; 0 past the gate
}

// Write appends a line with the given token, and overwrites the invoice. The
// line's Seq and Token are set by it. A refusal is a [*fence.StaleError] (or
// wraps one), and nothing was written.
func (l *Ledger) Write(ctx context.Context, f Fencing, t fence.Token, n Line) (Written, error) {
	n.Token = t.Number
	switch f {
	case Always:
		return l.through(ctx, t, n, nil)
	case Never:
		seq, _, err := l.past(ctx, n, false)
		return Written{Line: seq}, err
	case BySwitch:
		return l.bySwitch(ctx, t, n)
	}
	return Written{}, f.check()
}

func (l *Ledger) bySwitch(ctx context.Context, t fence.Token, n Line) (Written, error) {
	for {
		on, err := l.Comparing(ctx)
		switch {
		case err != nil:
			return Written{}, err
		case on:
			return l.through(ctx, t, n, nil)
		}
		mark := t.Number
		if err := l.gate.Arm(ctx, t); err != nil {
			stale, ok := errors.AsType[*fence.StaleError](err)
			if !ok {
				return Written{}, err
			}
			mark = stale.Seen.Number // known, and ignored: the comparison is off
		}
		seq, still, err := l.past(ctx, n, true)
		if err != nil || still {
			return Written{Line: seq, Mark: mark}, err
		}
	}
}

// WriteInside is Write through the gate, [Always], for a run that reads in the
// guarded step: the line's Basis is the last line of the gate's snapshot.
// inside is called then, before anything is judged for the last time, and may
// take long; its error is returned, and nothing is written.
func (l *Ledger) WriteInside(ctx context.Context, t fence.Token, n Line, inside func(basis int64) error) (Written, error) {
	n.Token = t.Number
	return l.through(ctx, t, n, inside)
}

func (l *Ledger) through(ctx context.Context, t fence.Token, n Line, inside func(basis int64) error) (Written, error) {
	err := l.gate.Do(ctx, t, func(ctx context.Context, snap *sqlgate.Snapshot) ([]sqlgate.Stmt, error) {
		if inside != nil {
			if err := snap.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM ledger`).Scan(&n.Basis); err != nil {
				return nil, err
			}
			if err := inside(n.Basis); err != nil {
				return nil, err
			}
		}
		return n.statements(), nil
	})
	if err != nil {
		return Written{}, err
	}
	w := Written{Compared: true, Mark: t.Number}
	// Only the grant's own worker writes with this token, one line at a time.
	err = l.db.QueryRowContext(context.WithoutCancel(ctx), `SELECT coalesce(max(seq), 0) FROM ledger WHERE worker = ? AND token = ?`, n.Worker, int64(n.Token)).Scan(&w.Line)
	if err != nil {
		return w, fmt.Errorf("the line was written, but its number cannot be read: %w", err)
	}
	return w, nil
}

// statements are the two writes of one run.
func (n Line) statements() []sqlgate.Stmt {
	return []sqlgate.Stmt{
		sqlgate.Exec(`INSERT INTO ledger (worker, token, value, basis) VALUES (?, ?, ?, ?)`, n.Worker, int64(n.Token), n.Value, n.Basis),
		sqlgate.Exec(`INSERT INTO invoice (id, worker, value) VALUES (1, ?, ?) ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, value = excluded.value`, n.Worker, n.Value),
	}
}

// past appends a line without asking any gate. If it minds the switch and that
// is on by now, it writes nothing and reports false.
func (l *Ledger) past(ctx context.Context, n Line, minds bool) (seq int64, wrote bool, err error) {
	tx, err := l.db.BeginTx(ctx, nil)
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

// A Finding is one thing that is wrong with a ledger.
type Finding struct {
	Line int64  // the line that broke it
	Text string // for people
}

// Corruption says what is wrong with a ledger: each line whose token is lower
// than one accepted before it, or whose writer knew an older last line than
// the one before it. Nil means that it is whole.
func Corruption(all []Line) []Finding {
	var found []Finding
	var highest Line
	var before int64
	for _, n := range all {
		if n.Token < highest.Token {
			found = append(found, Finding{n.Seq, fmt.Sprintf("line %d was written with token %d after line %d with token %d", n.Seq, n.Token, highest.Seq, highest.Token)})
		}
		if n.Basis != before {
			found = append(found, Finding{n.Seq, fmt.Sprintf("line %d by %s rests on line %d, but line %d had come in between: that update is lost", n.Seq, n.Worker, n.Basis, before)})
		}
		if n.Token > highest.Token {
			highest = n
		}
		before = n.Seq
	}
	return found
}

// Texts joins what findings say for one sentence.
func Texts(found []Finding) string {
	texts := make([]string, len(found))
	for i, f := range found {
		texts[i] = f.Text
	}
	return strings.Join(texts, "; ")
}
