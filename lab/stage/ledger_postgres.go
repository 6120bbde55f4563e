package stage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"holdfast/fence"
	"holdfast/gate/sqlgate"
)

// DSNVariable is the environment variable in which workers, and a sweeper, find
// the address of PostgreSQL: it may hold a password, which everybody could read
// in an argument.
const DSNVariable = "HOLDFAST_DSN"

const postgresPlace = "postgres:"

// PostgresPlace names, for [OpenLedger], a ledger in a schema of its own in the
// database that [DSNVariable] gives.
func PostgresPlace(schema string) string { return postgresPlace + schema }

// postgresBook is a ledger in a schema of PostgreSQL.
type postgresBook struct {
	db      *sql.DB
	guarded *sqlgate.Postgres
}

// One statement a line.
const postgresLedger = `
CREATE TABLE IF NOT EXISTS ledger (seq bigint PRIMARY KEY, worker text NOT NULL, token bigint NOT NULL, value text NOT NULL, basis bigint NOT NULL)
CREATE TABLE IF NOT EXISTS invoice (id int PRIMARY KEY CHECK (id = 1), worker text NOT NULL, value text NOT NULL)`

// CheckDSN refuses what is no address of a PostgreSQL.
func CheckDSN(dsn string) error {
	_, err := pgx.ParseConfig(dsn)
	return err
}

// connectPostgres returns the database of DSNVariable, with schema, if not "",
// as the place of its tables.
func connectPostgres(schema string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(os.Getenv(DSNVariable))
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "holdfast drill"
	if schema != "" {
		config.RuntimeParams["search_path"] = schema
	}
	return stdlib.OpenDB(*config), nil
}

// MakeSchema makes a schema that must not exist, in the database of
// [DSNVariable], with a ledger's tables in it. owner says whose it is.
func MakeSchema(ctx context.Context, schema, owner string) error {
	db, err := connectPostgres(schema)
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // ErrTxDone after a commit
	texts := []string{`CREATE SCHEMA ` + pgx.Identifier{schema}.Sanitize(), `COMMENT ON SCHEMA ` + pgx.Identifier{schema}.Sanitize() + ` IS ` + quote(owner)}
	for _, text := range append(texts, strings.Split(strings.TrimSpace(postgresLedger), "\n")...) {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// dropTime is how long DropSchema goes on trying: sessions of workers that are
// just dying may still hold locks.
const dropTime = 10 * time.Second

// quote makes a literal, whatever standard_conforming_strings says.
func quote(s string) string {
	return `E'` + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + `'`
}

// DropSchema removes a schema that [MakeSchema] made for owner, and all in it.
// That there is none, or one of somebody else, is no error.
func DropSchema(ctx context.Context, schema, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, dropTime)
	defer cancel()
	db, err := connectPostgres("")
	if err != nil {
		return err
	}
	defer db.Close()
	var there bool
	err = db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1 AND obj_description(oid, 'pg_namespace') = $2)`, schema, owner).Scan(&there)
	if err != nil {
		return fmt.Errorf("the schema %s may still be in the database: %w", schema, err)
	}
	if !there {
		return nil
	}
	if _, err := db.ExecContext(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{schema}.Sanitize()+` CASCADE`); err != nil {
		return fmt.Errorf("the schema %s is still in the database: %w", schema, err)
	}
	return nil
}

func openPostgres(ctx context.Context, schema, lock string) (*postgresBook, error) {
	db, err := connectPostgres(schema)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	b := &postgresBook{db: db}
	b.guarded, err = sqlgate.NewPostgres(ctx, db, sqlgate.Config{
		Lock: lock, Name: GateName, Schema: schema, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return b, nil
}

func (b *postgresBook) close() error { return b.db.Close() }

func (b *postgresBook) gate() Gate { return b.guarded }

func (b *postgresBook) last(ctx context.Context) (seq int64, err error) {
	err = b.db.QueryRowContext(ctx, lastLine).Scan(&seq)
	return seq, err
}

func (b *postgresBook) lines(ctx context.Context) ([]Line, Invoice, error) {
	return readTables(ctx, b.db)
}

func (b *postgresBook) through(ctx context.Context, t fence.Token, n Line, inside func(basis int64) error) (seq int64, err error) {
	err = b.guarded.Do(ctx, t, nil, func(ctx context.Context, tx *sql.Tx) error {
		if inside != nil {
			if err := tx.QueryRowContext(ctx, lastLine).Scan(&n.Basis); err != nil {
				return err
			}
			if err := inside(n.Basis); err != nil {
				return err
			}
		}
		seq, err = n.insert(ctx, tx)
		return err
	})
	return seq, err
}

func (b *postgresBook) past(ctx context.Context, n Line) (seq int64, err error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // ErrTxDone after a commit
	if seq, err = n.insert(ctx, tx); err != nil {
		return 0, err
	}
	return seq, tx.Commit()
}

// insert does the two writes of one run. Numbers are without gaps, which two
// at once would pay for with an error.
func (n Line) insert(ctx context.Context, tx *sql.Tx) (seq int64, err error) {
	err = tx.QueryRowContext(ctx, `INSERT INTO ledger (seq, worker, token, value, basis) SELECT coalesce(max(seq), 0) + 1, $1::text, $2::bigint, $3::text, $4::bigint FROM ledger RETURNING seq`,
		n.Worker, int64(n.Token), n.Value, n.Basis).Scan(&seq)
	if err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO invoice (id, worker, value) VALUES (1, $1, $2) ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, value = excluded.value`, n.Worker, n.Value)
	return seq, err
}
