package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
	"holdfast/gate/sqlgate"
	"holdfast/internal/pgtest"
)

// pgResource is a database of PostgreSQL with a ledger, and gates on it with
// connections of their own, as those of other processes would have.
type pgResource struct {
	dsn    string
	schema string
	db     *sql.DB
	pools  [3]*sql.DB
	bound  time.Duration
	opened atomic.Uint32
	holds  atomic.Int64
}

// A line of the ledger whose hold is not 0 makes its commit wait, in the server
// and after the gate's own check, until nobody holds that advisory lock.
const pgLedger = `CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, token text NOT NULL, value text CHECK (value <> 'fail'), hold bigint NOT NULL DEFAULT 0);
CREATE FUNCTION ledger_hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.hold <> 0 THEN PERFORM pg_advisory_xact_lock(NEW.hold); END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER ledger_hold AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_hold();`

// pgShared is the database that the checks of the suite share, each with
// a schema of its own: to make a database takes longer than most checks.
var pgShared struct {
	sync.Mutex
	dsn  string
	made int
}

func openPG(t fencetest.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatalf("open %s: %v", dsn, err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// newPG makes the ledger; more settings may follow the search path in options.
func newPG(t *testing.T, f fencetest.T, options string) *pgResource {
	f.Helper()
	pgShared.Lock()
	if pgShared.dsn == "" {
		pgShared.dsn = pgtest.Shared(t).Database(t)
	}
	pgShared.made++
	r := &pgResource{schema: fmt.Sprintf("suite_%d", pgShared.made), bound: 2 * time.Second}
	dsn := pgShared.dsn + "&search_path=" + r.schema + options
	pgShared.Unlock()
	r.dsn = dsn
	r.db = openPG(f, dsn)
	for _, text := range []string{"CREATE SCHEMA " + r.schema, pgLedger} {
		if _, err := r.db.Exec(text); err != nil {
			f.Fatalf("%s: %v", text, err)
		}
	}
	for i := range r.pools {
		r.pools[i] = openPG(f, dsn)
	}
	return r
}

func (r *pgResource) Ledger(t fencetest.T) (all []fencetest.Entry) {
	t.Helper()
	rows, err := r.db.Query(`SELECT token, value FROM ledger ORDER BY id`)
	if err != nil {
		t.Fatalf("read the ledger: %v", err)
	}
	defer rows.Close()
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

func (r *pgResource) Open(t fencetest.T, o fencetest.Options) (fencetest.Gate, error) {
	t.Helper()
	pool := r.pools[r.opened.Add(1)%uint32(len(r.pools))]
	g, err := sqlgate.NewPostgres(context.Background(), pool, sqlgate.Config{
		Lock: o.Lock, Schema: r.schema, Name: o.Name, Slots: o.Slots, AllowShared: o.AllowShared,
		Domain: o.Domain, Bound: r.bound, Reporter: o.Reporter, Logger: slog.New(slog.DiscardHandler),
	})
	return pgGate{g, r, nil}, err
}

type pgGate struct {
	*sqlgate.Postgres
	resource *pgResource
	opts     *sql.TxOptions
}

func (g pgGate) Write(ctx context.Context, w fencetest.Write) error {
	if w.Final == nil {
		return g.write(ctx, w, 0)
	}
	// The write stops within its commit, after the check, because this
	// connection holds what it waits for there.
	conn, err := g.resource.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	hold := int64(fnvOf(g.resource.schema)) + g.resource.holds.Add(1)
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, hold); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- g.write(ctx, w, hold) }()
	reached, cancel := context.WithCancelCause(ctx)
	go func() {
		err := <-done
		cancel(fmt.Errorf("the write ended: %w", err))
		done <- err
	}()
	if err := awaitWaiter(reached, conn, hold); err != nil {
		return errors.Join(err, context.Cause(reached))
	}
	w.Final()
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, hold); err != nil {
		return err
	}
	return <-done
}

func fnvOf(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	return h.Sum32()
}

// awaitWaiter waits until another session waits for advisory lock hold.
func awaitWaiter(ctx context.Context, conn *sql.Conn, hold int64) error {
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		var waits bool
		err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND (classid::bigint << 32) + objid::bigint = $1)`, hold).Scan(&waits)
		if err != nil || waits {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g pgGate) write(ctx context.Context, w fencetest.Write, hold int64) error {
	value := w.Value
	if w.Fail {
		value = "fail"
	}
	return g.Do(ctx, w.Token, g.opts, func(ctx context.Context, tx *sql.Tx) error {
		if w.Inside != nil {
			w.Inside()
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO ledger (token, value, hold) VALUES ($1, $2, $3)`, w.Token.String(), value, hold)
		return err
	})
}

func pgHarness(t *testing.T, rounds int) fencetest.Harness {
	return fencetest.Harness{
		New:      func(f fencetest.T) fencetest.Resource { return newPG(t, f, "") },
		ArmBound: 20 * time.Second, Rounds: rounds,
	}
}

func TestPostgres(t *testing.T) { fencetest.Run(t, pgHarness(t, 10)) }

func TestCasebookC44_NumbersAreExactOnPostgreSQL(t *testing.T) {
	r := newPG(t, t, "")
	g, err := r.Open(t, fencetest.Options{Lock: "invoices", Name: "pg"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		number uint64
		kind   fence.Kind
	}{
		{9007199254740993, fence.KindNone}, {9007199254740992, fence.KindStale}, {9007199254740993, fence.KindNone},
		{9007199254740994, fence.KindNone}, {9007199254740993, fence.KindStale}, {1<<63 - 1, fence.KindNone}, {1<<63 - 2, fence.KindStale},
	} {
		if err := g.Write(t.Context(), fencetest.Write{Token: token(c.number), Value: "v"}); fence.KindOf(err) != c.kind || (err != nil) != (c.kind != fence.KindNone) {
			t.Errorf("a write of %d got %v; want %s", c.number, err, c.kind)
		}
	}
}

func TestCasebookC45_EqualNumberOfAnotherIncarnationOnPostgreSQL(t *testing.T) {
	fencetest.Case(t, pgHarness(t, 0), "C45")
}

func TestCasebookC46_ArmWithoutDataOnPostgreSQL(t *testing.T) {
	fencetest.Case(t, pgHarness(t, 0), "C46")
}

func TestCasebookC48_FirstUseRaceOnPostgreSQL(t *testing.T) {
	fencetest.Case(t, pgHarness(t, 200), "C48")
}
