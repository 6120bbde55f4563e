package sqlgate

import (
	"context"
	"database/sql"
	"time"
)

// A Dialect is the SQL and the behaviour of one database system. Dialects are
// values of this package ([SQLite]); others cannot implement one, since the
// safety of the gate rests on it.
type Dialect interface {
	// String names the dialect.
	String() string
	// prepare creates the gate's tables or checks those that exist, and
	// probes that db can fence. The error says what to change.
	prepare(ctx context.Context, db *sql.DB, lock string, bound time.Duration) error
	// snapshot begins a read-only transaction on conn; the end function
	// ends it and leaves conn as it was.
	snapshot(ctx context.Context, conn *sql.Conn) (end func() error, err error)
	// begin takes the right to write on conn, waiting for it until ctx
	// ends; urgent waits at the front. It returns the busy error when the
	// time is over.
	begin(ctx context.Context, conn *sql.Conn, urgent bool) (writing, error)
	// check refuses a text that is not one statement that reads (from a
	// snapshot) or writes (in the step).
	check(text string, writes bool) error
	// busy reports whether err says that another connection is in the way.
	busy(err error) bool
}

// writing is a transaction that has the right to write.
type writing struct {
	// commit makes the writes last. It wraps ErrOutcomeUnknown if it cannot
	// tell whether it did; after any other error nothing was written.
	commit func() error
	// end rolls back what is not committed and leaves the connection as it
	// was. It is called once, in any case.
	end func() error
}
