package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/gate/sqlgate"
)

// childOnPostgres is child on a database of PostgreSQL: it changes a row, so
// that it holds a lock on it, stops where do says, and adds a line.
func childOnPostgres(dsn, do, text string) error {
	ctx := context.Background()
	token, err := fence.ParseToken(text)
	if err != nil {
		return err
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	g, err := sqlgate.NewPostgres(ctx, openPG(dieT{}, dsn), sqlgate.Config{
		Lock: token.Lock, Schema: u.Query().Get("search_path"), Bound: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	g.SetReached(func(_ context.Context, point string) {
		if point == do {
			stopHere()
		}
	})
	if err := g.Arm(ctx, token); err != nil {
		return err
	}
	fmt.Println("armed")
	return g.Do(ctx, token, nil, func(ctx context.Context, tx *sql.Tx) error {
		if do == "before" {
			stopHere()
		}
		if _, err := tx.ExecContext(ctx, `UPDATE ledger SET value = value || '!'`); err != nil {
			return err
		}
		if do == "inside" {
			stopHere()
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO ledger (token, value) VALUES ($1, 'child')`, token.String())
		return err
	})
}

// A real process is stopped with a row locked; the next holder arms at once,
// and writes to the same row as soon as the server has ended the silent one;
// the late write is refused, with both numbers. Killed instead, it leaves
// nothing.
func TestCasebookC01_StoppedProcessOnPostgreSQL(t *testing.T) {
	for _, where := range []string{"before", "inside", sqlgate.PointPlanned, sqlgate.PointUncommitted} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/kill=%t", where, kill), func(t *testing.T) {
				s := newPGShop(t, "")
				if err := s.write(33, "by 33"); err != nil {
					t.Fatal(err)
				}
				a := start(t, s.dsn, where, token(33))
				a.line("armed")
				a.awaitStopped()
				s.gate.SetBound(time.Second) // the child's transaction may be silent for as long
				if err := s.gate.Arm(t.Context(), token(34)); err != nil {
					t.Fatalf("Arm while the older holder is stopped: %v", err)
				}
				s.gate.SetBound(20 * time.Second)
				if kill {
					a.signal(syscall.SIGKILL)
				}
				err := s.gate.Do(t.Context(), token(34), nil, func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, `UPDATE ledger SET value = 'by 34'`)
					return err
				})
				if err != nil {
					t.Fatalf("Write to the row that the older holder had locked: %v", err)
				}
				if !kill {
					a.signal(syscall.SIGCONT)
					if said := a.line("refused"); !strings.Contains(said, "stale") || !strings.Contains(said, "33") || !strings.Contains(said, "34") {
						t.Fatalf("the late writer got %q; want stale, with 33 and 34", said)
					}
				}
				s.wantValues("by 34")
			})
		}
	}
}

// A client that is stopped while the server sends it rows is not idle, and no
// time limit of a statement ends that; a limit of its connection does, so the
// row that it has locked comes free.
func TestPostgresStoppedReaderIsEnded(t *testing.T) {
	s := newPGShop(t, "")
	if err := s.write(33, "by 33"); err != nil {
		t.Fatal(err)
	}
	p := s.newLine()
	g := s.another(openPG(t, p.dsn))
	g.SetBound(2 * time.Second)
	err := g.Do(t.Context(), token(33), nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE ledger SET value = 'late'`); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT repeat('x', 10000) FROM generate_series(1, 100000)`)
		if err != nil {
			return err
		}
		defer rows.Close()
		p.stall()
		defer p.flow()
		if err := s.gate.Arm(ctx, token(34)); err != nil {
			return fmt.Errorf("arming: %w", err)
		}
		return s.gate.Do(ctx, token(34), nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE ledger SET value = 'by 34'`)
			return err
		})
	})
	if fence.KindOf(err) != fence.KindStale {
		t.Errorf("the stopped reader got %v; want stale", err)
	}
	s.wantValues("by 34")
}

// A database that cannot fence is refused at construction, saying why.
func TestNewPostgresProbesTheDatabase(t *testing.T) {
	s := newPGShop(t, "")
	s.exec(`CREATE ROLE reader LOGIN`)
	s.exec(`CREATE ROLE writer LOGIN`)
	s.exec(`GRANT USAGE ON SCHEMA ` + s.schema + ` TO writer`)
	s.exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ` + s.schema + ` TO writer`)
	as := func(role string) string { return strings.Replace(s.dsn, "postgres@", role+"@", 1) }
	for name, c := range map[string]struct {
		dsn  string
		says string
	}{
		"read only":            {s.dsn + "&default_transaction_read_only=on", "read-only"},
		"a user without right": {as("reader"), "grant"},
	} {
		if _, err := sqlgate.NewPostgres(t.Context(), openPG(t, c.dsn), s.config()); !errors.Is(err, sqlgate.ErrCannotFence) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: New got %v; want ErrCannotFence that says %q", name, err, c.says)
		}
	}
	one := openPG(t, s.dsn)
	one.SetMaxOpenConns(1)
	if _, err := sqlgate.NewPostgres(t.Context(), one, s.config()); !errors.Is(err, sqlgate.ErrCannotFence) {
		t.Errorf("one connection: New got %v", err)
	}
	if _, err := sqlgate.NewPostgres(t.Context(), openDB(t, newPath(t)), s.config()); err == nil {
		t.Error("SQLite was taken for PostgreSQL")
	}
	// A user with these rights and no others can do all that a gate does.
	g, err := sqlgate.NewPostgres(t.Context(), openPG(t, as("writer")), s.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := (pgGate{g, s.pgResource, nil}).Arm(t.Context(), token(5)); err != nil {
		t.Error(err)
	}
	if err := g.Do(t.Context(), token(6), nil, func(ctx context.Context, tx *sql.Tx) error { return put(ctx, tx, 6, "v") }); err != nil {
		t.Error(err)
	}
}

func TestNewPostgresRefusesBadConfig(t *testing.T) {
	s := newPGShop(t, "")
	for name, change := range map[string]func(*sqlgate.Config){
		"no lock":         func(c *sqlgate.Config) { c.Lock = "" },
		"a dialect":       func(c *sqlgate.Config) { c.Dialect = sqlgate.SQLite },
		"reserved schema": func(c *sqlgate.Config) { c.Schema = "pg_gate" },
		"quoted schema":   func(c *sqlgate.Config) { c.Schema = `a"b` },
		"capitals":        func(c *sqlgate.Config) { c.Schema = "Gate" },
		"long schema":     func(c *sqlgate.Config) { c.Schema = strings.Repeat("x", 64) },
		"minus bound":     func(c *sqlgate.Config) { c.Bound = -time.Second },
	} {
		c := s.config()
		change(&c)
		if _, err := sqlgate.NewPostgres(t.Context(), s.db, c); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("%s: New got %v; want ErrMalformed", name, err)
		}
	}
	c := config()
	c.Schema = "x"
	if _, err := sqlgate.New(t.Context(), openDB(t, newPath(t)), c); !errors.Is(err, fence.ErrMalformed) {
		t.Errorf("a schema on SQLite: New got %v; want ErrMalformed", err)
	}
	if _, err := sqlgate.NewPostgres(t.Context(), nil, s.config()); !errors.Is(err, fence.ErrMalformed) {
		t.Errorf("no database: New got %v; want ErrMalformed", err)
	}
}

// Tables that are not as the gate made them are not used.
func TestNewPostgresRefusesADamagedRecord(t *testing.T) {
	for _, damage := range []string{
		`DROP TRIGGER holdfast_gate_check ON @.holdfast_gate_step`,
		`ALTER TABLE @.holdfast_gate_step DISABLE TRIGGER holdfast_gate_check`,
		`ALTER TABLE @.holdfast_gate_step ENABLE TRIGGER holdfast_gate_check`,
		`ALTER TABLE @.holdfast_gate_mark DISABLE TRIGGER ALL`,
		`DROP TABLE @.holdfast_gate_mark`,
		`ALTER TABLE @.holdfast_gate ADD COLUMN more text`,
		`ALTER TABLE @.holdfast_gate_mark DROP CONSTRAINT holdfast_gate_mark_pkey`,
		`CREATE TABLE @.holdfast_gate_more (x int)`,
		`CREATE OR REPLACE FUNCTION @.holdfast_gate_check() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
		`CREATE TRIGGER aaa BEFORE UPDATE ON @.holdfast_gate_mark FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
	} {
		s := newPGShop(t, "")
		s.exec(strings.ReplaceAll(damage, "@", s.schema))
		if _, err := sqlgate.NewPostgres(t.Context(), s.db, s.config()); !errors.Is(err, fence.ErrRecord) {
			t.Errorf("after %s: New got %v; want ErrRecord", damage, err)
		}
	}
}

// A record that makes no sense refuses everything, and is reported; and the
// triggers keep a mark from falling even for those who go past the gate.
func TestPostgresMarkNeverFallsPastTheGate(t *testing.T) {
	s := newPGShop(t, "")
	if err := s.gate.Arm(t.Context(), token(5)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`UPDATE @.holdfast_gate_mark SET number = 4`,
		`UPDATE @.holdfast_gate_mark SET token = 'other'`,
		`UPDATE @.holdfast_gate_mark SET lock = 'other', number = 9`,
		`DELETE FROM @.holdfast_gate_mark`,
		`TRUNCATE @.holdfast_gate_mark`,
		`DELETE FROM @.holdfast_gate`,
		`TRUNCATE @.holdfast_gate`,
		`SET session_replication_role = replica; DELETE FROM @.holdfast_gate_mark`,
		`INSERT INTO @.holdfast_gate_mark SELECT lock, domain, slot, 1, token, raised_at, raised_by FROM @.holdfast_gate_mark ON CONFLICT (lock, domain, slot) DO UPDATE SET number = 1`,
	} {
		if _, err := s.db.Exec(strings.ReplaceAll(text, "@", s.schema)); err == nil || !strings.Contains(err.Error(), "holdfast: a mark never falls") {
			t.Errorf("%s got %v; want it refused by a trigger", text, err)
		}
	}
	s.exec(`UPDATE ` + s.schema + `.holdfast_gate_mark SET number = number + 1`) // its token says otherwise
	for _, n := range []uint64{4, 5, 6, 7} {
		if err := s.gate.Arm(t.Context(), token(n)); !errors.Is(err, fence.ErrRecord) {
			t.Errorf("Arm(%d) of a damaged record got %v; want ErrRecord", n, err)
		}
		if err := s.write(n, "must not land"); !errors.Is(err, fence.ErrRecord) {
			t.Errorf("Write(%d) of a damaged record got %v; want ErrRecord", n, err)
		}
	}
	s.wantValues()
	if n := s.gate.Refusals()[fence.KindRecord]; n != 8 {
		t.Errorf("%d refusals were counted, want 8", n)
	}
}

// Any number of processes may open a new database at once.
func TestNewPostgresRace(t *testing.T) {
	s := newPGShop(t, "")
	c := s.config()
	c.Schema = s.schema + "_race"
	errs := make(chan error)
	for range 5 {
		db := openPG(t, s.dsn)
		go func() {
			_, err := sqlgate.NewPostgres(t.Context(), db, c)
			errs <- err
		}()
	}
	for range 5 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
