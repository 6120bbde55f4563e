package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"holdfast/fence"
)

// The SQLSTATEs that the gate knows. Those that begin with Z are its own.
const (
	stateRefused   = "ZHF01" // raised by the check at the commit
	stateNoLock    = "55P03"
	stateCancelled = "57014" // among others by statement_timeout
	stateIdle      = "25P03" // idle_in_transaction_session_timeout
	stateFailed    = "25P02" // a statement before failed the transaction
	stateSerialize = "40001"
	stateDeadlock  = "40P01"
	statePrivilege = "42501"
)

// sqlState returns the code of a server's error, or "" if err is none.
func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// hindered turns an error of having waited too long into one that wraps
// fence.ErrUndrained and says for whom. Others it returns as they are.
func (g *Postgres) hindered(ctx context.Context, conn *sql.Conn, t fence.Token, err error, blockers func() []string) error {
	var by []string
	if blockers != nil {
		by = blockers()
	}
	if err == nil || fence.KindOf(err) != fence.KindNone {
		return err
	}
	switch sqlState(err) {
	case stateNoLock, stateCancelled, stateDeadlock:
	default:
		if !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
		}
	}
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if len(by) == 0 {
		by = []string{"a transaction that holds the mark"}
	}
	who := strings.Join(by, " and ")
	if marks := g.holders(ctx, conn); marks != "" {
		who += ", most likely the holder of " + marks
	}
	return &fence.UndrainedError{Gate: g.guard.Gate, Offered: t, By: who, Err: err}
}

// holders names the tokens that are in force. What a transaction has not
// committed nobody else sees, but with a lawful token it is one of these.
func (g *Postgres) holders(ctx context.Context, conn *sql.Conn) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(g.bound, time.Second))
	defer cancel()
	s, err := g.state(ctx, conn)
	if err != nil { // the connection may have gone with its deadline
		if s, err = g.state(ctx, g.db); err != nil {
			return ""
		}
	}
	return holders(s)
}

func holders(s fence.State) string {
	var marks []string
	for _, m := range s.Marks {
		if m.Token.Domain == s.Active && len(marks) < 3 {
			marks = append(marks, fmt.Sprintf("token %d (slot %d, armed by %s at %s)", m.Token.Number, m.Token.Slot, m.RaisedBy, m.RaisedAt.Format(time.RFC3339)))
		}
	}
	return strings.Join(marks, " or ")
}

// watchBlockers asks, when session pid has waited for a while, who it waits
// for. The function that it returns ends that and gives the answer.
func (g *Postgres) watchBlockers(ctx context.Context, pid int) func() []string {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.NewTimer(g.patience(ctx) / 4)
	var all []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer timer.Stop()
		select {
		case <-timer.C:
			all, _ = g.blockers(ctx, pid) // what cannot be asked is not told
		case <-ctx.Done():
		}
	}()
	return sync.OnceValue(func() []string {
		cancel()
		<-done
		return all
	})
}

func (g *Postgres) patience(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return g.bound
}

func (g *Postgres) blockers(ctx context.Context, pid int) (all []string, err error) {
	rows, err := g.db.QueryContext(ctx, `SELECT b.pid, coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''), coalesce(a.state, ''),
	coalesce(extract(epoch FROM clock_timestamp() - a.state_change), 0)::float8
FROM (SELECT DISTINCT unnest(pg_blocking_pids($1)) AS pid) AS b LEFT JOIN pg_stat_activity AS a ON a.pid = b.pid ORDER BY b.pid LIMIT 3`, pid)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var other int
		var name, host, state string
		var seconds float64
		if err := rows.Scan(&other, &name, &host, &state, &seconds); err != nil {
			return nil, err
		}
		text := fmt.Sprintf("session %d", other)
		if other == 0 {
			text = "a prepared transaction (see pg_prepared_xacts)"
		}
		var more []string
		for _, m := range []string{name, host} {
			if m != "" {
				more = append(more, m)
			}
		}
		if state != "" {
			more = append(more, fmt.Sprintf("%s for %.1f s", state, seconds))
		}
		if len(more) > 0 {
			text += " (" + strings.Join(more, ", ") + ")"
		}
		all = append(all, text)
	}
	return all, rows.Err()
}
