package wire

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire/holdfastv1"
)

// A Remote is the cause below every [*driver.Error] that came over the wire
// with an ErrorInfo: what the portable error has no field for.
type Remote struct {
	// Info is the error's detail as it was received; read only.
	Info *holdfastv1.ErrorInfo
}

// Error implements error.
func (r *Remote) Error() string { return r.Info.GetMessage() }

// Revision is the revision that a compare-and-set found; 0 if the error is
// not about one.
func (r *Remote) Revision() uint64 { return r.Info.GetRevision() }

// Leader says who leads, as far as the server that answered knew: the address
// for clients ("" if unknown) and the term.
func (r *Remote) Leader() (address string, term uint64) {
	return r.Info.GetLeaderAddress(), r.Info.GetTerm()
}

// RemoteOf returns the [Remote] in err's chain, or nil.
func RemoteOf(err error) *Remote {
	if r, ok := errors.AsType[*Remote](err); ok {
		return r
	}
	return nil
}

// codes says which connect code (and so which HTTP status) stands for a kind.
// The code is for people and proxies; clients decide by ErrorInfo.
var codes = map[driver.Kind]connect.Code{
	driver.Internal:    connect.CodeInternal,
	driver.Invalid:     connect.CodeInvalidArgument,
	driver.Unsupported: connect.CodeUnimplemented,
	driver.Denied:      connect.CodePermissionDenied,
	driver.Unavailable: connect.CodeUnavailable,
	driver.Overloaded:  connect.CodeResourceExhausted,
	driver.Busy:        connect.CodeAborted,
	driver.HeldByYou:   connect.CodeAborted,
	driver.Closed:      connect.CodeAborted,
	driver.Cancelled:   connect.CodeCanceled,
	driver.Limit:       connect.CodeFailedPrecondition,
	driver.SessionLost: connect.CodeNotFound,
	driver.NotHeld:     connect.CodeFailedPrecondition,
	driver.NotFound:    connect.CodeNotFound,
	driver.Conflict:    connect.CodeAborted,
	driver.Stale:       connect.CodeFailedPrecondition,
}

// Code returns the connect code that stands for kind on the wire.
func Code(kind driver.Kind) connect.Code {
	if c, ok := codes[kind]; ok {
		return c
	}
	return connect.CodeInternal
}

// Error makes e the error of a call: code, text and the ErrorInfo detail. Use
// [ErrorInfo] with a Remote below e to send a revision or a leader along.
func Error(e *driver.Error) *connect.Error {
	c := connect.NewError(Code(e.Kind), errors.New(e.Error()))
	if d, err := connect.NewErrorDetail(ErrorInfo(e)); err == nil {
		c.AddDetail(d)
	}
	return c
}

// ErrorInfo is e's form on the wire. If a [Remote] is in e's chain, its
// revision, leader and term are kept.
func ErrorInfo(e *driver.Error) *holdfastv1.ErrorInfo {
	bare := *e
	bare.Holder = nil // the message is without it: the reader adds it again
	info := &holdfastv1.ErrorInfo{
		Kind:      e.Kind.String(),
		Outcome:   e.Outcome.String(),
		Lock:      e.Lock,
		Message:   bare.Error(),
		Waiters:   uint32(min(max(e.Waiters, 0), math.MaxUint32)),
		OpensInMs: MillisUp(e.OpensIn),
	}
	if r := RemoteOf(e.Err); r != nil {
		info.Revision, info.LeaderAddress, info.Term = r.Info.GetRevision(), r.Info.GetLeaderAddress(), r.Info.GetTerm()
	}
	if h := e.Holder; h != nil {
		id, _ := ParseID(h.Session)
		info.Holder = &holdfastv1.Holder{
			Grant: h.GrantNumber, Token: h.Token, SessionId: id,
			Label: h.Label, Host: h.Host, HeldMs: Millis(h.Held),
		}
	}
	return info
}

// FromErrorInfo is the inverse of [ErrorInfo]. A kind that this version does
// not know is Internal, an outcome that it does not know is Unknown: neither
// claims anything. A nil info is a nil error.
func FromErrorInfo(info *holdfastv1.ErrorInfo) *driver.Error {
	if info == nil {
		return nil
	}
	e := &driver.Error{
		Kind:    driver.ParseKind(info.GetKind()),
		Outcome: parseOutcome(info.GetOutcome()),
		Lock:    info.GetLock(),
		Msg:     info.GetMessage(),
		Waiters: int(info.GetWaiters()),
		OpensIn: FromMillis(info.GetOpensInMs()),
		Err:     &Remote{Info: info},
	}
	if h := info.GetHolder(); h != nil {
		e.Holder = &driver.Holder{
			Label: h.GetLabel(), Host: h.GetHost(), Session: FormatID(h.GetSessionId()),
			GrantNumber: h.GetGrant(), Token: h.GetToken(), Held: FromMillis(h.GetHeldMs()),
		}
	}
	return e
}

func parseOutcome(s string) driver.Outcome {
	switch s {
	case driver.No.String():
		return driver.No
	case driver.Yes.String():
		return driver.Yes
	}
	return driver.Unknown
}

// FromError classifies the error of a call, at the client. An error with an
// ErrorInfo is what the server said. Any other comes from the transport, a
// proxy or the RPC layer: only where that layer refuses before the service
// sees the call is the outcome No; all the rest is Unknown, and Unavailable
// unless the answer came and cannot be read. A nil err is nil.
func FromError(err error) *driver.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &driver.Error{Kind: driver.Unavailable, Outcome: driver.Unknown, Err: err}
	}
	c, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return &driver.Error{Kind: driver.Unavailable, Outcome: driver.Unknown, Err: err}
	}
	for _, d := range c.Details() {
		if m, err := d.Value(); err == nil {
			if info, ok := m.(*holdfastv1.ErrorInfo); ok {
				return FromErrorInfo(info)
			}
		}
	}
	e := &driver.Error{Kind: driver.Unavailable, Outcome: driver.Unknown, Err: err}
	local := !connect.IsWireError(c)
	if local && brokeOff(c) {
		return e
	}
	switch c.Code() {
	case connect.CodeInvalidArgument:
		e.Kind, e.Outcome = driver.Invalid, driver.No
		if local { // the answer, not the request
			e.Kind, e.Outcome = driver.Internal, driver.Unknown
		}
	case connect.CodeUnimplemented:
		e.Kind, e.Outcome = driver.Unsupported, driver.No
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		e.Kind, e.Outcome = driver.Denied, driver.No
	case connect.CodeResourceExhausted:
		// The reader's or the sender's frame limit. Which of both is not
		// said, so the outcome stays open.
		e.Kind = driver.Limit
	case connect.CodeInternal, connect.CodeDataLoss:
		e.Kind = driver.Internal
	}
	return e
}

// brokeOff reports whether an error that connect made by itself says that the
// line broke, or the server reset the call, in the middle of it. Connect gives
// that codes from Internal to PermissionDenied, and the errors of HTTP/2 have
// no type: their texts must do. A text that is not known here is Unavailable
// too unless its code says more.
func brokeOff(c *connect.Error) bool {
	text := c.Message()
	return errors.Is(c, io.ErrUnexpectedEOF) ||
		strings.HasPrefix(text, "protocol error: incomplete envelope") ||
		strings.Contains(text, "stream error: ") ||
		text == "unary response has zero messages"
}
