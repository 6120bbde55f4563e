package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"holdfast"
	"holdfast/fence"
	"holdfast/gate/filegate"
	"holdfast/gate/sqlgate"
)

// A ledger is one guarded resource, as a client process reaches it: it has a
// version, and each write says which version it makes of what it read.
type ledger interface {
	// gate is armed before the grant is handed out; nil if the gates are off.
	gate() holdfast.Gate
	// read returns the version that is there now, past the gate.
	read(ctx context.Context) (int64, error)
	// write makes a version, whatever is there, under a token.
	write(ctx context.Context, t fence.Token, e entry) error
}

// gateBound is how long a gate waits for a writer that does not end.
const gateBound = time.Second

// locksPrefix begins the names of all locks of the clients.
const locksPrefix = "chaos/"

// isFile says which of the two kinds of resource a lock guards.
func isFile(lock string) bool { return strings.HasPrefix(lock, locksPrefix+"file/") }

// A postgresLedger keeps, for each lock, the newest write in the table head and
// all of them, in their order, in the table ledger.
type postgresLedger struct {
	db   *sql.DB
	lock string
	pg   *sqlgate.Postgres // nil: no gate
}

const ledgerTables = `
CREATE TABLE head (lock text PRIMARY KEY, version bigint NOT NULL);
CREATE TABLE ledger (seq bigserial PRIMARY KEY, lock text NOT NULL, version bigint NOT NULL, number bigint NOT NULL, name text NOT NULL);`

func openPostgres(ctx context.Context, db *sql.DB, lock string, gated bool) (*postgresLedger, error) {
	l := &postgresLedger{db: db, lock: lock}
	if !gated {
		return l, nil
	}
	var err error
	l.pg, err = sqlgate.NewPostgres(ctx, db, sqlgate.Config{Lock: lock, Bound: gateBound, Logger: slog.New(slog.DiscardHandler)})
	return l, err
}

func (l *postgresLedger) gate() holdfast.Gate {
	if l.pg == nil {
		return nil
	}
	return l.pg
}

func (l *postgresLedger) read(ctx context.Context) (version int64, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT version FROM head WHERE lock = $1`, l.lock).Scan(&version)
	return version, err
}

func (l *postgresLedger) write(ctx context.Context, t fence.Token, e entry) error {
	// The row of head is locked from the first statement on, so the order of
	// seq is that of the commits.
	do := func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE head SET version = $2 WHERE lock = $1`, l.lock, e.version); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO ledger (lock, version, number, name) VALUES ($1, $2, $3, $4)`, l.lock, e.version, int64(e.number), e.name)
		return err
	}
	if l.pg != nil {
		return l.pg.Do(ctx, t, nil, do)
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", sqlgate.ErrOutcomeUnknown, err)
	}
	return nil
}

// readPostgres reads the whole ledger back.
func readPostgres(ctx context.Context, db *sql.DB, into map[string][]entry) error {
	rows, err := db.QueryContext(ctx, `SELECT lock, version, number, name FROM ledger ORDER BY seq`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var lock string
		var e entry
		if err := rows.Scan(&lock, &e.version, &e.number, &e.name); err != nil {
			return err
		}
		into[lock] = append(into[lock], e)
	}
	return rows.Err()
}

// A fileLedger is a file with the newest writes, one a line. The run reads it
// again and again, and so knows the older ones.
type fileLedger struct {
	path string
	file *filegate.Gate // nil: no gate
}

// keptLines is how many writes the file holds.
const keptLines = 300

// ledgerFile is where the file of a lock is.
func ledgerFile(dir, lock string) string {
	return filepath.Join(dir, strings.ReplaceAll(lock, "/", "-"))
}

func openFile(ctx context.Context, dir, lock string, gated bool) (*fileLedger, error) {
	l := &fileLedger{path: ledgerFile(dir, lock)}
	if !gated {
		return l, nil
	}
	var err error
	l.file, err = filegate.New(ctx, filegate.Config{Path: l.path, Lock: lock, Bound: gateBound, Logger: slog.New(slog.DiscardHandler)})
	return l, err
}

func (l *fileLedger) gate() holdfast.Gate {
	if l.file == nil {
		return nil
	}
	return l.file
}

// entries reads the file past the gate.
func (l *fileLedger) entries() ([]entry, error) {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return nil, err
	}
	return parseLedger(string(text))
}

func (l *fileLedger) read(context.Context) (int64, error) {
	all, err := l.entries()
	if errors.Is(err, os.ErrNotExist) || err == nil && len(all) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return all[len(all)-1].version, nil
}

func (l *fileLedger) write(ctx context.Context, t fence.Token, e entry) error {
	all, err := l.entries()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// What it read before may be older by now: then the others' writes are
	// lost, unless the gate refuses this one.
	for len(all) > 0 && all[len(all)-1].version >= e.version {
		all = all[:len(all)-1]
	}
	text := printLedger(append(all[max(0, len(all)-keptLines+1):], e))
	if l.file != nil {
		return l.file.Do(ctx, t, func(_ context.Context, u *filegate.Update) error {
			_, err := u.Write([]byte(text))
			return err
		})
	}
	temp := l.path + "." + strings.ReplaceAll(e.name, "/", "-")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, l.path)
}

func printLedger(all []entry) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%d %d %s\n", e.version, e.number, e.name)
	}
	return b.String()
}

func parseLedger(text string) ([]entry, error) {
	var all []entry
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("a line of the ledger is %q", line)
		}
		version, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, entry{version, number, f[2]})
	}
	return all, nil
}

// verdict sorts what a gate said about a write: only after one error it is not
// known whether something was written.
func verdict(err error) string {
	switch {
	case err == nil:
		return resultDone
	case fence.KindOf(err) == fence.KindStale:
		return resultRefused
	case errors.Is(err, sqlgate.ErrOutcomeUnknown) || errors.Is(err, filegate.ErrOutcomeUnknown):
		return resultUnknown
	default:
		return resultFailed
	}
}
