package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
	"holdfast/gate/sqlgate"
)

// pgShop is a database of PostgreSQL and one gate on it.
type pgShop struct {
	*testing.T
	*pgResource
	gate *sqlgate.Postgres
}

func newPGShop(t *testing.T, options string) *pgShop {
	t.Helper()
	r := newPG(t, t, options)
	s := &pgShop{T: t, pgResource: r}
	s.gate = s.another(r.pools[0])
	return s
}

// another opens a further gate on the same data.
func (s *pgShop) another(db *sql.DB) *sqlgate.Postgres {
	s.T.Helper()
	g, err := sqlgate.NewPostgres(s.Context(), db, s.config())
	if err != nil {
		s.Fatal(err)
	}
	return g
}

func (s *pgShop) config() sqlgate.Config {
	return sqlgate.Config{Lock: "invoices", Schema: s.schema, Bound: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)}
}

func (s *pgShop) write(n uint64, value string) error {
	return pgGate{s.gate, s.pgResource, nil}.Write(s.Context(), fencetest.Write{Token: token(n), Value: value})
}

func (s *pgShop) wantValues(want ...string) {
	s.T.Helper()
	var got []string
	for _, e := range s.Ledger(s) {
		got = append(got, e.Value)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("the ledger has %q, want %q", got, want)
	}
}

func (s *pgShop) exec(text string, args ...any) {
	s.T.Helper()
	if _, err := s.db.ExecContext(s.Context(), text, args...); err != nil {
		s.Fatalf("%s: %v", text, err)
	}
}

func put(ctx context.Context, tx *sql.Tx, n uint64, value string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO ledger (token, value) VALUES ($1, $2)`, token(n).String(), value)
	return err
}

var levels = []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// A checks and pauses, before it has written or after; B raises the mark,
// writes and commits, without waiting for A; A goes on, and fails at the
// latest at its commit.
func TestCasebookC47_CheckAndWriteAtEveryIsolationLevel(t *testing.T) {
	for _, level := range levels {
		for _, wrote := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/wrote=%t", level, wrote), func(t *testing.T) {
				s := newPGShop(t, "")
				b := s.another(s.pools[1])
				err := s.gate.Do(t.Context(), token(33), &sql.TxOptions{Isolation: level}, func(ctx context.Context, tx *sql.Tx) error {
					if wrote {
						if err := put(ctx, tx, 33, "early"); err != nil {
							return err
						}
					}
					began := time.Now()
					if err := b.Arm(ctx, token(34)); err != nil {
						return fmt.Errorf("arming while A is inside: %w", err)
					}
					if err := b.Do(ctx, token(34), nil, func(ctx context.Context, tx *sql.Tx) error { return put(ctx, tx, 34, "by 34") }); err != nil {
						return fmt.Errorf("writing while A is inside: %w", err)
					}
					if took := time.Since(began); took > 9*time.Second { // A is ended after 10 s
						t.Errorf("B waited %v for A", took)
					}
					return put(ctx, tx, 33, "late")
				})
				var stale *fence.StaleError
				if !errors.As(err, &stale) || stale.Offered != token(33) || stale.Seen != token(34) {
					t.Fatalf("A got %v; want it refused as stale, with 33 and 34", err)
				}
				s.wantValues("by 34")
				if n := s.gate.Refusals()[fence.KindStale]; n != 1 {
					t.Errorf("%d refusals were counted, want 1", n)
				}
			})
		}
	}
}

// The check of the test above: with check and write as two statements, it
// lands.
func TestCasebookC47_WithoutTheGateItLands(t *testing.T) {
	s := newPGShop(t, "")
	if err := s.gate.Arm(t.Context(), token(33)); err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var mark int64
	if err := tx.QueryRow(`SELECT number FROM ` + s.schema + `.holdfast_gate_mark`).Scan(&mark); err != nil || mark != 33 {
		t.Fatalf("the mark is %d, %v", mark, err)
	}
	if err := s.write(34, "by 34"); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), tx, 33, "late"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	s.wantValues("by 34", "late")
}

// A function that ends the transaction, or has a statement do it, gets nothing
// past the gate: what it commits is checked, and what comes after is not
// committed.
func TestPostgresFunctionThatEndsTheTransaction(t *testing.T) {
	texts := func(all ...string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			for _, text := range all {
				if _, err := tx.ExecContext(ctx, text); err != nil {
					return err
				}
			}
			return put(ctx, tx, 33, "after")
		}
	}
	for name, c := range map[string]struct {
		fn    func(context.Context, *sql.Tx) error
		lands []string // while the token is in force
	}{
		"commit":              {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, []string{"before"}},
		"rollback":            {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, nil},
		"COMMIT and BEGIN":    {texts("COMMIT", "BEGIN"), []string{"before"}},
		"COMMIT AND CHAIN":    {texts("COMMIT AND CHAIN"), []string{"before"}},
		"ROLLBACK, BEGIN":     {texts("ROLLBACK", "BEGIN"), nil},
		"in one text":         {texts("COMMIT; BEGIN"), []string{"before"}},
		"ROLLBACK to a point": {texts("SAVEPOINT a", "ROLLBACK TO a", "RELEASE a"), []string{"before", "after"}},
		"check, rolled back":  {texts("SAVEPOINT a", "SET CONSTRAINTS ALL IMMEDIATE", "ROLLBACK TO a"), []string{"before", "after"}},
		"replica":             {texts("SET LOCAL session_replication_role = replica"), []string{"before", "after"}},
		"swallowed error": {func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, `SELECT no_such_thing`)
			return nil
		}, nil},
	} {
		for _, stale := range []bool{false, true} {
			s := newPGShop(t, "")
			err := s.gate.Do(t.Context(), token(33), nil, func(ctx context.Context, tx *sql.Tx) error {
				if err := put(ctx, tx, 33, "before"); err != nil {
					return err
				}
				if stale {
					if err := s.gate.Arm(ctx, token(34)); err != nil {
						return err
					}
				}
				return c.fn(ctx, tx)
			})
			want := c.lands
			if stale {
				want = nil
			}
			s.wantValues(want...)
			lands := len(want) == 2
			if (err == nil) != lands {
				t.Errorf("%s, stale %t: Do got %v", name, stale, err)
			}
			if !stale && !lands && !errors.Is(err, sqlgate.ErrTransaction) {
				t.Errorf("%s: Do got %v; want ErrTransaction", name, err)
			}
		}
	}
}

// A client that is silent inside its transaction holds rows only until the
// server ends it; the next holder's write to the same row gets through, and the
// late one is told why.
func TestPostgresSilentClientIsEnded(t *testing.T) {
	s := newPGShop(t, "")
	if err := s.write(33, "one"); err != nil {
		t.Fatal(err)
	}
	change := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE ledger SET token = $1, value = value || '+'`, token(34).String())
		return err
	}
	s.gate.SetBound(800 * time.Millisecond)
	b := s.another(s.pools[1])
	err := s.gate.Do(t.Context(), token(33), nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := change(ctx, tx); err != nil {
			return err
		}
		if err := b.Do(ctx, token(34), nil, change); err != nil { // while this one is silent
			return err
		}
		return put(ctx, tx, 33, "late")
	})
	if fence.KindOf(err) != fence.KindStale || !strings.Contains(err.Error(), "was ended") {
		t.Errorf("the silent client got %v; want stale, and that its transaction was ended", err)
	}
	s.wantValues("one+")
	// The same where no newer holder came.
	err = s.gate.Do(t.Context(), token(34), nil, func(ctx context.Context, tx *sql.Tx) error {
		awaitEnd(t, s.db, tx)
		return nil
	})
	if err == nil || fence.KindOf(err) != fence.KindNone || !strings.Contains(err.Error(), "400ms") {
		t.Errorf("a silent client got %v; want the limit named", err)
	}
	if err := s.write(34, "goes on"); err != nil {
		t.Error(err)
	}
}

// awaitEnd waits until the server has ended the session of tx.
func awaitEnd(t *testing.T, db *sql.DB, tx *sql.Tx) {
	t.Helper()
	var pid int
	if err := tx.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for there := true; there; <-again.C {
		if err := db.QueryRow(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid).Scan(&there); err != nil {
			t.Fatal(err)
		}
	}
}

// The limits are the transaction's own, and a shorter one of the user stays.
func TestPostgresLimits(t *testing.T) {
	s := newPGShop(t, "&statement_timeout=70000&lock_timeout=7000&idle_in_transaction_session_timeout=60000")
	limits := func(q interface {
		QueryRow(string, ...any) *sql.Row
	}) (all string) {
		t.Helper()
		if err := q.QueryRow(`SELECT concat_ws(' ', current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout'), current_setting('statement_timeout'))`).Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	s.pools[0].SetMaxOpenConns(2)
	if got := limits(s.pools[0]); got != "1min 7s 70s" {
		t.Fatalf("the limits are %q", got)
	}
	err := s.gate.Do(t.Context(), token(1), nil, func(_ context.Context, tx *sql.Tx) error {
		if got := limits(tx); got != "10s 7s 70s" {
			t.Errorf("inside, the limits are %q", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := limits(s.pools[0]); got != "1min 7s 70s" {
		t.Errorf("afterwards the limits are %q", got)
	}
}

// What a function returns comes back as it is, and connections go back to the
// pool, also when it panics or is cancelled.
func TestPostgresFunctionThatFails(t *testing.T) {
	s := newPGShop(t, "")
	s.pools[0].SetMaxOpenConns(2)
	mine, theirs := errors.New("mine"), &fence.StaleError{Gate: "another", Offered: token(1), Seen: token(2)}
	for range 3 {
		for _, want := range []error{mine, theirs} {
			err := s.gate.Do(t.Context(), token(5), nil, func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(put(ctx, tx, 5, "must not land"), want)
			})
			if !errors.Is(err, want) {
				t.Fatalf("Do got %v, want %v", err, want)
			}
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.gate.Do(t.Context(), token(5), nil, func(ctx context.Context, tx *sql.Tx) error {
				_, _ = tx.QueryContext(ctx, `SELECT * FROM ledger`)
				panic("function")
			})
		}()
		ctx, cancel := context.WithCancel(t.Context())
		err := s.gate.Do(ctx, token(5), nil, func(ctx context.Context, tx *sql.Tx) error {
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Do cancelled by its function got %v", err)
		}
		constraint := s.gate.Do(t.Context(), token(5), nil, func(ctx context.Context, tx *sql.Tx) error { return put(ctx, tx, 5, "fail") })
		if constraint == nil || errors.Is(constraint, sqlgate.ErrTransaction) {
			t.Fatalf("a broken constraint got %v", constraint)
		}
	}
	if len(s.gate.Refusals()) != 0 {
		t.Errorf("errors of the function were counted as refusals: %v", s.gate.Refusals())
	}
	if err := s.write(5, "lands"); err != nil {
		t.Fatal(err)
	}
	s.wantValues("lands")
	if n := s.pools[0].Stats().InUse; n != 0 {
		t.Errorf("%d connections are still in use", n)
	}
	if s.gate.Do(t.Context(), token(5), nil, nil) == nil {
		t.Error("Do without a function succeeded")
	}
	if s.gate.Do(t.Context(), token(5), &sql.TxOptions{ReadOnly: true}, func(context.Context, *sql.Tx) error { return nil }) == nil {
		t.Error("Do in a read-only transaction succeeded")
	}
}

// Transactions that cannot be brought into an order are told to come again,
// and lose no update.
func TestPostgresSerializationFailure(t *testing.T) {
	s := newPGShop(t, "")
	b := s.another(s.pools[1])
	add := func(g *sqlgate.Postgres, between func()) error {
		return g.Do(t.Context(), token(5), &sql.TxOptions{Isolation: sql.LevelSerializable}, func(ctx context.Context, tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM ledger`).Scan(&n); err != nil {
				return err
			}
			if between != nil {
				between()
			}
			return put(ctx, tx, 5, fmt.Sprint(n))
		})
	}
	err := add(s.gate, func() {
		if err := add(b, nil); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, sqlgate.ErrChanged) && !strings.Contains(fmt.Sprint(err), "40001") {
		t.Errorf("the second got %v; want it told to come again", err)
	}
	if err := add(s.gate, nil); err != nil {
		t.Error(err)
	}
	s.wantValues("0", "1")
}
