package cluster

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// A rpc is one of the service's unary calls.
type rpc[Req, Res any] func(holdfastv1connect.LockServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// repeat says when a unary call without an answer is made again.
type repeat uint8

const (
	// always: the call may take effect twice without harm (reads, and calls
	// that carry a request ID).
	always repeat = iota + 1
	// ifNot: only if the service says that it did not happen.
	ifNot
)

// unary makes a call on the current connection, and makes it again after the
// next reconnect while no server can say what came of it, until ctx ends. The
// second result reports that an earlier try may have taken effect.
func unary[Req, Res any](ctx context.Context, l *link, again repeat, call rpc[Req, Res], req *Req) (*Res, bool, *driver.Error) {
	var (
		last  *driver.Error
		maybe bool
		not   *stream
	)
	for {
		st, err := l.stream(ctx, not)
		if err != nil {
			e := wire.FromError(err)
			if last != nil {
				e.Err = last
			}
			if maybe {
				e.Outcome = driver.Unknown
			}
			return nil, maybe, e
		}
		end, ok := st.conn.begin()
		if !ok {
			not = st
			continue
		}
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, maxSilence)
		res, err := call(st.conn.rpc, try, connect.NewRequest(req))
		cancel()
		end()
		if err == nil {
			return res.Msg, maybe, nil
		}
		last = wire.FromError(err)
		maybe = maybe || last.Outcome != driver.No
		if last.Kind == driver.Unavailable && (ctx.Err() == nil || time.Since(began) > time.Second) {
			// The server is gone, cannot serve, or has let the call hang:
			// look for another one, or for a new line.
			l.refusedUnary(st, last)
			not = st
		}
		if last.Kind != driver.Unavailable || ctx.Err() != nil || (again == ifNot && maybe) {
			if maybe && last.Kind == driver.Unavailable {
				last.Outcome = driver.Unknown
			}
			return nil, maybe, last
		}
	}
}

// refusedUnary leaves st after a unary call learned that its server is gone or
// cannot serve.
func (l *link) refusedUnary(st *stream, e *driver.Error) {
	hint := ""
	if r := wire.RemoteOf(e); r != nil {
		hint, _ = r.Leader()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	st.refused = true
	l.leaveLocked(st, e, hint)
}
