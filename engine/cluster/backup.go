package cluster

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// BackupOptions are the settings of [Client.Backup].
type BackupOptions struct {
	// Stale takes what the first server that answers has applied, without
	// asking whether it leads: it may be older than what was answered.
	Stale bool
	// By names who does it, for the audit.
	By string
}

// Backup writes a backup of the service's whole state to w (operator): the
// bytes of a file that 'holdfast backup verify' checks and 'holdfast restore'
// reads. What came in before an error is not a backup; the checksum at the
// file's end tells. ctx bounds the whole transfer.
func (c *Client) Backup(ctx context.Context, w io.Writer, o BackupOptions) error {
	var not *stream
	for {
		st, err := c.link.stream(ctx, not)
		if err != nil {
			return wire.FromError(err)
		}
		began, err := st.backup(ctx, w, o)
		if err == nil {
			return nil
		}
		e := wire.FromError(err)
		var local *writeError
		switch {
		case errors.As(err, &local):
			return local.err
		case ctx.Err() != nil:
			return ctx.Err()
		case began || e.Kind != driver.Unavailable:
			return e
		}
		// Nothing came: another server may lead, or have a line.
		c.link.refusedUnary(st, e)
		not = st
	}
}

var errLeft = errors.New("the connection was left before the call began")

// writeError is an error of the caller's own writer.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// backup copies one stream; began reports whether anything was written.
func (st *stream) backup(ctx context.Context, w io.Writer, o BackupOptions) (began bool, err error) {
	end, ok := st.conn.begin()
	if !ok {
		return false, &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: errLeft}
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := st.conn.rpc.Backup(ctx, connect.NewRequest(&holdfastv1.BackupRequest{Stale: o.Stale, By: o.By}))
	if err != nil {
		return false, err
	}
	defer func() { _ = s.Close() }()
	for s.Receive() {
		began = true
		if _, err := w.Write(s.Msg().GetData()); err != nil {
			return true, &writeError{err}
		}
	}
	return began, s.Err()
}
