package sqlgate_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdfast/gate/sqlgate"
)

// writes are texts that Do takes.
var writes = []string{
	"INSERT INTO t VALUES (1)",
	"  insert into t values (?1, :a, @b, $c)",
	"UPDATE t SET v = 'a;b' -- ; COMMIT",
	"/* ; COMMIT */ DELETE FROM t;",
	"DELETE FROM t ; -- the end\n /* really */ ",
	"REPLACE INTO t VALUES ('it''s; fine')",
	`UPDATE "a;b" SET [c;d] = ` + "`e;f`",
	"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
	"CREATE TABLE u (v TEXT DEFAULT 'holdfast')",
	"ALTER TABLE t ADD COLUMN w",
	"DROP TABLE IF EXISTS nothing",
	"UPDATE t SET v = x'3b'",
	"UPDATE t SET v = '$a('",
	"UPDATE t SET v = v -1--1",
	"INSERT INTO commit_log VALUES (1)",
	"\ufeffUPDATE t SET v =\ufeff1", "UPDATE a\ufeffholdfast_gate SET v = 1;\ufeff",
}

// smuggled are texts that Do refuses: each would leave the step, or touch the
// gate's own tables, or is not a write.
var smuggled = []string{
	"", " ", ";", "-- nothing", "/* nothing */",
	"COMMIT", "commit;", "END", "ROLLBACK", "BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s", "RELEASE holdfast_gate_step", "ROLLBACK TO holdfast_gate_step",
	"COMMIT; UPDATE t SET v = 1",
	"UPDATE t SET v = 1; COMMIT",
	"UPDATE t SET v = 1; COMMIT; UPDATE t SET v = 2",
	"UPDATE t SET v = 1;;COMMIT",
	"UPDATE t SET v = 1 /* */ ; /* */ END",
	"UPDATE t SET v = 1\n;\nROLLBACK",
	"/* a */ -- b\n COMMIT",
	"UPDATE t SET v = $a('); COMMIT; UPDATE t SET v = $a(')",
	"UPDATE t SET v = $a::b('); COMMIT; UPDATE t SET v = $a::b(')",
	"UPDATE t SET v = @a('); COMMIT; UPDATE t SET v = @a(')",
	"UPDATE t SET v = :a('); COMMIT; UPDATE t SET v = :a(')",
	"UPDATE t SET v = #a('); COMMIT; UPDATE t SET v = #a(')",
	"UPDATE t SET v = ?1$a('); COMMIT; UPDATE t SET v = $a(')",
	"UPDATE t SET v = 1\x00; COMMIT",
	"UPDATE t SET v = '\x00'; COMMIT --'",
	"UPDATE t SET v = 'open", `UPDATE t SET v = "open`, "UPDATE t SET v = `open", "UPDATE t SET v = [open", "UPDATE t SET v = 1 /* open", "UPDATE t SET v = 1 /*/",
	"PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "ATTACH 'x.db' AS x", "DETACH x", "VACUUM", "VACUUM INTO 'x.db'", "ANALYZE", "REINDEX", "EXPLAIN UPDATE t SET v = 1",
	"SELECT 1", "VALUES (1)", "(UPDATE t SET v = 1)", "'UPDATE' t SET v = 1", `"UPDATE" t SET v = 1`,
	"CREATE TRIGGER x AFTER INSERT ON t BEGIN DELETE FROM t; END",
	"UPDATE holdfast_gate_mark SET number = 1", "UPDATE main.HOLDFAST_Gate_Mark SET number = 1",
	`DELETE FROM "holdfast_gate_mark"`, "DELETE FROM 'holdfast_gate'", "DELETE FROM [holdfast_gate]", "DELETE FROM `holdfast_gate`",
	"DROP TRIGGER holdfast_gate_mark_update", "ALTER TABLE holdfast_gate RENAME TO x", "ALTER TABLE t RENAME TO holdfast_gate_x",
	"WITH x AS (SELECT 1) DELETE FROM holdfast_gate", "CREATE VIEW v AS SELECT * FROM holdfast_gate",
	"CREATE TEMP TABLE holdfast_gate (x)",
	// SQLite takes a byte order mark for a blank, wherever a token may begin.
	"DROP TRIGGER \ufeffholdfast_gate_mark_update", "UPDATE main.\ufeff\ufeffholdfast_gate SET active = ''", "UPDATE t SET v = 1;\ufeffCOMMIT",
}

func TestStatements(t *testing.T) {
	for _, text := range writes {
		if err := sqlgate.CheckWrite(text); err != nil {
			t.Errorf("%q is refused: %v", text, err)
		}
	}
	for _, text := range smuggled {
		if err := sqlgate.CheckWrite(text); !errors.Is(err, sqlgate.ErrStatement) {
			t.Errorf("%q got %v; want ErrStatement", text, err)
		}
	}
	for _, text := range []string{"SELECT 1", "select * from t where v = ';'", "WITH x AS (SELECT 1) SELECT * FROM x;", "VALUES (1)", "SELECT * FROM holdfast_gate"} {
		if err := sqlgate.CheckRead(text); err != nil {
			t.Errorf("%q is refused as a read: %v", text, err)
		}
	}
	for _, text := range []string{"", "INSERT INTO t VALUES (1)", "SELECT 1; DELETE FROM t", "PRAGMA query_only = 0", "COMMIT", "ATTACH 'x' AS x", "EXPLAIN SELECT 1"} {
		if err := sqlgate.CheckRead(text); !errors.Is(err, sqlgate.ErrStatement) {
			t.Errorf("%q got %v as a read; want ErrStatement", text, err)
		}
	}
	long := sqlgate.CheckWrite("COMMIT " + strings.Repeat("x", 1<<20))
	if len(long.Error()) > 1000 {
		t.Errorf("the error for a long text has %d bytes", len(long.Error()))
	}
}

// escapes runs text as the gate's step would, and reports whether it ended the
// transaction.
func escapes(db *sql.DB, text string) (bool, error) {
	for _, prepare := range []string{"BEGIN IMMEDIATE", "CREATE TABLE IF NOT EXISTS t (v)", "SAVEPOINT holdfast_gate_step"} {
		if _, err := db.Exec(prepare); err != nil {
			return false, fmt.Errorf("%s: %w", prepare, err)
		}
	}
	_, execErr := db.Exec(text)
	_, releaseErr := db.Exec("RELEASE holdfast_gate_step")
	_, _ = db.Exec("ROLLBACK")
	// A failed statement may roll back by itself (OR ROLLBACK): the step
	// ends there, and nothing has escaped.
	return execErr == nil && releaseErr != nil, nil
}

// Whatever the check lets pass, SQLite itself takes for one statement that
// stays in the transaction.
func FuzzStatementStaysInTheStep(f *testing.F) {
	for _, text := range append(append([]string(nil), writes...), smuggled...) {
		f.Add(text)
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	f.Fuzz(func(t *testing.T, text string) {
		if sqlgate.CheckWrite(text) != nil {
			return
		}
		if out, err := escapes(db, text); err != nil || out {
			t.Fatalf("%q passes the check and left the step (%v)", text, err)
		}
	})
}

// The check of the check: SQLite takes a byte order mark for a blank.
func TestAByteOrderMarkIsABlank(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, text := range []string{"CREATE TABLE t (v)", "\ufeffDROP TABLE \ufefft;\ufeff", "CREATE TABLE t (v)"} {
		if _, err := db.Exec(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The check of the check: SQLite does take these out of the step.
func TestSmuggledTextsWouldEscape(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, text := range []string{"COMMIT", "UPDATE t SET v = 1; COMMIT", "ROLLBACK"} {
		if out, err := escapes(db, text); err != nil || !out {
			t.Errorf("%q: escapes = %v, %v; want true", text, out, err)
		}
	}
}
