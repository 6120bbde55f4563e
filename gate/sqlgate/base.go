package sqlgate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"holdfast/fence"
)

// base is what the gates of all databases have in common.
type base struct {
	db     *sql.DB
	guard  fence.Guard
	bound  time.Duration
	self   string
	report fence.Reporter
	tally  fence.Tally
	log    *slog.Logger
}

func (g *base) init(db *sql.DB, c Config) (Config, error) {
	if db == nil {
		return c, fmt.Errorf("%w: sqlgate: no database", fence.ErrMalformed)
	}
	c, err := c.complete()
	if err != nil {
		return c, err
	}
	g.db, g.guard, g.bound, g.self, g.log = db, c.guard(), c.Bound, self(), c.Logger
	g.report = fence.Reporters(&g.tally, fence.Logging(c.Logger.WarnContext), c.Reporter)
	return c, nil
}

// Name returns the gate's name.
func (g *base) Name() string { return g.guard.Gate }

// Lock returns the lock that the gate is for.
func (g *base) Lock() string { return g.guard.Lock }

// Refusals returns how many tokens this gate value has refused, by kind.
func (g *base) Refusals() map[fence.Kind]uint64 { return g.tally.Counts() }

func (g *base) tell(ctx context.Context, use fence.Use, t fence.Token, err error) {
	var own *notOurs
	if errors.As(err, &own) {
		return // an error of the user's function, perhaps another gate's refusal
	}
	if r, ok := fence.NewRefusal(g.guard, use, t, err); ok {
		g.report.Report(context.WithoutCancel(ctx), r)
	}
}

// tellMove logs a move that was done.
func (g *base) tellMove(ctx context.Context, m fence.Move) {
	g.log.WarnContext(ctx, "gate moved to another domain", "gate", g.guard.Gate, "lock", g.guard.Lock,
		"from", m.From.String(), "to", m.To.String(), "token", m.Token.String())
}

func (g *base) damaged(format string, args ...any) error {
	return fmt.Errorf("%w: gate %s: "+format, append([]any{fence.ErrRecord, g.guard.Gate}, args...)...)
}

// parse fills in r what the database keeps of the active domain and of one
// mark, and fails if that makes no sense.
func (g *base) parse(r *record, active string, number sql.NullInt64, token sql.NullString) (err error) {
	if active != "" {
		if r.active, err = fence.ParseDomain(active); err != nil {
			return g.damaged("active domain: %w", err)
		}
	}
	if !number.Valid {
		return nil
	}
	if r.seen, err = fence.ParseToken(token.String); err != nil {
		return g.damaged("mark: %w", err)
	}
	if r.seen.Number != uint64(number.Int64) || r.seen.Lock != g.guard.Lock {
		return g.damaged("mark %s stands under number %d of lock %q", r.seen, number.Int64, g.guard.Lock)
	}
	return nil
}

// self names this process for people who look for the one that blocks a gate.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// A brokenConn is an error after which the state of the connection is not
// known, so that it must not go back to the pool.
type brokenConn struct{ err error }

func (e *brokenConn) Error() string { return e.err.Error() }
func (e *brokenConn) Unwrap() error { return e.err }

// putBack returns conn to its pool, or has it thrown away if err says that it
// is broken.
func putBack(conn *sql.Conn, err error) {
	var broken *brokenConn
	if errors.As(err, &broken) {
		// Raw discards a connection for which the function returns ErrBadConn.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = conn.Close() // gives it back; ErrConnDone if it was discarded
}

// withConn runs fn with a connection of the pool, waiting for one at most for
// the gate's bound.
func (g *base) withConn(ctx context.Context, t fence.Token, fn func(*sql.Conn) error) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	bounded, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	conn, err := g.db.Conn(bounded)
	if err != nil {
		if bounded.Err() != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			by := fmt.Sprintf("this process: all %d connections of its pool are in use", g.db.Stats().MaxOpenConnections)
			return &fence.UndrainedError{Gate: g.guard.Gate, Offered: t, By: by, Err: err}
		}
		return fmt.Errorf("gate %s: no connection: %w", g.guard.Gate, err)
	}
	done := false
	defer func() {
		if !done { // fn panicked; nothing is known about conn
			err = &brokenConn{errors.New("panic")}
		}
		putBack(conn, err)
	}()
	err = fn(conn)
	done = true
	return err
}
