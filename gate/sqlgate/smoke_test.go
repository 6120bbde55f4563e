package sqlgate

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"holdfast/fence"

	_ "modernc.org/sqlite"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "x.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.Exec("CREATE TABLE t (v TEXT)")
	for range 2 {
		g, err := New(ctx, db, Config{Lock: "invoices", Dialect: SQLite})
		if err != nil {
			t.Fatal(err)
		}
		tok := fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: "invoices", Mode: fence.Exclusive, Number: 9007199254740993}
		if err := g.Arm(ctx, tok); err != nil {
			t.Fatal(err)
		}
		err = g.Do(ctx, tok, func(ctx context.Context, s *Snapshot) ([]Stmt, error) {
			var n int
			if err := s.QueryRow(ctx, "SELECT count(*) FROM t").Scan(&n); err != nil {
				return nil, err
			}
			return []Stmt{Exec("INSERT INTO t VALUES (?)", n)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		old := tok
		old.Number--
		t.Log(g.Arm(ctx, old))
		s, err := g.Show(ctx)
		t.Log(s, err)
	}
}
