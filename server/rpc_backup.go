package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/backup"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

const (
	// maxBackups is how many backups are streamed at one time: each keeps an
	// image of the state.
	maxBackups = 4
	// backupPiece is about how many bytes of the file go into one message.
	backupPiece = 512 << 10
)

// Backup implements the service.
func (s *service) Backup(ctx context.Context, req *connect.Request[holdfastv1.BackupRequest], stream *connect.ServerStream[holdfastv1.BackupResponse]) error {
	callOf(ctx).decoded()
	m := req.Msg
	op := &operation{call: "backup", by: m.GetBy(), on: "the state"}
	op.add("stale", m.GetStale())
	return s.operator(ctx, req.Peer(), op, func() error {
		if s.backups.Add(1) > maxBackups {
			s.backups.Add(-1)
			return fmt.Errorf("%w: %d backups are under way: try again when one has ended", ErrOverloaded, maxBackups)
		}
		defer s.backups.Add(-1)
		return s.backup(ctx, m.GetStale(), op, stream)
	})
}

// backup streams an image of the state. Nothing in it runs on the node's loop
// but the taking of the image.
func (s *service) backup(ctx context.Context, stale bool, op *operation, stream *connect.ServerStream[holdfastv1.BackupResponse]) error {
	if err := s.begin(ctx, op); err != nil {
		if !stale {
			return err
		}
		// It is there for when nobody leads, and only reads.
		s.unrecorded(op, outcomes[core.AuditBegun], err)
		op.recorded = true
	}
	image, err := s.node.Image(ctx, stale)
	if err != nil {
		return nothingDone(err)
	}
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	out := &pieces{ctx: ctx, stream: stream, slow: callOf(ctx).slowReader(s.slowAfter, func() {})}
	defer out.slow.done()
	buf := bufio.NewWriterSize(out, backupPiece)
	h, err := backup.Write(buf, image.State, backup.Info{Term: image.Term, TakenAt: time.Now(), Server: s.version})
	if err == nil {
		err = buf.Flush()
	}
	op.add("index", h.Index, "state_hash", h.StateHash, "bytes", out.sent)
	if errors.Is(context.Cause(ctx), ErrStopped) {
		return &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "the server is stopping: the backup is not complete; take another one"}
	}
	if err != nil {
		return nothingDone(err) // it only reads
	}
	return nil
}

// pieces sends what is written to it as messages of a stream.
type pieces struct {
	ctx    context.Context
	stream *connect.ServerStream[holdfastv1.BackupResponse]
	slow   *slowReader
	sent   uint64
}

// Write implements io.Writer.
func (p *pieces) Write(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, nothingDone(context.Cause(p.ctx))
	}
	done := p.slow.writing()
	err := p.slow.why(p.stream.Send(&holdfastv1.BackupResponse{Data: b}))
	done()
	if err != nil {
		return 0, err
	}
	p.sent += uint64(len(b))
	return len(b), nil
}
