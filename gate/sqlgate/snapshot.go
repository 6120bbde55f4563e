package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// A Snapshot reads the database as it was at one instant, after the gate was
// armed. It is valid until the function that it was given to returns, and may
// be used by several goroutines of it. It cannot write.
type Snapshot struct {
	mu struct {
		sync.Mutex
		closed bool
		read   bool // something was read: a change since then matters
		rows   []*sql.Rows
	}
	conn  *sql.Conn
	check func(text string) error
}

// Query runs one SELECT, VALUES or WITH … SELECT. The rows are closed at the
// latest when the function that got the snapshot returns.
func (s *Snapshot) Query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := s.check(query); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, ErrSnapshotClosed
	}
	s.mu.read = true
	rows, err := s.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	s.mu.rows = append(s.mu.rows, rows)
	return rows, nil
}

// QueryRow is Query for at most one row. Errors wait until [Row.Scan].
func (s *Snapshot) QueryRow(ctx context.Context, query string, args ...any) *Row {
	rows, err := s.Query(ctx, query, args...)
	return &Row{rows: rows, err: err}
}

// close ends the use of the snapshot and reports whether anything was read.
func (s *Snapshot) close() (read bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	for _, rows := range s.mu.rows {
		err = errors.Join(err, rows.Close())
	}
	s.mu.rows = nil
	return s.mu.read, err
}

// A Row is the result of [Snapshot.QueryRow].
type Row struct {
	rows *sql.Rows
	err  error
}

// Scan copies the first row into dest; [sql.ErrNoRows] if there is none.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	for _, d := range dest {
		if _, ok := d.(*sql.RawBytes); ok {
			return errors.New("sqlgate: Scan into sql.RawBytes is not possible here, the row is closed afterwards: use []byte")
		}
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	return r.rows.Close()
}
