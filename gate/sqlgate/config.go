package sqlgate

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdfast/fence"
)

// Defaults and limits of a [Config].
const (
	// DefaultBound is how long a gate waits for a writer that does not end.
	DefaultBound = 3 * time.Second
	// MaxBound is the longest Bound.
	MaxBound = time.Hour
	// DefaultSchema is where a gate on PostgreSQL keeps its tables.
	DefaultSchema = "holdfast"
)

// Errors of a gate, beside the refusals of package fence. After any error of
// Do nothing was written, except after ErrOutcomeUnknown.
var (
	// ErrCannotFence is wrapped by New when the database, as it was opened,
	// cannot fence. The text says what to change.
	ErrCannotFence = errors.New("this database cannot fence")
	// ErrStatement is wrapped when a statement is not one that Do applies,
	// or that a Snapshot reads.
	ErrStatement = errors.New("statement not allowed")
	// ErrChanged is wrapped when another write passed the gate, with the
	// same token, between the snapshot that the function read and the step
	// that would have applied its statements; on PostgreSQL, when it could
	// not be brought into an order with others, or would have been in a
	// deadlock with them. Call Do again.
	ErrChanged = errors.New("the data changed since the snapshot")
	// ErrSnapshotClosed is returned by a Snapshot after its function ended.
	ErrSnapshotClosed = errors.New("snapshot used after its function returned")
	// ErrTransaction is wrapped when the function of Postgres.Do, or a
	// statement of it, ended the transaction, or left it broken.
	ErrTransaction = errors.New("the guarded transaction was not left as it was given")
	// ErrOutcomeUnknown is wrapped when the database failed at the commit,
	// so that the statements may have been applied, all or none. Read the
	// data to find out.
	ErrOutcomeUnknown = errors.New("commit failed, outcome unknown")
)

// Config says what a gate is for. Lock is required, and Dialect for New.
type Config struct {
	// Lock is the lock whose tokens the gate accepts. Gates for several
	// locks may live in one database.
	Lock string
	// Dialect is the database's SQL, for New: SQLite. NewPostgres wants none.
	Dialect Dialect
	// Schema is where NewPostgres keeps the gate's tables; all programs that
	// write to the guarded data must use the same. 1–63 of a-z, 0-9 and _;
	// created if there is none. Default DefaultSchema. New wants none.
	Schema string
	// Name names the gate in errors, logs and reports. Default "sqlgate".
	Name string
	// Slots is the number of permits of the lock, each with a mark of its
	// own. Default 1.
	Slots uint32
	// AllowShared accepts shared tokens: the data bears several writers of
	// one generation.
	AllowShared bool
	// Domain is the fence domain to serve. Default: the first accepted token
	// pins it.
	Domain fence.Domain
	// Bound is how long Arm, Do and Move wait for another writer, and how
	// long the statements of one Do may take on SQLite. On PostgreSQL, a
	// transaction of Do whose client is silent for half of it is ended by
	// the server. Keep it below the time in which a lease must be handed on.
	// Default DefaultBound.
	Bound time.Duration
	// Reporter is told of every refusal. Default: nobody.
	Reporter fence.Reporter
	// Logger gets a warning a refusal. Default slog.Default().
	Logger *slog.Logger
}

func (c Config) complete() (Config, error) {
	if c.Name == "" {
		c.Name = "sqlgate"
	}
	if c.Bound == 0 {
		c.Bound = DefaultBound
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Slots = max(c.Slots, 1)
	switch {
	case c.Bound < time.Millisecond || c.Bound > MaxBound:
		return c, fmt.Errorf("%w: sqlgate: Bound is %v: want 1ms – %v, or 0 for %v", fence.ErrMalformed, c.Bound, MaxBound, DefaultBound)
	}
	if err := c.guard().Validate(); err != nil {
		return c, fmt.Errorf("sqlgate: %w", err)
	}
	return c, nil
}

func (c Config) guard() fence.Guard {
	return fence.Guard{Gate: c.Name, Lock: c.Lock, Slots: c.Slots, Shared: c.AllowShared}
}
