package sqlgate

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"holdfast/fence"
)

// oldestPostgres is the first version with pg_current_xact_id.
const oldestPostgres = 130000

// prepare creates the gate's tables or checks those that exist, and probes
// that db can fence. The error says what to change.
func (g *Postgres) prepare(ctx context.Context) (err error) {
	if g.db.Stats().MaxOpenConnections == 1 {
		return cannot("the pool has one connection, so a function that runs long would keep another holder from arming: allow two or more (SetMaxOpenConns)")
	}
	ctx, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	writer, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { putBack(writer, err) }()
	version, err := g.checkServer(ctx, writer)
	if err != nil {
		return err
	}
	if err := g.ensure(ctx, writer); err != nil {
		return err
	}
	if err := g.addLock(ctx, writer); err != nil {
		return err
	}
	other, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { putBack(other, err) }()
	if err := g.probeSession(ctx, writer); err != nil {
		return err
	}
	proven, err := g.probeLocks(ctx, writer, other)
	if err != nil || proven == version {
		return err
	}
	return g.prove(ctx, writer, other, version)
}

func (g *Postgres) connect(ctx context.Context) (*sql.Conn, error) {
	conn, err := g.db.Conn(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("no connection of the pool is free, or the server does not answer; New needs two: %w", err)
	}
	return conn, err
}

// checkServer looks for what is known not to work, so that the error can say
// what to change.
func (g *Postgres) checkServer(ctx context.Context, conn *sql.Conn) (version string, err error) {
	if err := conn.QueryRowContext(ctx, `SELECT version()`).Scan(&version); err != nil {
		return "", fmt.Errorf("not a PostgreSQL database, or it cannot be asked: %w", err)
	}
	if !strings.HasPrefix(version, "PostgreSQL ") {
		return "", cannot("it says that it is %q; the gate rests on PostgreSQL's own row locks and triggers", clip(version))
	}
	var number int
	var standby bool
	var readOnly string
	if err := conn.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('default_transaction_read_only')`).Scan(&number, &standby, &readOnly); err != nil {
		return "", err
	}
	switch {
	case number < oldestPostgres:
		return "", cannot("it is %s: the gate needs PostgreSQL 13 or newer", clip(version))
	case standby:
		return "", cannot("it is a standby, which cannot be written: connect to the primary (target_session_attrs=read-write)")
	case readOnly != "off":
		return "", cannot("its transactions are read-only by default: set default_transaction_read_only to off")
	}
	return version, nil
}

// probeSession checks that a transaction stays with one session, and that what
// is set in it holds there and ends with it: a pooler that hands out sessions
// by statement fails here.
func (g *Postgres) probeSession(ctx context.Context, conn *sql.Conn) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return cannot("it has no transactions: %w", err)
	}
	defer tx.Rollback()
	const setting = "holdfast.probe"
	var first, second int
	var value string
	if err := tx.QueryRowContext(ctx, `SELECT pg_backend_pid(), set_config($1, $2, true)`, setting, g.self).Scan(&first, &value); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, `SELECT pg_backend_pid(), coalesce(current_setting($1, true), '')`, setting).Scan(&second, &value); err != nil {
		return err
	}
	if first != second || value != g.self {
		return cannot("the statements of one transaction reach different sessions, or lose what SET LOCAL has set: is there a pooler that pools by statement? Use one that pools by transaction or session, or none")
	}
	if err := tx.Rollback(); err != nil {
		return err
	}
	if err := conn.QueryRowContext(ctx, `SELECT coalesce(current_setting($1, true), '')`, setting).Scan(&value); err != nil {
		return err
	}
	if value != "" {
		return cannot("what was set for one transaction outlives it")
	}
	return nil
}

// probeLocks checks that two connections reach one database, and that a row
// that one has locked is locked for the other. It returns the version of the
// server for which all else was proven.
func (g *Postgres) probeLocks(ctx context.Context, writer, other *sql.Conn) (proven string, err error) {
	err = g.inTx(ctx, writer, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, g.sql.limit, serverLimit(ctx), "on"); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, g.sql.probeLock).Scan(&proven); err != nil {
			return err
		}
		return g.inTx(ctx, other, func(tx *sql.Tx) error {
			var free int
			if err := tx.QueryRowContext(ctx, g.sql.probeTry).Scan(&free); err != nil {
				return cannot("a second connection of the pool cannot read the gate's tables: do all connections reach the same primary? %w", err)
			}
			if free != 0 {
				return cannot("a row that one connection has locked is free for another: do both reach the same database?")
			}
			return nil
		})
	})
	switch sqlState(err) {
	case stateNoLock, stateCancelled:
		err = fmt.Errorf("%w: another program is opening a gate and does not end; try again: %w", fence.ErrUndrained, err)
	case statePrivilege:
		err = cannot("this user may not use the gate's tables: grant USAGE on schema %s and SELECT, INSERT, UPDATE and DELETE on its tables: %w", g.schema, err)
	}
	return proven, err
}

// prove checks what the gate rests on beyond locks, once for a version of the
// server (each proof leaves an error in the server's log): a snapshot does not
// lock a row that has changed since, and the check at the commit can fail it.
func (g *Postgres) prove(ctx context.Context, writer, other *sql.Conn, version string) error {
	old, err := other.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	defer old.Rollback()
	var was string
	if err := old.QueryRowContext(ctx, `SELECT pg_current_snapshot()::text`).Scan(&was); err != nil {
		return err
	}
	set := func(to string) error {
		return g.inTx(ctx, writer, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, g.sql.limit, serverLimit(ctx), "on"); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, g.sql.probeSet, to)
			return err
		})
	}
	if err := set("proving"); err != nil {
		return err
	}
	var free int
	if err := old.QueryRowContext(ctx, g.sql.probeTry).Scan(&free); sqlState(err) != stateSerialize {
		return cannot("a transaction at REPEATABLE READ may lock a row that changed after its snapshot was taken (%w)", orNone(err))
	}
	err = g.inTx(ctx, writer, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, g.sql.probeStep)
		return err
	})
	if sqlState(err) != stateRefused {
		return cannot("a transaction that the gate's trigger must refuse at its commit got: %w", orNone(err))
	}
	return set(version)
}
