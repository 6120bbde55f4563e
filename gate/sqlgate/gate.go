package sqlgate

import (
	"context"
	"database/sql"
	"fmt"

	"holdfast/fence"
)

// A Gate guards data in one database for one lock. It keeps its marks in two
// tables of that database (holdfast_gate, holdfast_gate_mark), so gates of any
// number of processes agree. Its methods may be called by several goroutines
// at once. It holds no connection between calls, and needs no closing.
type Gate struct {
	base
	dialect Dialect
	// reached is called at the named points of a Do; tests stop there.
	reached func(ctx context.Context, point string)
}

// New opens the gate of c.Lock in db, and creates its tables if db has none.
// It probes that db can fence, and returns an error that wraps
// [ErrCannotFence] if it cannot, [fence.ErrMalformed] if c breaks a rule,
// [fence.ErrRecord] if the tables are not as the gate made them, and
// [fence.ErrUndrained] if another writer does not end within c.Bound. A
// database that already serves another domain than c.Domain is refused.
//
// The gate uses db for as long as calls to it are made; the caller closes db.
func New(ctx context.Context, db *sql.DB, c Config) (*Gate, error) {
	g := &Gate{dialect: c.Dialect, reached: func(context.Context, string) {}}
	switch {
	case c.Dialect == nil:
		return nil, fmt.Errorf("%w: sqlgate: no Dialect: want sqlgate.SQLite (NewPostgres is for PostgreSQL)", fence.ErrMalformed)
	case c.Schema != "":
		return nil, fmt.Errorf("%w: sqlgate: Schema is %q: %s has none", fence.ErrMalformed, clip(c.Schema), c.Dialect)
	}
	c, err := g.init(db, c)
	if err != nil {
		return nil, err
	}
	if err := c.Dialect.prepare(ctx, db, c.Lock, c.Bound); err != nil {
		return nil, fmt.Errorf("gate %s: %s: %w", c.Name, c.Dialect, err)
	}
	if err := g.pin(ctx, c.Domain); err != nil {
		return nil, err
	}
	return g, nil
}

// pin makes d the active domain of a gate that has none.
func (g *Gate) pin(ctx context.Context, d fence.Domain) error {
	if d == (fence.Domain{}) {
		return nil
	}
	return g.withConn(ctx, fence.Token{}, func(conn *sql.Conn) error {
		return g.step(ctx, conn, fence.Token{}, true, func(ctx context.Context) error {
			s, err := g.state(ctx, conn)
			if err != nil {
				return err
			}
			if s.Active != (fence.Domain{}) && s.Active != d {
				return fmt.Errorf("gate %s: the database serves domain %s, not %s: move it first", g.guard.Gate, s.Active, d)
			}
			_, err = conn.ExecContext(ctx, `UPDATE main.holdfast_gate SET active = ? WHERE lock = ?`, d.String(), g.guard.Lock)
			return err
		})
	})
}

// Arm raises the mark to t and writes no data. When it returns nil, the mark
// is on disk, and no write with a lower token can still take effect. Arm
// before you read: otherwise a zombie's write can land between your read and
// your write.
//
// A refusal wraps [fence.ErrRefused] or [fence.ErrMalformed]. If another
// writer does not end within Config.Bound, or ctx ends before, the error wraps
// [fence.ErrUndrained] and names who that is, as far as it can be known.
func (g *Gate) Arm(ctx context.Context, t fence.Token) error {
	err := g.arm(ctx, t, fence.ToArm)
	g.tell(ctx, fence.ToArm, t, err)
	return err
}

func (g *Gate) arm(ctx context.Context, t fence.Token, use fence.Use) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	return g.withConn(ctx, t, func(conn *sql.Conn) error { return g.armOn(ctx, conn, t, use) })
}

// armOn judges t by what is committed, which is as good as under the write
// lock for a token that equals the mark and for one that is refused, because
// marks never fall; a raise takes the lock and judges again.
func (g *Gate) armOn(ctx context.Context, conn *sql.Conn, t fence.Token, use fence.Use) error {
	var verdict fence.Verdict
	err := g.patient(ctx, t, func(ctx context.Context) (err error) {
		verdict, _, err = g.judge(ctx, conn, t, use)
		return err
	})
	if err != nil || verdict == fence.Accept {
		return err
	}
	return g.step(ctx, conn, t, true, func(ctx context.Context) error {
		verdict, _, err := g.judge(ctx, conn, t, use)
		if err != nil || verdict == fence.Accept {
			return err
		}
		return g.raise(ctx, conn, t)
	})
}

// judge reads the record and judges t by it.
func (g *Gate) judge(ctx context.Context, conn *sql.Conn, t fence.Token, use fence.Use) (fence.Verdict, record, error) {
	r, err := g.load(ctx, conn, t)
	if err != nil {
		return fence.Refuse, r, err
	}
	verdict, err := fence.Judge(g.guard, r.active, r.seen, t, use)
	return verdict, r, err
}

// Show returns what the gate remembers: the marks, when each last rose, and
// the active domain.
func (g *Gate) Show(ctx context.Context) (s fence.State, err error) {
	err = g.withConn(ctx, fence.Token{}, func(conn *sql.Conn) error {
		return g.patient(ctx, fence.Token{}, func(ctx context.Context) error {
			s, err = g.state(ctx, conn)
			return err
		})
	})
	return s, err
}

// Move makes another domain the active one: a compare-and-set for operators
// (see [fence.Move]). It is logged.
func (g *Gate) Move(ctx context.Context, m fence.Move) error {
	err := g.withConn(ctx, m.Token, func(conn *sql.Conn) error {
		return g.step(ctx, conn, m.Token, true, func(ctx context.Context) error {
			s, err := g.state(ctx, conn)
			if err != nil {
				return err
			}
			if err := fence.JudgeMove(s, m); err != nil {
				return err
			}
			return g.raise(ctx, conn, m.Token)
		})
	})
	g.tell(ctx, fence.ToMove, m.Token, err)
	if err == nil {
		g.tellMove(ctx, m)
	}
	return err
}
