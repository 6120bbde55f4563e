package sqlgate_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
	"holdfast/gate/sqlgate"

	_ "modernc.org/sqlite"
)

// openDB opens a database file the way a program would.
func openDB(t fencetest.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// newPath returns the path of a database in a new directory: one in memory
// where there is such a thing, for the tests commit often, and none of them
// cuts the power.
func newPath(t fencetest.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sqlgate-test-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "data.db")
}

const createLedger = `CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, token TEXT NOT NULL, value TEXT CHECK (value <> 'fail'))`

// resource is a database with a ledger. Gates on it have connections of their
// own, as those of other processes would; more than a few pools would only
// take time.
type resource struct {
	path   string
	db     *sql.DB
	bound  time.Duration
	opened atomic.Uint32
	pools  [4]*sql.DB
}

func newResource(t fencetest.T) fencetest.Resource {
	t.Helper()
	path := newPath(t)
	db := openDB(t, path)
	if _, err := db.Exec(createLedger); err != nil {
		t.Fatalf("create the ledger: %v", err)
	}
	r := &resource{path: path, db: db, bound: 2 * time.Second}
	for i := range r.pools {
		r.pools[i] = openDB(t, path)
	}
	return r
}

func (r *resource) Ledger(t fencetest.T) []fencetest.Entry {
	t.Helper()
	rows, err := r.db.Query(`SELECT token, value FROM ledger ORDER BY id`)
	if err != nil {
		t.Fatalf("read the ledger: %v", err)
	}
	defer rows.Close()
	var all []fencetest.Entry
	for rows.Next() {
		var token, value string
		if err := rows.Scan(&token, &value); err != nil {
			t.Fatalf("read the ledger: %v", err)
		}
		parsed, err := fence.ParseToken(token)
		if err != nil {
			t.Fatalf("read the ledger: %v", err)
		}
		all = append(all, fencetest.Entry{Token: parsed, Value: value})
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("read the ledger: %v", err)
	}
	return all
}

func (r *resource) Open(t fencetest.T, o fencetest.Options) (fencetest.Gate, error) {
	t.Helper()
	pool := r.pools[r.opened.Add(1)%uint32(len(r.pools))]
	g, err := sqlgate.New(context.Background(), pool, sqlgate.Config{
		Lock: o.Lock, Dialect: sqlgate.SQLite, Name: o.Name, Slots: o.Slots, AllowShared: o.AllowShared,
		Domain: o.Domain, Bound: r.bound, Reporter: o.Reporter, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	g.SetReached(func(ctx context.Context, point string) {
		if final, ok := ctx.Value(finalKey{}).(func()); ok && point == sqlgate.PointUncommitted {
			final()
		}
	})
	return suiteGate{g}, nil
}

type finalKey struct{}

type suiteGate struct{ *sqlgate.Gate }

func (g suiteGate) Write(ctx context.Context, w fencetest.Write) error {
	if w.Final != nil {
		ctx = context.WithValue(ctx, finalKey{}, w.Final)
	}
	value := w.Value
	if w.Fail {
		value = "fail"
	}
	return g.Do(ctx, w.Token, func(context.Context, *sqlgate.Snapshot) ([]sqlgate.Stmt, error) {
		if w.Inside != nil {
			w.Inside()
		}
		return []sqlgate.Stmt{sqlgate.Exec(`INSERT INTO ledger (token, value) VALUES (?, ?)`, w.Token.String(), value)}, nil
	})
}

func harness(rounds int) fencetest.Harness {
	return fencetest.Harness{New: newResource, ArmBound: 20 * time.Second, Rounds: rounds}
}

func TestGate(t *testing.T) { fencetest.Run(t, harness(10)) }

func TestCasebookC45_EqualNumberOfAnotherIncarnation(t *testing.T) {
	fencetest.Case(t, harness(0), "C45")
}

func TestCasebookC46_ArmWithoutData(t *testing.T) { fencetest.Case(t, harness(0), "C46") }

func TestCasebookC48_FirstUseRace(t *testing.T) { fencetest.Case(t, harness(200), "C48") }
