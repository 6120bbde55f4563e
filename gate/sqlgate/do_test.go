package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/gate/sqlgate"
)

type (
	snap  = sqlgate.Snapshot
	stmts = []sqlgate.Stmt
)

// insert is a statement that adds to the ledger.
func insert(t fence.Token, value string) sqlgate.Stmt {
	return sqlgate.Exec(`INSERT INTO ledger (token, value) VALUES (?, ?)`, t.String(), value)
}

func count(ctx context.Context, s *snap) (n int, err error) {
	err = s.QueryRow(ctx, `SELECT count(*) FROM ledger`).Scan(&n)
	return n, err
}

// A write that read is not applied on top of another that came between, with
// the same token; one that did not read is.
func TestDoNoticesAChangeSinceTheSnapshot(t *testing.T) {
	s := newShop(t)
	between := func(read bool) error {
		return s.gate.Do(t.Context(), token(5), func(ctx context.Context, snapshot *snap) (stmts, error) {
			if read {
				if _, err := count(ctx, snapshot); err != nil {
					return nil, err
				}
			}
			if err := s.write(token(5), "between"); err != nil {
				return nil, err
			}
			return stmts{insert(token(5), "after")}, nil
		})
	}
	if err := between(true); !errors.Is(err, sqlgate.ErrChanged) || errors.Is(err, fence.ErrRefused) {
		t.Fatalf("Do got %v; want ErrChanged, which is no refusal", err)
	}
	s.wantValues("between")
	if err := between(false); err != nil {
		t.Fatalf("a Do that read nothing got %v", err)
	}
	s.wantValues("between", "between", "after")
}

// Many goroutines of one holder count up and lose nothing.
func TestDoLosesNoUpdate(t *testing.T) {
	s := newShop(t)
	const workers, each = 4, 8
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := 0; i < each && errs[w] == nil; {
				err := s.gate.Do(t.Context(), token(5), func(ctx context.Context, snapshot *snap) (stmts, error) {
					n, err := count(ctx, snapshot)
					// Two that read the same n would make the same id.
					return stmts{sqlgate.Exec(`INSERT OR REPLACE INTO ledger (id, token, value) VALUES (?, ?, 'x')`, n+1, token(5).String())}, err
				})
				if err == nil {
					i++
				} else if !errors.Is(err, sqlgate.ErrChanged) {
					errs[w] = err
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := len(s.resource.Ledger(t)); n != workers*each {
		t.Fatalf("%d updates of %d survived", n, workers*each)
	}
}

// The snapshot shows one instant, cannot write, and ends with its function.
func TestSnapshot(t *testing.T) {
	s := newShop(t)
	if err := s.write(token(5), "first"); err != nil {
		t.Fatal(err)
	}
	var kept *snap
	err := s.gate.Do(t.Context(), token(5), func(ctx context.Context, snapshot *snap) (stmts, error) {
		kept = snapshot
		before, err := count(ctx, snapshot)
		if err != nil {
			return nil, err
		}
		if _, err := s.resource.db.Exec(`INSERT INTO ledger (token, value) VALUES (?, 'past the gate')`, token(5).String()); err != nil {
			return nil, err
		}
		after, err := count(ctx, snapshot)
		if err != nil || after != before {
			t.Errorf("the snapshot had %d rows, then %d (%v)", before, after, err)
		}
		for _, text := range []string{
			`WITH x AS (SELECT 1) INSERT INTO ledger (token, value) SELECT 'x', 'x' FROM x`,
			`WITH x AS (SELECT 1) DELETE FROM ledger`,
			`INSERT INTO ledger (token, value) VALUES ('x', 'x')`, `PRAGMA query_only = 0`, `COMMIT`,
		} {
			if rows, err := snapshot.Query(ctx, text); err == nil {
				for rows.Next() {
				}
				if rows.Err() == nil {
					t.Errorf("the snapshot ran %q", text)
				}
			}
		}
		var v string
		if err := snapshot.QueryRow(ctx, `SELECT value FROM ledger WHERE id = -1`).Scan(&v); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("no row gave %v", err)
		}
		var raw sql.RawBytes
		if err := snapshot.QueryRow(ctx, `SELECT value FROM ledger`).Scan(&raw); err == nil {
			t.Error("RawBytes of a closed row were given out")
		}
		snapshot.QueryRow(ctx, `SELECT value FROM ledger`) // never scanned
		if _, err := snapshot.Query(ctx, `SELECT value FROM ledger`); err != nil {
			t.Error(err)
		} // never closed
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Query(t.Context(), `SELECT 1`); !errors.Is(err, sqlgate.ErrSnapshotClosed) {
		t.Errorf("a snapshot after its function: %v; want ErrSnapshotClosed", err)
	}
	s.wantValues("first", "past the gate")
}

// All statements of a Do are applied, or none.
func TestDoIsAllOrNothing(t *testing.T) {
	s := newShop(t)
	for _, setup := range []string{
		`CREATE TABLE once (v PRIMARY KEY ON CONFLICT ROLLBACK)`,
		`INSERT INTO once VALUES (1)`,
		`CREATE TABLE evil (v)`,
		`CREATE TRIGGER evil AFTER INSERT ON evil BEGIN UPDATE holdfast_gate SET active = ''; END`,
	} {
		if _, err := s.resource.db.Exec(setup); err != nil {
			t.Fatal(err)
		}
	}
	s.resource.db.SetMaxOpenConns(2)
	for name, bad := range map[string]sqlgate.Stmt{
		"constraint":       sqlgate.Exec(`INSERT INTO ledger (token, value) VALUES ('x', 'fail')`),
		"no such table":    sqlgate.Exec(`INSERT INTO nothing VALUES (1)`),
		"bad argument":     sqlgate.Exec(`INSERT INTO ledger (token, value) VALUES (?, ?)`, "only one"),
		"OR ROLLBACK":      sqlgate.Exec(`INSERT OR ROLLBACK INTO ledger (id, token, value) VALUES (1, 'x', 'fail')`),
		"rolls back":       sqlgate.Exec(`INSERT INTO once VALUES (1)`),
		"smuggled":         sqlgate.Exec(`COMMIT; INSERT INTO ledger (token, value) VALUES ('x', 'x')`),
		"gate's own table": sqlgate.Exec(`UPDATE holdfast_gate SET writes = 0`),
		"by a trigger":     sqlgate.Exec(`INSERT INTO evil VALUES (1)`),
		"empty":            {},
	} {
		for _, plan := range []stmts{{insert(token(5), "a"), bad, insert(token(5), "b")}, {insert(token(5), "a"), bad}, {bad, insert(token(5), "b")}} {
			err := s.gate.Do(t.Context(), token(5), func(context.Context, *snap) (stmts, error) { return plan, nil })
			if err == nil || errors.Is(err, sqlgate.ErrOutcomeUnknown) {
				t.Errorf("%s: Do got %v; want an error, and nothing written", name, err)
			}
			s.wantValues()
		}
	}
	if err := s.write(token(5), "still works"); err != nil {
		t.Fatal(err)
	}
	s.wantValues("still works")
	if n := s.gate.Refusals(); len(n) != 0 {
		t.Errorf("failed statements were counted as refusals: %v", n)
	}
}

// A constraint that is checked at the commit fails it, and nothing is written.
func TestDoWhenTheCommitFails(t *testing.T) {
	path := newPath(t)
	db := open(t, "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)")
	for _, setup := range []string{createLedger, `CREATE TABLE parent (id INTEGER PRIMARY KEY)`,
		`CREATE TABLE child (parent REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)`} {
		if _, err := db.Exec(setup); err != nil {
			t.Fatal(err)
		}
	}
	g, err := sqlgate.New(t.Context(), db, config())
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t, path, &resource{path: path, db: db}, g}
	for range 3 {
		err = g.Do(t.Context(), token(5), func(context.Context, *snap) (stmts, error) {
			return stmts{insert(token(5), "a"), sqlgate.Exec(`INSERT INTO child VALUES (1)`)}, nil
		})
		if err == nil || errors.Is(err, sqlgate.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "FOREIGN KEY") {
			t.Fatalf("Do got %v; want the broken foreign key", err)
		}
		s.wantValues()
	}
	if err := s.write(token(5), "works"); err != nil {
		t.Fatal(err)
	}
}

// Statements that do not end are stopped, and hold nobody up for longer.
func TestDoIsBounded(t *testing.T) {
	s := newShop(t)
	if err := s.gate.Arm(t.Context(), token(5)); err != nil {
		t.Fatal(err)
	}
	s.gate.SetBound(100 * time.Millisecond)
	err := s.gate.Do(t.Context(), token(5), func(context.Context, *snap) (stmts, error) {
		return stmts{insert(token(5), "a"), sqlgate.Exec(`INSERT INTO ledger (token, value)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT 'x', i FROM n WHERE i < 0`)}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "100ms") {
		t.Fatalf("Do got %v; want it stopped after 100ms", err)
	}
	s.wantValues()
	s.gate.SetBound(20 * time.Second)
	if err := s.gate.Arm(t.Context(), token(6)); err != nil {
		t.Fatal(err)
	}
}

// Whatever becomes of the function, connections go back to the pool as they
// were, and its own error comes back.
func TestDoGivesConnectionsBack(t *testing.T) {
	s := newShop(t)
	db := s.resource.db
	db.SetMaxOpenConns(2)
	mine := errors.New("mine")
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := s.gate.Do(t.Context(), token(5), func(context.Context, *snap) (stmts, error) { return nil, mine }); err != mine {
			t.Fatalf("Do got %v, want the function's own error", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.gate.Do(t.Context(), token(5), func(ctx context.Context, snapshot *snap) (stmts, error) {
				_, _ = snapshot.Query(ctx, `SELECT * FROM ledger`)
				panic("function")
			})
		}()
		err := s.gate.Do(ctx, token(5), func(context.Context, *snap) (stmts, error) {
			cancel()
			return stmts{insert(token(5), "must not land")}, nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Do cancelled by its function got %v", err)
		}
		if err := s.gate.Arm(t.Context(), token(4)); fence.KindOf(err) != fence.KindStale {
			t.Fatal(err)
		}
	}
	if err := s.write(token(5), "lands"); err != nil {
		t.Fatal(err)
	}
	s.wantValues("lands")
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are still in use", n)
	}
}

// The step commits to the disk whatever the pool is set to, and changes no
// setting for good.
func TestStepIsDurable(t *testing.T) {
	path := newPath(t)
	db := open(t, "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(1234)&_txlock=immediate")
	if _, err := db.Exec(createLedger); err != nil {
		t.Fatal(err)
	}
	g, err := sqlgate.New(t.Context(), db, config())
	if err != nil {
		t.Fatal(err)
	}
	settings := func() (got [3]int) {
		t.Helper()
		row := db.QueryRow(`SELECT b.timeout, s.synchronous, q.query_only FROM pragma_busy_timeout b, pragma_synchronous s, pragma_query_only q`)
		if err := row.Scan(&got[0], &got[1], &got[2]); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if err := g.Arm(t.Context(), token(5)); err != nil {
		t.Fatal(err)
	}
	err = g.Do(t.Context(), token(5), func(ctx context.Context, snapshot *snap) (stmts, error) {
		var other int // the snapshot's transaction holds no lock, whatever _txlock says
		if err := g.Arm(ctx, token(5)); err != nil {
			return nil, err
		}
		err := snapshot.QueryRow(ctx, `SELECT synchronous FROM pragma_synchronous`).Scan(&other)
		return stmts{sqlgate.Exec(`INSERT INTO ledger (token, value) SELECT ?, synchronous FROM pragma_synchronous`, token(5).String())}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t, path, &resource{path: path, db: db}, g}
	s.wantValues("2")
	if got := settings(); got != [3]int{1234, 0, 0} {
		t.Errorf("busy_timeout, synchronous, query_only are %v afterwards, want 1234, 0, 0", got)
	}
}

// When functions that run long have all connections, Arm says so in time.
func TestArmWhenThePoolIsUsedUp(t *testing.T) {
	s := newShop(t)
	s.resource.db.SetMaxOpenConns(2)
	release, inside := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			_ = s.gate.Do(t.Context(), token(5), func(context.Context, *snap) (stmts, error) {
				inside <- struct{}{}
				<-release
				return nil, nil
			})
		})
	}
	<-inside
	<-inside
	s.gate.SetBound(100 * time.Millisecond)
	err := s.gate.Arm(t.Context(), token(6))
	var undrained *fence.UndrainedError
	if !errors.As(err, &undrained) || !strings.Contains(undrained.By, "all 2 connections") {
		t.Errorf("Arm got %v; want *fence.UndrainedError that names the pool", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.gate.Arm(ctx, token(6)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Arm with a short deadline got %v; want it to be told of the deadline", err)
	}
	close(release)
	all.Wait()
	s.gate.SetBound(20 * time.Second)
	if err := s.gate.Arm(t.Context(), token(6)); err != nil {
		t.Error(err)
	}
}

// The mark is raised before the function reads, also without Arm.
func TestDoArmsBeforeItReads(t *testing.T) {
	s := newShop(t)
	if err := s.write(token(5), "old"); err != nil {
		t.Fatal(err)
	}
	err := s.gate.Do(t.Context(), token(6), func(ctx context.Context, snapshot *snap) (stmts, error) {
		if err := s.write(token(5), "zombie"); fence.KindOf(err) != fence.KindStale {
			t.Errorf("an older token wrote while a newer one was reading: %v", err)
		}
		return stmts{insert(token(6), "new")}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.wantValues("old", "new")
	if err := s.gate.Do(t.Context(), token(6), nil); err == nil {
		t.Error("Do without a function succeeded")
	}
}

// A mark that falls while a Do is under way (the database was restored from a
// backup) is not mistaken for a first use.
func TestDoWhenTheRecordIsRestored(t *testing.T) {
	s := newShop(t)
	if err := s.gate.Arm(t.Context(), token(5)); err != nil {
		t.Fatal(err)
	}
	err := s.gate.Do(t.Context(), token(5), func(context.Context, *snap) (stmts, error) {
		_, err := s.resource.db.Exec(`DROP TRIGGER holdfast_gate_mark_delete; DELETE FROM holdfast_gate_mark`)
		return stmts{insert(token(5), "must not land")}, err
	})
	if !errors.Is(err, fence.ErrRecord) {
		t.Fatalf("Do got %v; want ErrRecord", err)
	}
	s.wantValues()
}

// Another gate's refusal that the function returns is not this gate's.
func TestFunctionsRefusalIsNotCounted(t *testing.T) {
	s := newShop(t)
	theirs := &fence.StaleError{Gate: "another", Offered: token(1), Seen: token(2)}
	err := s.gate.Do(t.Context(), token(5), func(context.Context, *snap) (stmts, error) { return nil, theirs })
	if err != error(theirs) || len(s.gate.Refusals()) != 0 {
		t.Fatalf("Do got %v, and counts %v", err, s.gate.Refusals())
	}
	var said strings.Builder
	g, err := sqlgate.New(t.Context(), s.resource.db, sqlgate.Config{Lock: "invoices", Dialect: sqlgate.SQLite, Name: "books", Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Arm(t.Context(), token(4)); fence.KindOf(err) != fence.KindStale {
		t.Fatal(err)
	}
	if g.Refusals()[fence.KindStale] != 1 || !strings.Contains(said.String(), "gate=books") || !strings.Contains(said.String(), "offered=4@") || !strings.Contains(said.String(), "seen=5@") {
		t.Fatalf("a refusal counts %v and logs %q", g.Refusals(), said.String())
	}
	if g.Name() != "books" || g.Lock() != "invoices" {
		t.Fatalf("the gate is %q for %q", g.Name(), g.Lock())
	}
}
