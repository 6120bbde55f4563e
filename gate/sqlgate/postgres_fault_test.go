package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
	"holdfast/gate/sqlgate"
	"holdfast/internal/pgtest"
)

// held starts a write of n that stops within its commit, after the check.
// resume lets it go on and returns its answer.
func (s *pgShop) held(g *sqlgate.Postgres, n uint64) (resume func() error) {
	s.T.Helper()
	there, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	open := sync.OnceFunc(func() { close(goOn) })
	s.Cleanup(open)
	go func() {
		done <- pgGate{g, s.pgResource, nil}.Write(context.WithoutCancel(s.Context()), fencetest.Write{Token: token(n), Value: fmt.Sprint("held ", n), Final: func() {
			close(there)
			<-goOn
		}})
	}()
	select {
	case <-there:
	case err := <-done:
		s.Fatalf("the write did not come to its commit: %v", err)
	}
	return func() error {
		open()
		return <-done
	}
}

// Whoever holds the mark within a commit that does not end makes Arm fail in
// bounded time, and is named; a shorter limit of its own ends it first.
func TestPostgresArmIsBoundedAndNamesWhoBlocks(t *testing.T) {
	s := newPGShop(t, "&application_name=billing")
	if err := s.gate.Arm(t.Context(), token(33)); err != nil {
		t.Fatal(err)
	}
	resume := s.held(s.gate, 33) // may stand there for 10 s
	b := s.another(s.pools[1])
	b.SetBound(400 * time.Millisecond)
	began := time.Now()
	err := b.Arm(t.Context(), token(34))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Arm took %v, want about 400ms", took)
	}
	var undrained *fence.UndrainedError
	if !errors.As(err, &undrained) || !strings.Contains(undrained.By, "token 33") || !strings.Contains(undrained.By, "billing") || !strings.Contains(undrained.By, "session ") {
		t.Fatalf("Arm got %v; want *fence.UndrainedError that names token 33, the session and its program", err)
	}
	// The intent stands: nobody begins with the older token any more.
	if err := s.write(33, "after the intent"); fence.KindOf(err) != fence.KindStale {
		t.Errorf("a transaction of 33 that begins after the intent of 34 got %v; want stale", err)
	}
	state, err := b.Show(t.Context())
	if err != nil || len(state.Marks) != 1 || state.Marks[0].Token != token(33) {
		t.Errorf("the marks are %v, %v; want 33 only", state.Marks, err)
	}
	if err := resume(); err != nil {
		t.Errorf("the write that was held, and was admitted before, got %v", err)
	}
	if err := b.Arm(t.Context(), token(34)); err != nil {
		t.Error(err)
	}
	s.wantValues("held 33")
}

// A crowd of sharers that never lets the mark go free, since each begins
// before the last has ended, does not starve a raise.
func TestPostgresCrowdOfSharers(t *testing.T) {
	s := newPGShop(t, "")
	const crowd = 10
	shared := token(1)
	shared.Mode = fence.Shared
	config := s.config()
	config.AllowShared = true
	s.exec(`CREATE TABLE slow (v int)`)
	s.exec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END $$`)
	s.exec(`CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()`)
	var writing, all sync.WaitGroup
	errs := make([]error, crowd)
	for i := range crowd {
		g, err := sqlgate.NewPostgres(t.Context(), s.pools[i%2], config)
		if err != nil {
			t.Fatal(err)
		}
		writing.Add(1)
		all.Go(func() {
			first := sync.OnceFunc(writing.Done)
			defer first()
			for errs[i] == nil {
				errs[i] = g.Do(t.Context(), shared, nil, func(ctx context.Context, tx *sql.Tx) error {
					// The commit waits in the server, with the mark locked.
					_, err := tx.ExecContext(ctx, `INSERT INTO slow VALUES (1)`)
					return err
				})
				first()
			}
		})
	}
	writing.Wait()
	if err := s.another(s.pools[2]).Arm(t.Context(), token(2)); err != nil {
		t.Errorf("Arm among the crowd: %v", err)
	}
	all.Wait()
	for _, err := range errs {
		if fence.KindOf(err) != fence.KindStale {
			t.Errorf("one of the crowd got %v; want stale", err)
		}
	}
}

// A session that is ended within its commit has written nothing, holds nothing,
// and the gate knows it.
func TestPostgresKilledBackend(t *testing.T) {
	s := newPGShop(t, "")
	resume := s.held(s.gate, 33)
	s.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err := resume(); err == nil || errors.Is(err, sqlgate.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "nothing was written") {
		t.Fatalf("the write whose session was ended got %v; want it known that nothing was written", err)
	}
	s.wantValues()
	if err := s.another(s.pools[1]).Arm(t.Context(), token(34)); err != nil {
		t.Fatal(err)
	}
	if err := s.write(33, "late"); fence.KindOf(err) != fence.KindStale {
		t.Errorf("a stale write got %v", err)
	}
}

// After a crash of the whole server the marks are there, and gates that were
// open go on.
func TestPostgresServerCrashes(t *testing.T) {
	c, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	db := openPG(t, c.DSN("postgres"))
	if _, err := db.Exec(`CREATE TABLE ledger (token text, value text)`); err != nil {
		t.Fatal(err)
	}
	g, err := sqlgate.NewPostgres(t.Context(), db, sqlgate.Config{Lock: "invoices", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	write := func(n uint64) error {
		return g.Do(t.Context(), token(n), nil, func(ctx context.Context, tx *sql.Tx) error { return put(ctx, tx, n, "v") })
	}
	if err := write(33); err != nil {
		t.Fatal(err)
	}
	if err := g.Arm(t.Context(), token(34)); err != nil {
		t.Fatal(err)
	}
	err = g.Do(t.Context(), token(34), nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := put(ctx, tx, 34, "lost"); err != nil {
			return err
		}
		return errors.Join(c.End(), c.Run())
	})
	if err == nil {
		t.Error("a transaction outlived the server")
	}
	db = openPG(t, c.DSN("postgres")) // the port may be another
	if g, err = sqlgate.NewPostgres(t.Context(), db, sqlgate.Config{Lock: "invoices", Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if err := write(33); fence.KindOf(err) != fence.KindStale {
		t.Errorf("after the crash, the older token got %v; want stale", err)
	}
	if err := write(34); err != nil {
		t.Errorf("after the crash, the newer token got %v", err)
	}
	if err := errors.Join(c.End(), c.RunAsStandby()); err != nil {
		t.Fatal(err)
	}
	db = openPG(t, c.DSN("postgres"))
	if _, err := sqlgate.NewPostgres(t.Context(), db, sqlgate.Config{Lock: "invoices"}); !errors.Is(err, sqlgate.ErrCannotFence) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("on a standby New got %v; want ErrCannotFence that says so", err)
	}
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM ledger WHERE value = 'v'`).Scan(&n); err != nil || n != 2 {
		t.Errorf("the ledger has %d of 2 lines, %v", n, err)
	}
}

// When the answer to the commit is lost, Do asks the server what became of it;
// only if nobody answers the outcome is unknown.
func TestPostgresAnswerToTheCommitIsLost(t *testing.T) {
	for _, back := range []bool{true, false} {
		s := newPGShop(t, "")
		p := s.newLine()
		g := s.another(openPG(t, p.dsn))
		if err := g.Arm(t.Context(), token(33)); err != nil {
			t.Fatal(err)
		}
		if !back {
			g.SetBound(500 * time.Millisecond)
		}
		g.SetReached(func(_ context.Context, point string) {
			if point == sqlgate.PointUncommitted {
				p.refuse.Store(!back)
				p.cut.Store(true)
				if back {
					go func() { // new connections work
						for p.cut.Load() {
							var n int
							if s.db.QueryRow(`SELECT count(*) FROM ledger`).Scan(&n) != nil || n > 0 {
								p.cut.Store(false)
							}
						}
					}()
				}
			}
		})
		err := g.Do(t.Context(), token(33), nil, func(ctx context.Context, tx *sql.Tx) error { return put(ctx, tx, 33, "v") })
		if back && err != nil {
			t.Errorf("the write was committed, and Do got %v", err)
		}
		if !back && !errors.Is(err, sqlgate.ErrOutcomeUnknown) {
			t.Errorf("nobody answers, and Do got %v; want ErrOutcomeUnknown", err)
		}
		s.wantValues("v")
	}
}
