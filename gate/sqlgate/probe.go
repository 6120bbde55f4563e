package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"holdfast/fence"
)

func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCannotFence}, args...)...)
}

func inTheWay(err error) error {
	return fmt.Errorf("%w: another program is writing to the database and does not end; try again: %w", fence.ErrUndrained, err)
}

func (d sqlite) prepare(ctx context.Context, db *sql.DB, lock string, bound time.Duration) (err error) {
	if most := db.Stats().MaxOpenConnections; most == 1 {
		return cannot("the pool has one connection, so a function that runs long would keep another holder from arming: allow two or more (SetMaxOpenConns)")
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	writer, err := d.conn(ctx, db)
	if err != nil {
		return err
	}
	defer func() { putBack(writer, err) }()
	if err := d.checkSettings(ctx, writer); err != nil {
		return err
	}
	if err := d.create(ctx, writer, lock); err != nil {
		return err
	}
	reader, err := d.conn(ctx, db)
	if err != nil {
		return err
	}
	defer func() { putBack(reader, err) }()
	return d.probe(ctx, writer, reader, lock)
}

func (sqlite) conn(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("no connection of the pool is free; New needs two: %w", err)
	case err != nil:
		return nil, cannot("it cannot be opened as it is configured: %w", err)
	}
	return conn, nil
}

// checkSettings looks for what is known not to work, so that the error can say
// what to change; probe finds the rest.
func (d sqlite) checkSettings(ctx context.Context, conn *sql.Conn) error {
	var file sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&file); err != nil {
		return fmt.Errorf("not a SQLite database: %w", err)
	}
	if file.String == "" {
		return cannot("it is in memory or temporary, so other processes, and perhaps other connections, see another one: open a file")
	}
	var journal, locking string
	if err := conn.QueryRowContext(ctx, `PRAGMA main.journal_mode`).Scan(&journal); err != nil {
		return err
	}
	if journal != "wal" {
		return cannot("its journal mode is %q, in which a stopped reader keeps others from committing: run PRAGMA journal_mode = WAL once", journal)
	}
	if err := conn.QueryRowContext(ctx, `PRAGMA main.locking_mode`).Scan(&locking); err != nil {
		return err
	}
	if locking != "normal" {
		return cannot("its locking mode is %q, which shuts other processes out: use PRAGMA locking_mode = NORMAL", locking)
	}
	var dirty int
	if err := conn.QueryRowContext(ctx, `PRAGMA read_uncommitted`).Scan(&dirty); err != nil {
		return err
	}
	if dirty != 0 {
		return cannot("read_uncommitted is on, so a snapshot shows what may never be committed: turn it off")
	}
	return nil
}

// create makes or checks the tables, and this lock's row.
func (d sqlite) create(ctx context.Context, conn *sql.Conn, lock string) (err error) {
	w, err := d.begin(ctx, conn, true)
	if err != nil {
		if d.busy(err) || ctx.Err() != nil {
			return inTheWay(err)
		}
		return cannot("it cannot be written: %w", err)
	}
	defer func() { err = errors.Join(err, w.end()) }()
	if err := ensureSchema(ctx, conn); err != nil {
		if errors.Is(err, fence.ErrRecord) {
			return err
		}
		return cannot("the gate's tables cannot be made: %w", err)
	}
	if _, err := conn.ExecContext(ctx, `INSERT INTO main.holdfast_gate (lock, active, writes, probes) VALUES (?, '', 0, 0) ON CONFLICT DO NOTHING`, lock); err != nil {
		return cannot("it cannot be written: %w", err)
	}
	return w.commit()
}

// probe checks on two connections what the gate rests on: one writer at a
// time; a snapshot that does not change; a reader that does not keep a writer
// from committing; a commit that others see.
func (d sqlite) probe(ctx context.Context, writer, reader *sql.Conn, lock string) (err error) {
	before, err := probes(ctx, writer, lock)
	if err != nil {
		return err
	}
	w, err := d.begin(ctx, writer, true)
	if err != nil {
		return inTheWay(err)
	}
	defer func() { err = errors.Join(err, w.end()) }()
	if err := d.probeWriters(ctx, reader); err != nil {
		return err
	}
	endRead, err := d.snapshot(ctx, reader)
	if err != nil {
		return cannot("a second connection cannot read: %w", err)
	}
	defer func() { err = errors.Join(err, endRead()) }()
	first, err := probes(ctx, reader, lock)
	if err != nil || first < before {
		return cannot("a second connection does not see what was committed (saw %d, committed %d): %w", first, before, orNone(err))
	}
	if _, err := writer.ExecContext(ctx, `UPDATE main.holdfast_gate SET probes = probes + 1 WHERE lock = ?`, lock); err != nil {
		return cannot("a write fails while another connection reads: %w", err)
	}
	if again, err := probes(ctx, reader, lock); err != nil || again != first {
		return cannot("a reader sees what is not committed (saw %d, then %d): %w", first, again, orNone(err))
	}
	if err := w.commit(); err != nil {
		return cannot("a reader keeps a writer from committing: %w", err)
	}
	if again, err := probes(ctx, reader, lock); err != nil || again != first {
		return cannot("a snapshot changes while it is read (saw %d, then %d): %w", first, again, orNone(err))
	}
	return nil
}

// probeWriters checks that a second connection cannot write while a first one
// does.
func (d sqlite) probeWriters(ctx context.Context, other *sql.Conn) (err error) {
	restore, err := setPragmas(ctx, other, []pragma{{name: "busy_timeout", want: 0}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	_, err = other.ExecContext(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		_, err = other.ExecContext(ctx, "ROLLBACK")
		return errors.Join(cannot("two connections can write at the same time"), err)
	}
	if !d.busy(err) {
		return cannot("a second writer is not made to wait: %w", err)
	}
	return nil
}

func probes(ctx context.Context, conn *sql.Conn, lock string) (n int64, err error) {
	err = conn.QueryRowContext(ctx, `SELECT probes FROM main.holdfast_gate WHERE lock = ?`, lock).Scan(&n)
	return n, err
}

func orNone(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}
