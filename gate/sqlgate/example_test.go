package sqlgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"holdfast/fence"
	"holdfast/gate/sqlgate"

	_ "modernc.org/sqlite"
)

// Two holders of one lock: the newer one arms the gate, and the older one's
// late write is refused. (Real tokens come from a grant.)
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sqlgate-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE invoice (id INTEGER PRIMARY KEY, total INTEGER)`); err != nil {
		panic(err)
	}

	gate, err := sqlgate.New(ctx, db, sqlgate.Config{
		Lock: "invoices", Dialect: sqlgate.SQLite, Name: "shop", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	older := fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: "invoices", Mode: fence.Exclusive, Number: 33}
	newer := older
	newer.Number = 34

	addInvoice := func(token fence.Token, total int) error {
		return gate.Do(ctx, token, func(ctx context.Context, s *sqlgate.Snapshot) ([]sqlgate.Stmt, error) {
			var id int
			if err := s.QueryRow(ctx, `SELECT coalesce(max(id), 0) + 1 FROM invoice`).Scan(&id); err != nil {
				return nil, err
			}
			return []sqlgate.Stmt{sqlgate.Exec(`INSERT INTO invoice (id, total) VALUES (?, ?)`, id, total)}, nil
		})
	}
	fmt.Println("33 writes:", addInvoice(older, 100))
	fmt.Println("34 arms:", gate.Arm(ctx, newer))
	err = addInvoice(older, 200)
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		fmt.Println("33 writes late: offered", stale.Offered.Number, "seen", stale.Seen.Number)
	}
	fmt.Println("34 writes:", addInvoice(newer, 300))
	// Output:
	// 33 writes: <nil>
	// 34 arms: <nil>
	// 33 writes late: offered 33 seen 34
	// 34 writes: <nil>
}
