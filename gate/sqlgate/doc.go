// Package sqlgate guards data in an SQL database: a write with a fencing token
// lower than the highest one seen is refused, in the same transaction that
// would have written.
//
// It works on database/sql and imports no driver: bring your own. A [Gate] is
// for [SQLite] (3.37 or newer, in WAL mode), a [Postgres] for PostgreSQL (13 or
// newer). They are two types, because what a function may do inside differs.
//
//	gate, err := sqlgate.New(ctx, db, sqlgate.Config{Lock: "invoices", Dialect: sqlgate.SQLite})
//	err = gate.Do(ctx, token, func(ctx context.Context, s *sqlgate.Snapshot) ([]sqlgate.Stmt, error) {
//		var open int64
//		if err := s.QueryRow(ctx, "SELECT count(*) FROM invoice WHERE paid = 0").Scan(&open); err != nil {
//			return nil, err
//		}
//		return []sqlgate.Stmt{sqlgate.Exec("UPDATE summary SET open = ?", open)}, nil
//	})
//
// SQLite has one writer at a time and no bound on how long it writes, so no
// code of the user runs while the door is held: the function reads from a
// snapshot and gives back statements, and check, apply and commit are one
// short step at the end. A holder that is stopped while its function runs
// holds nobody up. One that is stopped within the short step makes the Arm of
// a newer holder fail in bounded time ([fence.ErrUndrained]).
//
// On PostgreSQL the function gets the transaction itself:
//
//	gate, err := sqlgate.NewPostgres(ctx, db, sqlgate.Config{Lock: "invoices"})
//	err = gate.Do(ctx, token, nil, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE summary SET open = (SELECT count(*) FROM invoice WHERE NOT paid)")
//		return err
//	})
//
// A deferred trigger judges the token once more, within the commit, and locks
// the mark until the transaction has ended: so a holder that is stopped inside
// its function holds no lock of the gate, a commit cannot be stopped from the
// client's side, and whatever ends the transaction is checked. The server ends
// a transaction that is silent for too long.
//
// Only what goes through a gate is fenced: a program that writes the guarded
// tables past it is not. SQLite commits each attached file by itself, so keep
// what is guarded in the main one. A database that was restored from its own
// backup knows older marks: arm it with a fresh token before traffic, and look
// at [Gate.Show]. The package imports package fence and nothing else of
// ours. Start reading at [New], then [Gate.Do]; for PostgreSQL at
// [NewPostgres], then postgres_schema.go and [Postgres.Do].
package sqlgate
