package pgtest_test

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	"holdfast/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func query(t *testing.T, dsn, text string) (answer string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(text).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return answer
}

// The cluster answers on both ways, keeps what was committed over a crash, and
// gives each test a database of its own.
func TestCluster(t *testing.T) {
	c := pgtest.Shared(t)
	first, second := c.Database(t), c.Database(t)
	if a, b := query(t, first, `SELECT current_database()`), query(t, second, `SELECT current_database()`); a == b {
		t.Errorf("two tests share the database %s", a)
	}
	if got := query(t, c.TCP("postgres"), `SELECT host(inet_server_addr())`); got != "127.0.0.1" {
		t.Errorf("over TCP the server says it is at %q", got)
	}
	db, err := sql.Open("pgx", first)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range []string{`CREATE TABLE kept (v text)`, `INSERT INTO kept VALUES ('still here')`} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	name := query(t, first, `SELECT current_database()`)
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if got := query(t, c.DSN(name), `SELECT v FROM kept`); got != "still here" {
		t.Errorf("after a crash the table says %q", got)
	}
	if !strings.Contains(c.Log(), "ready to accept connections") {
		t.Errorf("the server's log says %q", c.Log())
	}
}

// A setting that the server does not know is an error, with its log.
func TestBadOption(t *testing.T) {
	c, err := pgtest.Start("no_such_setting=1")
	if err == nil {
		c.Stop()
		t.Fatal("a server with an unknown setting was started")
	}
	if !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the error is %v; want the server's words", err)
	}
}
