package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/gate/sqlgate"
)

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func config() sqlgate.Config {
	return sqlgate.Config{Lock: "invoices", Dialect: sqlgate.SQLite, Bound: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
}

// A database that cannot fence is refused at construction, saying why.
func TestNewProbesTheDatabase(t *testing.T) {
	file := func() string { return "file:" + newPath(t) }
	wal := func() string { return file() + "?_pragma=journal_mode(WAL)" }
	made := func() string { // a database with a gate in it
		dsn := wal()
		if _, err := sqlgate.New(t.Context(), open(t, dsn), config()); err != nil {
			t.Fatal(err)
		}
		return dsn
	}
	for name, c := range map[string]struct {
		db   func() *sql.DB
		says string
	}{
		"in memory":              {func() *sql.DB { return open(t, ":memory:") }, "memory"},
		"in shared memory":       {func() *sql.DB { return open(t, "file:x?mode=memory&cache=shared") }, "memory"},
		"temporary":              {func() *sql.DB { return open(t, "") }, "temporary"},
		"rollback journal":       {func() *sql.DB { return open(t, file()) }, "journal_mode = WAL"},
		"journal off":            {func() *sql.DB { return open(t, file()+"?_pragma=journal_mode(OFF)") }, "journal_mode = WAL"},
		"journal in memory":      {func() *sql.DB { return open(t, file()+"?_pragma=journal_mode(MEMORY)") }, "journal_mode = WAL"},
		"exclusive":              {func() *sql.DB { return open(t, wal()+"&_pragma=locking_mode(EXCLUSIVE)") }, "locking mode"},
		"dirty reads":            {func() *sql.DB { return open(t, wal()+"&cache=shared&_pragma=read_uncommitted(1)") }, "read_uncommitted"},
		"shared cache":           {func() *sql.DB { return open(t, wal()+"&cache=shared") }, "cannot fence"},
		"no locks":               {func() *sql.DB { return open(t, made()+"&nolock=1") }, "cannot fence"},
		"a driver without locks": {func() *sql.DB { return open(t, made()+"&vfs=unix-none") }, "cannot fence"},
		"immutable":              {func() *sql.DB { return open(t, made()+"&immutable=1") }, "cannot fence"},
		"query only":             {func() *sql.DB { return open(t, made()+"&_pragma=query_only(1)") }, "cannot be written"},
		"read only":              {func() *sql.DB { return open(t, made()+"&mode=ro") }, "cannot be written"},
		"one connection": {func() *sql.DB {
			db := open(t, wal())
			db.SetMaxOpenConns(1)
			return db
		}, "SetMaxOpenConns"},
	} {
		_, err := sqlgate.New(t.Context(), c.db(), config())
		if !errors.Is(err, sqlgate.ErrCannotFence) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: New got %v; want ErrCannotFence that says %q", name, err, c.says)
		}
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	db := openDB(t, newPath(t))
	for name, change := range map[string]func(*sqlgate.Config){
		"no lock":       func(c *sqlgate.Config) { c.Lock = "" },
		"long lock":     func(c *sqlgate.Config) { c.Lock = strings.Repeat("x", 513) },
		"long name":     func(c *sqlgate.Config) { c.Name = strings.Repeat("x", 257) },
		"no dialect":    func(c *sqlgate.Config) { c.Dialect = nil },
		"short bound":   func(c *sqlgate.Config) { c.Bound = time.Microsecond },
		"minus bound":   func(c *sqlgate.Config) { c.Bound = -time.Second },
		"endless bound": func(c *sqlgate.Config) { c.Bound = sqlgate.MaxBound + 1 },
	} {
		c := config()
		change(&c)
		if _, err := sqlgate.New(t.Context(), db, c); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("%s: New got %v; want ErrMalformed", name, err)
		}
	}
	if _, err := sqlgate.New(t.Context(), nil, config()); !errors.Is(err, fence.ErrMalformed) {
		t.Errorf("no database: New got %v; want ErrMalformed", err)
	}
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM sqlite_master`).Scan(&n); err != nil || n != 0 {
		t.Errorf("refused configurations left %d tables, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqlgate.New(ctx, db, config()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: New got %v", err)
	}
	// Another writer that does not end is no reason to distrust the database.
	busy, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if _, err := busy.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlgate.New(t.Context(), db, config()); !errors.Is(err, fence.ErrUndrained) || errors.Is(err, sqlgate.ErrCannotFence) {
		t.Errorf("behind another writer: New got %v; want ErrUndrained", err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlgate.New(t.Context(), open(t, "file:"+garbage), config()); err == nil {
		t.Error("a file that is no database was accepted")
	}
}

// Tables that are not as the gate made them are not used.
func TestNewRefusesADamagedRecord(t *testing.T) {
	for _, damage := range []string{
		`DROP TRIGGER holdfast_gate_mark_update`,
		`DROP TABLE holdfast_gate_mark`,
		`ALTER TABLE holdfast_gate ADD COLUMN more TEXT`,
		`CREATE TABLE holdfast_gate_more (x)`,
		`DROP TABLE holdfast_gate; CREATE TABLE holdfast_gate (lock TEXT PRIMARY KEY, active TEXT, writes INTEGER, probes INTEGER)`,
	} {
		db := openDB(t, newPath(t))
		if _, err := sqlgate.New(t.Context(), db, config()); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(damage); err != nil {
			t.Fatalf("%s: %v", damage, err)
		}
		if _, err := sqlgate.New(t.Context(), db, config()); !errors.Is(err, fence.ErrRecord) {
			t.Errorf("after %s: New got %v; want ErrRecord", damage, err)
		}
	}
}

// A record that makes no sense refuses everything, and is reported.
func TestDamagedRecordFailsClosed(t *testing.T) {
	for _, damage := range []string{
		`UPDATE holdfast_gate SET active = 'nonsense'`,
		`UPDATE holdfast_gate_mark SET number = number + 1`,
		`UPDATE holdfast_gate_mark SET number = number + 1, token = 'nonsense'`,
		`DROP TRIGGER holdfast_gate_delete; DELETE FROM holdfast_gate`,
		`UPDATE holdfast_gate_mark SET number = number + 1, token = '6@' || substr(replace(token, '.invoices', '.other'), 3)`,
	} {
		s := newShop(t)
		if err := s.gate.Arm(t.Context(), token(5)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.resource.db.Exec(damage); err != nil {
			t.Fatalf("%s: %v", damage, err)
		}
		for _, n := range []uint64{4, 5, 6, 7} {
			if err := s.gate.Arm(t.Context(), token(n)); !errors.Is(err, fence.ErrRecord) {
				t.Errorf("after %s: Arm(%d) got %v; want ErrRecord", damage, n, err)
			}
			if err := s.write(token(n), "must not land"); !errors.Is(err, fence.ErrRecord) {
				t.Errorf("after %s: Write(%d) got %v; want ErrRecord", damage, n, err)
			}
		}
		if _, err := s.gate.Show(t.Context()); !errors.Is(err, fence.ErrRecord) {
			t.Errorf("after %s: Show got %v; want ErrRecord", damage, err)
		}
		if n := s.gate.Refusals()[fence.KindRecord]; n != 8 {
			t.Errorf("after %s: %d refusals were counted, want 8", damage, n)
		}
		s.wantValues()
	}
}

// The triggers keep a mark from falling even for those who go past the gate.
func TestMarkNeverFallsPastTheGate(t *testing.T) {
	s := newShop(t)
	if err := s.gate.Arm(t.Context(), token(5)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`UPDATE holdfast_gate_mark SET number = 4`,
		`UPDATE holdfast_gate_mark SET token = 'other'`,
		`UPDATE holdfast_gate_mark SET lock = 'other', number = 9`,
		`DELETE FROM holdfast_gate_mark`,
		`DELETE FROM holdfast_gate`,
		`INSERT OR REPLACE INTO holdfast_gate_mark SELECT lock, domain, slot, 1, token, raised_at, raised_by FROM holdfast_gate_mark`,
		`INSERT INTO holdfast_gate_mark SELECT lock, domain, slot, 1, token, raised_at, raised_by FROM holdfast_gate_mark WHERE true ON CONFLICT DO UPDATE SET number = 1`,
	} {
		if _, err := s.resource.db.Exec(text); err == nil || !strings.Contains(err.Error(), "holdfast") {
			t.Errorf("%s got %v; want it refused by a trigger", text, err)
		}
	}
	if err := s.gate.Arm(t.Context(), token(4)); fence.KindOf(err) != fence.KindStale {
		t.Errorf("a lower token got %v; want stale", err)
	}
}

// Any number of processes may open a new database at once.
func TestNewRace(t *testing.T) {
	path := newPath(t)
	open(t, "file:"+path+"?_pragma=journal_mode(WAL)").Ping()
	errs := make([]error, 6)
	var all sync.WaitGroup
	for i := range errs {
		c := config()
		c.Bound = 20 * time.Second
		db := openDB(t, path)
		all.Go(func() { _, errs[i] = sqlgate.New(t.Context(), db, c) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
