package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
		if e := FromError(connect.NewError(code, errors.New("no"))); e.Kind != kind || e.Outcome != driver.No {
			t.Errorf("%v: got %v, %v", code, e.Kind, e.Outcome)
		}
	}
	if FromError(nil) != nil || FromErrorInfo(nil) != nil {
		t.Error("nil became an error")
	}
}

func TestUnknownNamesClaimNothing(t *testing.T) {
	e := FromErrorInfo(&holdfastv1.ErrorInfo{Kind: "from-the-future", Outcome: "perhaps", OpensInMs: 1 << 63, Holder: &holdfastv1.Holder{HeldMs: 1<<64 - 1}})
	if e.Kind != driver.Internal || e.Outcome != driver.Unknown || e.OpensIn <= 0 || e.Holder.Held <= 0 {
		t.Errorf("got %+v", e)
	}
}
