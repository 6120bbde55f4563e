package server

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// service answers the calls of holdfast.v1.LockService. It checks what a
// request says, asks the node, and turns what comes back into messages; it
// decides nothing. Its methods are in rpc_*.go, stream*.go and watch*.go.
type service struct {
	node    *Node
	log     *slog.Logger
	version string
	metrics *metrics
	voices  *voices
	streams *streams
	backups atomic.Int32 // that are under way
	// operators are those who may make operators' calls.
	operators *operators
	denials   denials
	// begun, if set, is called when the record of a call that begins is in the
	// log; for tests.
	begun func(call string)
	// slowAfter is how long a client may leave what is written to it unread.
	slowAfter time.Duration
	// relays passes calls on to the leader; nil: they are not.
	relays *http.Client
	// stopping is cancelled when the server stops. Only what waits for long
	// looks at it; a short call that is under way is finished.
	stopping context.Context
}

// handler is the service as an HTTP handler, and the path that it serves.
func (s *service) handler() (string, http.Handler) {
	return holdfastv1connect.NewLockServiceHandler(s,
		wire.Limits(), wire.BoundedGzip(), wire.Strict(),
		connect.WithCompressMinBytes(1024),
		connect.WithInterceptors(edge{s}),
		connect.WithRecover(s.recovered),
	)
}

func (s *service) recovered(_ context.Context, spec connect.Spec, _ http.Header, what any) error {
	s.log.Error("a call panicked", "call", spec.Procedure, "panic", fmt.Sprint(what), "stack", string(debug.Stack()))
	return wire.Error(&driver.Error{Kind: driver.Internal, Outcome: driver.Unknown, Msg: "the server failed on this call; its log says how"})
}

// edge is around every call: errors get their form on the wire, calls are
// counted and timed.
type edge struct{ s *service }

// WrapUnary implements [connect.Interceptor].
func (e edge) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		call := req.Spec().Procedure
		begun := time.Now()
		if c := callOf(ctx); c != nil {
			if call == holdfastv1connect.LockServiceKeepAliveProcedure {
				c.received() // the node must have it before a drain is over (B9)
			} else {
				c.decoded()
			}
			defer c.finished()
			defer c.answers(e.s.slowAfter)
		}
		res, err := next(ctx, req)
		if err != nil {
			if passed, why, ok := e.s.relay(ctx, req, err); ok {
				res, err = passed, why
			}
		}
		if err != nil {
			err = e.fail(call, err, begun)
			return nil, err
		}
		e.s.metrics.call(call, "ok", time.Since(begun))
		return res, nil
	}
}

// WrapStreamingClient implements [connect.Interceptor]; there is no client
// here.
func (e edge) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor].
func (e edge) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		call := conn.Spec().Procedure
		begun := time.Now()
		if c := callOf(ctx); c != nil {
			defer c.finished()
		}
		if err := next(ctx, conn); err != nil {
			return e.fail(call, err, begun)
		}
		e.s.metrics.call(call, "ok", 0)
		return nil
	}
}

// fail counts an error and gives it its form on the wire.
func (e edge) fail(call string, err error, begun time.Time) error {
	out := onWire(err)
	kind := wire.FromError(out).Kind
	e.s.metrics.call(call, kind.String(), time.Since(begun))
	if kind == driver.Internal {
		e.s.log.Error("a call failed", "call", call, "error", err)
	}
	return out
}

// owner returns the session that ref names, if its secret proves that the
// caller owns it. That a session does not exist is said only after leadership
// was confirmed: a node that was deposed without knowing it must not tell a
// client that a session opened elsewhere is lost.
//
// It is urgent if the call is: what keeps a session alive or frees a lock gets
// in when new work is refused.
func (s *service) owner(ctx context.Context, ref *holdfastv1.SessionRef, urgent bool) (core.SessionID, error) {
	if ref == nil {
		return 0, invalid(`session is missing: want "session":{"id":…,"secret":…}`)
	}
	if err := checkSessionID(ref.GetId()); err != nil {
		return 0, err
	}
	secret, err := wire.ParseSecret(ref.GetSecret())
	if err != nil {
		return 0, invalid("session.%v", err)
	}
	id := core.SessionID(ref.GetId())
	kept, err := s.secretHash(ctx, id, urgent)
	if err != nil {
		return 0, err
	}
	hash := secret.Hash()
	if subtle.ConstantTimeCompare(kept[:], hash[:]) != 1 {
		s.metrics.denied.Inc()
		s.log.Warn("wrong secret for a session", "session", uint64(id))
		return 0, &driver.Error{Kind: driver.Denied, Outcome: driver.No, Msg: fmt.Sprintf("the secret is not that of session %d", id)}
	}
	return id, nil
}

func (s *service) secretHash(ctx context.Context, id core.SessionID, urgent bool) (hash [32]byte, err error) {
	for _, stale := range []bool{true, false} {
		var ok bool
		err := s.node.view(ctx, stale, urgent, func(r Reading) { hash, ok = r.State.SessionSecretHash(id) })
		if err != nil {
			return hash, nothingDone(err)
		}
		if ok {
			return hash, nil
		}
	}
	return hash, lostSession(id)
}

func lostSession(id core.SessionID) error {
	return &driver.Error{Kind: driver.SessionLost, Outcome: driver.No, Msg: fmt.Sprintf("session %d does not exist (any more): it ended or ran out, and all that it held and waited for with it; open a new one", id)}
}

// do proposes a command for which one answer is final, and returns core's
// result unless it is a refusal.
func (s *service) do(ctx context.Context, cmd core.Command) (core.Result, error) {
	res, err := s.node.Do(ctx, cmd)
	if err != nil {
		return res, err
	}
	if res.Status == core.Refused {
		return res, s.at().refused(res.Refusal)
	}
	return res, nil
}

// nothingDone is for the errors of what a call does before it proposes
// anything: whatever happened to the reading, the outcome is No.
func nothingDone(err error) error {
	e := *classify(err)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Msg = fmt.Sprintf("the call ended (%v) before anything was done", err)
	}
	e.Outcome = driver.No
	return &e
}

// answer wraps a message for connect.
func answer[T any](m *T) (*connect.Response[T], error) { return connect.NewResponse(m), nil }
