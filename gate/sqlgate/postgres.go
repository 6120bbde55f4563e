package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"holdfast/fence"
)

// A Postgres guards data in one PostgreSQL database (13 or newer) for one
// lock. It keeps its marks in tables of one schema there, so gates of any
// number of processes agree. Its methods may be called by several goroutines
// at once. It holds no connection between calls, and needs no closing.
type Postgres struct {
	base
	schema string // quoted
	sql    postgresSQL
	// reached is called at the named points of a Do; tests stop there.
	reached func(ctx context.Context, point string)
}

// NewPostgres opens the gate of c.Lock in db, and creates its tables if there
// are none. It probes that db can fence, on two connections, and returns an
// error that wraps [ErrCannotFence] if it cannot (another system, a standby, a
// pooler that spreads a transaction over sessions), [fence.ErrMalformed] if c
// breaks a rule, and [fence.ErrRecord] if the tables are not as the gate made
// them. A database that already serves another domain than c.Domain is
// refused.
//
// Any database/sql driver will do whose errors have a method SQLState, as
// those of pgx and of lib/pq. The gate uses db for as long as calls to it are
// made; the caller closes db.
func NewPostgres(ctx context.Context, db *sql.DB, c Config) (*Postgres, error) {
	if c.Dialect != nil {
		return nil, fmt.Errorf("%w: sqlgate: Dialect is %s: NewPostgres wants none", fence.ErrMalformed, c.Dialect)
	}
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if !schemaName.MatchString(c.Schema) || strings.HasPrefix(c.Schema, "pg_") {
		return nil, fmt.Errorf("%w: sqlgate: Schema is %q: want 1–63 of a-z, 0-9 and _, not a digit first, and not pg_…", fence.ErrMalformed, clip(c.Schema))
	}
	g := &Postgres{reached: func(context.Context, string) {}}
	c, err := g.init(db, c)
	if err != nil {
		return nil, err
	}
	g.schema = `"` + c.Schema + `"` // it may be a keyword
	g.sql = newPostgresSQL(g.schema)
	if err := g.prepare(ctx); err != nil {
		return nil, fmt.Errorf("gate %s: PostgreSQL: %w", c.Name, err)
	}
	if err := g.pin(ctx, c.Domain); err != nil {
		return nil, err
	}
	return g, nil
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Arm raises the mark to t and writes no data. When it returns nil, the mark
// is on disk (and on the synchronous standbys, if there are any), and no write
// with a lower token can still take effect. Arm before you read: otherwise a
// zombie's write can land between your read and your write.
//
// A refusal wraps [fence.ErrRefused] or [fence.ErrMalformed]. If a transaction
// that is being committed does not end within Config.Bound, or ctx ends
// before, the error wraps [fence.ErrUndrained] and names who that is, as far
// as it can be known.
func (g *Postgres) Arm(ctx context.Context, t fence.Token) error {
	err := t.Validate()
	if err != nil {
		err = fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	} else {
		err = g.withConn(ctx, t, func(conn *sql.Conn) error { return g.armOn(ctx, conn, t, fence.ToArm) })
	}
	g.tell(ctx, fence.ToArm, t, err)
	return err
}

// armOn judges t by what is committed, which is as good as under a lock for a
// token that equals the mark and for one that is refused, because marks never
// fall. A raise commits its intent first, so that no holder of an older token
// begins a transaction any more (E5); then it locks the mark, which waits for
// those that are being committed, and judges again.
func (g *Postgres) armOn(ctx context.Context, conn *sql.Conn, t fence.Token, use fence.Use) error {
	verdict, _, err := g.judge(ctx, conn, t, use)
	if err != nil || verdict == fence.Accept {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	if err := g.announce(bounded, conn, t); err != nil {
		return g.hindered(ctx, conn, t, err, nil)
	}
	return g.exclusively(ctx, conn, t, func(ctx context.Context, tx *sql.Tx) error {
		return g.raise(ctx, tx, t, use)
	})
}

// announce commits the intent. It is for liveness only, so it need not be on
// disk, and a lower one that comes late does no harm.
func (g *Postgres) announce(ctx context.Context, conn *sql.Conn, t fence.Token) error {
	return g.inTx(ctx, conn, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, g.sql.limit, serverLimit(ctx), "off"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, g.sql.announce, g.guard.Lock, t.Domain.String(), int64(t.Slot), int64(t.Number), t.String())
		return err
	})
}

// raise makes t the mark of its slot, and its domain the active one if none
// was. Locks are taken in one order everywhere: the gate's row, then a mark.
func (g *Postgres) raise(ctx context.Context, tx *sql.Tx, t fence.Token, use fence.Use) error {
	if _, err := tx.ExecContext(ctx, g.sql.pin, g.guard.Lock, t.Domain.String()); err != nil {
		return err
	}
	for {
		r, err := g.locked(ctx, tx, t)
		if err != nil {
			return err
		}
		verdict, err := fence.Judge(g.guard, r.active, r.seen, t, use)
		if err != nil || verdict == fence.Accept {
			return err
		}
		done, err := g.store(ctx, tx, t, !r.seen.IsZero())
		if err != nil || done {
			return err
		}
		// Somebody else made the first mark meanwhile: look at it.
	}
}

// locked reads the record that t is judged by, and keeps others from changing
// it: the active domain by a shared lock, the mark by an exclusive one.
func (g *Postgres) locked(ctx context.Context, tx *sql.Tx, t fence.Token) (r record, err error) {
	var active string
	err = tx.QueryRowContext(ctx, g.sql.lockGate, g.guard.Lock).Scan(&active)
	if errors.Is(err, sql.ErrNoRows) {
		return r, g.damaged("the row of lock %q is gone", g.guard.Lock)
	}
	if err != nil {
		return r, err
	}
	var number sql.NullInt64
	var token sql.NullString
	err = tx.QueryRowContext(ctx, g.sql.lockMark, g.guard.Lock, t.Domain.String(), int64(t.Slot)).Scan(&number, &token)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return r, err
	}
	return r, g.parse(&r, active, number, token)
}

// store writes the mark; it reports false if it found the first mark of the
// slot made by somebody else.
func (g *Postgres) store(ctx context.Context, tx *sql.Tx, t fence.Token, replace bool) (bool, error) {
	text := g.sql.insertMark
	if replace {
		text = g.sql.updateMark
	}
	res, err := tx.ExecContext(ctx, text, g.guard.Lock, t.Domain.String(), int64(t.Slot), int64(t.Number), t.String(), g.self)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Show returns what the gate remembers: the marks, when each last rose (by the
// clock of the database), and the active domain.
func (g *Postgres) Show(ctx context.Context) (s fence.State, err error) {
	err = g.withConn(ctx, fence.Token{}, func(conn *sql.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, g.bound)
		defer cancel()
		s, err = g.state(ctx, conn)
		return err
	})
	return s, err
}

// queryer is what a connection and a transaction have in common.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// state reads everything the gate remembers of its lock, in one statement.
func (g *Postgres) state(ctx context.Context, q queryer) (s fence.State, err error) {
	s.Guard = g.guard
	rows, err := q.QueryContext(ctx, g.sql.state, g.guard.Lock)
	if err != nil {
		return s, fmt.Errorf("gate %s: cannot read the marks: %w", g.guard.Gate, err)
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		var active string
		var number sql.NullInt64
		var token, raisedBy sql.NullString
		var at sql.NullTime
		if err := rows.Scan(&active, &number, &token, &at, &raisedBy); err != nil {
			return s, err
		}
		var r record
		if err := g.parse(&r, active, number, token); err != nil {
			return s, err
		}
		found = true
		s.Active = r.active
		if !r.seen.IsZero() {
			s.Marks = append(s.Marks, fence.Mark{Token: r.seen, RaisedAt: at.Time, RaisedBy: raisedBy.String})
		}
	}
	if err := rows.Err(); err != nil {
		return s, err
	}
	if !found {
		return s, g.damaged("the row of lock %q is gone", g.guard.Lock)
	}
	return s, nil
}

// Move makes another domain the active one: a compare-and-set for operators
// (see [fence.Move]). It is logged.
func (g *Postgres) Move(ctx context.Context, m fence.Move) error {
	err := g.withConn(ctx, m.Token, func(conn *sql.Conn) error {
		return g.exclusively(ctx, conn, m.Token, func(ctx context.Context, tx *sql.Tx) error {
			// Whoever raises or commits holds the gate's row shared.
			if _, err := tx.ExecContext(ctx, g.sql.lockMove, g.guard.Lock); err != nil {
				return err
			}
			s, err := g.state(ctx, tx)
			if err != nil {
				return err
			}
			if err := fence.JudgeMove(s, m); err != nil {
				return err
			}
			if _, err := g.store(ctx, tx, m.Token, !s.Mark(m.To, m.Token.Slot).IsZero()); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, g.sql.activate, g.guard.Lock, m.To.String())
			return err
		})
	})
	g.tell(ctx, fence.ToMove, m.Token, err)
	if err == nil {
		g.tellMove(ctx, m)
	}
	return err
}

// pin makes d the active domain of a gate that has none.
func (g *Postgres) pin(ctx context.Context, d fence.Domain) error {
	if d == (fence.Domain{}) {
		return nil
	}
	return g.withConn(ctx, fence.Token{}, func(conn *sql.Conn) error {
		return g.exclusively(ctx, conn, fence.Token{}, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, g.sql.pin, g.guard.Lock, d.String()); err != nil {
				return err
			}
			s, err := g.state(ctx, tx)
			if err == nil && s.Active != d {
				err = fmt.Errorf("gate %s: the database serves domain %s, not %s: move it first", g.guard.Gate, s.Active, d)
			}
			return err
		})
	})
}

// inTx runs do in a transaction at READ COMMITTED, whatever the default is:
// each statement then sees what is committed by now.
func (g *Postgres) inTx(ctx context.Context, conn *sql.Conn, do func(*sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // ErrTxDone after a commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// exclusively runs do in a transaction whose waits are bounded, and whose
// commit is on disk when it returns. If somebody is in the way for too long,
// the error says who, and wraps fence.ErrUndrained.
func (g *Postgres) exclusively(ctx context.Context, conn *sql.Conn, t fence.Token, do func(context.Context, *sql.Tx) error) error {
	bounded, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	var blockers func() []string
	err := g.inTx(bounded, conn, func(tx *sql.Tx) error {
		var pid int
		if err := tx.QueryRowContext(bounded, g.sql.limitDurably, serverLimit(bounded)).Scan(&pid); err != nil {
			return err
		}
		blockers = g.watchBlockers(bounded, pid)
		if err := do(bounded, tx); err != nil {
			return err
		}
		// A limit that ends the wait for a synchronous standby would report
		// a commit that the standby does not have: let ctx end it, as a
		// failure.
		_, err := tx.ExecContext(bounded, `SET LOCAL statement_timeout = 0`)
		return err
	})
	return g.hindered(ctx, conn, t, err, blockers)
}

// serverLimit is how long the server may wait in one statement, as a setting:
// a little less than ctx allows, so that it is the server that says no, and
// the connection lives.
func serverLimit(ctx context.Context) string {
	left := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	left -= min(left/4, 250*time.Millisecond)
	return fmt.Sprintf("%dms", max(left.Milliseconds(), 1))
}
