package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire/holdfastv1"
)

// kinds are all kinds that have a name.
func kinds() []driver.Kind {
	var all []driver.Kind
	for k := driver.Kind(0); !strings.HasPrefix(k.String(), "kind("); k++ {
		all = append(all, k)
	}
	return all
}

func TestEveryKindAndOutcomeTravels(t *testing.T) {
	if len(kinds()) != len(codes) {
		t.Fatalf("%d kinds, %d codes: each kind needs a code", len(kinds()), len(codes))
	}
	for _, k := range kinds() {
		for _, o := range []driver.Outcome{driver.Unknown, driver.No, driver.Yes} {
			in := &driver.Error{
				Kind: k, Outcome: o, Lock: "billing/é", Msg: "cannot have it", Waiters: 3, OpensIn: 1500 * time.Millisecond,
				Holder: &driver.Holder{Label: "run", Host: "db7", Session: "17", GrantNumber: 33, Token: "33@x", Held: 2 * time.Second},
			}
			out := FromError(fmt.Errorf("call: %w", Error(in)))
			holder := *out.Holder
			if holder != *in.Holder || out.Kind != k || out.Outcome != o || out.Lock != in.Lock || out.Waiters != 3 || out.OpensIn != in.OpensIn {
				t.Errorf("%v/%v: got %+v, holder %+v", k, o, out, holder)
			}
			if out.Error() != in.Error() {
				t.Errorf("text changed on the way:\n%s\n%s", in, out)
			}
		}
	}
}

func TestLeaderAndRevisionTravel(t *testing.T) {
	in := &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "not the leader",
		Err: &Remote{Info: &holdfastv1.ErrorInfo{LeaderAddress: "10.0.0.2:7433", Term: 8, Revision: 5}}}
	r := RemoteOf(FromError(Error(in)))
	if r == nil {
		t.Fatal("no Remote")
	}
	if a, term := r.Leader(); a != "10.0.0.2:7433" || term != 8 || r.Revision() != 5 {
		t.Errorf("got %q, term %d, revision %d", a, term, r.Revision())
	}
	if RemoteOf(errors.New("plain")) != nil {
		t.Error("a plain error has a Remote")
	}
}

// An error that nobody classified must never claim that nothing happened.
func TestTransportErrorsClaimNothing(t *testing.T) {
	for _, err := range []error{
		errors.New("connection reset"), context.Canceled, context.DeadlineExceeded,
		connect.NewError(connect.CodeUnavailable, errors.New("EOF")),
		connect.NewError(connect.CodeUnknown, errors.New("502 from a proxy")),
		connect.NewError(connect.CodeDeadlineExceeded, errors.New("slow")),
		connect.NewError(connect.CodeCanceled, errors.New("gone")),
		connect.NewError(connect.CodeInternal, errors.New("broken stream")),
		connect.NewError(connect.CodeResourceExhausted, errors.New("too long")),
		connect.NewError(connect.CodeAborted, errors.New("?")),
	} {
		if e := FromError(err); e.Outcome != driver.Unknown || !errors.Is(e, err) {
			t.Errorf("%v: outcome %v, wraps %v", err, e.Outcome, e.Err)
		}
	}
	for code, kind := range map[connect.Code]driver.Kind{
		connect.CodeInvalidArgument: driver.Invalid, connect.CodeUnimplemented: driver.Unsupported,
		connect.CodePermissionDenied: driver.Denied, connect.CodeUnauthenticated: driver.Denied,
	} {
		if e := FromError(connect.NewWireError(code, errors.New("no"))); e.Kind != kind || e.Outcome != driver.No {
			t.Errorf("%v: got %v, %v", code, e.Kind, e.Outcome)
		}
	}
	if FromError(nil) != nil || FromErrorInfo(nil) != nil {
		t.Error("nil became an error")
	}
}

// A line that breaks in the middle of an answer is a service that cannot be
// reached, whatever code the RPC layer gives that; an answer that came whole
// and makes no sense is a defect. Neither says that nothing happened.
func TestBrokenAnswers(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	for _, err := range []error{
		connect.NewError(connect.CodeInternal, fmt.Errorf("protocol error: incomplete envelope: %w", io.ErrUnexpectedEOF)),
		connect.NewError(connect.CodeInternal, fmt.Errorf("protocol error: incomplete envelope: %w", reset)),
		connect.NewError(connect.CodeInternal, fmt.Errorf("protocol error: incomplete envelope: %w", errors.New("http2: client connection lost"))),
		connect.NewError(connect.CodeInternal, fmt.Errorf("protocol error: %w", io.ErrUnexpectedEOF)),
		connect.NewError(connect.CodeInternal, fmt.Errorf("protocol error: promised 9 bytes in enveloped message, got 3 bytes: %w", io.ErrUnexpectedEOF)),
		connect.NewError(connect.CodeInternal, errors.New("stream error: stream ID 5; INTERNAL_ERROR; received from peer")),
		connect.NewError(connect.CodeResourceExhausted, errors.New("bandwidth exhausted: stream error: stream ID 5; ENHANCE_YOUR_CALM; received from peer")),
		connect.NewError(connect.CodePermissionDenied, errors.New("transport protocol insecure: stream error: stream ID 5; INADEQUATE_SECURITY; received from peer")),
		connect.NewError(connect.CodeCanceled, errors.New("stream error: stream ID 5; CANCEL; received from peer")),
		connect.NewError(connect.CodeUnknown, fmt.Errorf("read message: %w", reset)),
		connect.NewError(connect.CodeUnimplemented, errors.New("unary response has zero messages")),
		reset,
		io.ErrUnexpectedEOF,
	} {
		if e := FromError(fmt.Errorf("call: %w", err)); e.Kind != driver.Unavailable || e.Outcome != driver.Unknown {
			t.Errorf("%v: got %v, %v", err, e.Kind, e.Outcome)
		}
	}
	for _, err := range []error{
		connect.NewError(connect.CodeInvalidArgument, errors.New("unmarshal message: proto: cannot parse invalid wire-format data")),
		connect.NewError(connect.CodeInternal, errors.New("protocol error: invalid envelope flags 64")),
		connect.NewWireError(connect.CodeInternal, errors.New("what the server says of itself: stream error: in its own words")),
	} {
		if e := FromError(err); e.Kind != driver.Internal || e.Outcome != driver.Unknown {
			t.Errorf("%v: got %v, %v", err, e.Kind, e.Outcome)
		}
	}
	// What stands before the service refuses with a status only.
	for code, kind := range map[connect.Code]driver.Kind{connect.CodePermissionDenied: driver.Denied, connect.CodeUnauthenticated: driver.Denied, connect.CodeUnimplemented: driver.Unsupported} {
		if e := FromError(connect.NewError(code, errors.New("HTTP status"))); e.Kind != kind || e.Outcome != driver.No {
			t.Errorf("%v: got %v, %v", code, e.Kind, e.Outcome)
		}
	}
}

func TestUnknownNamesClaimNothing(t *testing.T) {
	e := FromErrorInfo(&holdfastv1.ErrorInfo{Kind: "from-the-future", Outcome: "perhaps", OpensInMs: 1 << 63, Holder: &holdfastv1.Holder{HeldMs: 1<<64 - 1}})
	if e.Kind != driver.Internal || e.Outcome != driver.Unknown || e.OpensIn <= 0 || e.Holder.Held <= 0 {
		t.Errorf("got %+v", e)
	}
}
