package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"holdfast/fence"
)

// A record is what the database keeps of a gate, as far as one token is
// concerned.
type record struct {
	active   fence.Domain
	writes   int64       // writes that passed the gate, to notice a change
	seen     fence.Token // the mark; zero: none
	raisedAt string
	raisedBy string
}

const recordSQL = `SELECT g.active, g.writes, m.number, m.token, m.raised_at, m.raised_by
FROM main.holdfast_gate AS g
LEFT JOIN main.holdfast_gate_mark AS m ON m.lock = g.lock AND m.domain = ? AND m.slot = ?
WHERE g.lock = ?`

// load reads the record that a token is judged by.
func (g *Gate) load(ctx context.Context, conn *sql.Conn, t fence.Token) (record, error) {
	row := conn.QueryRowContext(ctx, recordSQL, t.Domain.String(), int64(t.Slot), g.guard.Lock)
	return g.scan(row.Scan)
}

func (g *Gate) scan(scan func(...any) error) (r record, err error) {
	var (
		active              string
		number              sql.NullInt64
		token, at, raisedBy sql.NullString
	)
	err = scan(&active, &r.writes, &number, &token, &at, &raisedBy)
	if errors.Is(err, sql.ErrNoRows) {
		return r, g.damaged("the row of lock %q is gone", g.guard.Lock)
	}
	if err != nil {
		return r, fmt.Errorf("gate %s: cannot read the mark: %w", g.guard.Gate, err)
	}
	if err := g.parse(&r, active, number, token); err != nil || r.seen.IsZero() {
		return r, err
	}
	r.raisedAt, r.raisedBy = at.String, raisedBy.String
	return r, nil
}

// raise makes t the mark of its slot and its domain the active one. The caller
// holds the write lock and has judged.
func (g *Gate) raise(ctx context.Context, conn *sql.Conn, t fence.Token) error {
	if _, err := conn.ExecContext(ctx, `UPDATE main.holdfast_gate SET active = ? WHERE lock = ?`, t.Domain.String(), g.guard.Lock); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	res, err := conn.ExecContext(ctx, `UPDATE main.holdfast_gate_mark SET number = ?, token = ?, raised_at = ?, raised_by = ?
WHERE lock = ? AND domain = ? AND slot = ?`,
		int64(t.Number), t.String(), now, g.self, g.guard.Lock, t.Domain.String(), int64(t.Slot))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	_, err = conn.ExecContext(ctx, `INSERT INTO main.holdfast_gate_mark (lock, domain, slot, number, token, raised_at, raised_by) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		g.guard.Lock, t.Domain.String(), int64(t.Slot), int64(t.Number), t.String(), now, g.self)
	return err
}

// state reads everything the gate remembers of its lock, in one statement.
func (g *Gate) state(ctx context.Context, conn *sql.Conn) (s fence.State, err error) {
	s.Guard = g.guard
	rows, err := conn.QueryContext(ctx, `SELECT g.active, g.writes, m.number, m.token, m.raised_at, m.raised_by
FROM main.holdfast_gate AS g LEFT JOIN main.holdfast_gate_mark AS m ON m.lock = g.lock
WHERE g.lock = ? ORDER BY m.domain, m.slot`, g.guard.Lock)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		r, err := g.scan(rows.Scan)
		if err != nil {
			return s, err
		}
		found = true
		s.Active = r.active
		if r.seen.IsZero() {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, r.raisedAt)
		if err != nil {
			return s, g.damaged("mark %s was raised at %q", r.seen, r.raisedAt)
		}
		s.Marks = append(s.Marks, fence.Mark{Token: r.seen, RaisedAt: at, RaisedBy: r.raisedBy})
	}
	if err := rows.Err(); err != nil {
		return s, err
	}
	if !found {
		return s, g.damaged("the row of lock %q is gone", g.guard.Lock)
	}
	return s, nil
}
