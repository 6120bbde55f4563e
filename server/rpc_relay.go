package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// relayedHeader marks a call that another member passed on: it is not passed
// on again (C5).
const relayedHeader = "Holdfast-Relayed"

// relayed are the calls that a member which does not lead passes on. Operators'
// calls are not among them: who may make one depends on where it comes from,
// which the leader could not see.
var relayed = []string{
	holdfastv1connect.LockServiceOpenSessionProcedure, holdfastv1connect.LockServiceKeepAliveProcedure,
	holdfastv1connect.LockServiceEndSessionProcedure, holdfastv1connect.LockServiceAcquireProcedure,
	holdfastv1connect.LockServiceCancelProcedure, holdfastv1connect.LockServiceReleaseProcedure,
	holdfastv1connect.LockServicePutProcedure, holdfastv1connect.LockServiceDeleteProcedure,
	holdfastv1connect.LockServiceGetLockProcedure, holdfastv1connect.LockServiceListLocksProcedure,
	holdfastv1connect.LockServiceListSessionsProcedure, holdfastv1connect.LockServiceReportRefusalProcedure,
}

// relay passes a unary call on to the leader, once, if this member does not
// lead and err says who does. The leader alone measures time: the answer is
// passed back as it is. ok is false if the call is not one to be passed on, or
// the leader could not be reached, and so nothing happened.
func (s *service) relay(ctx context.Context, req connect.AnyRequest, err error) (res connect.AnyResponse, relayErr error, ok bool) {
	call := req.Spec().Procedure
	leader := leaderOf(err)
	if leader == 0 || s.relays == nil || req.Header().Get(relayedHeader) != "" || !slices.Contains(relayed, call) {
		return nil, nil, false
	}
	in, isMessage := req.Any().(proto.Message)
	if !isMessage {
		return nil, nil, false
	}
	client := connect.NewClient[relayMessage, relayMessage](s.relays, fmt.Sprintf("http://%016x%s%s", leader, memberHost, call),
		connect.WithCodec(relayCodec{procedure: call}), wire.Limits())
	out := connect.NewRequest(&relayMessage{in})
	out.Header().Set(relayedHeader, s.node.Status().Role)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stopping, func() { cancel(ErrStopped) })()
	got, err := client.CallUnary(ctx, out)
	if err == nil {
		s.metrics.relayed.Inc()
		return connect.NewResponse(got.Msg), nil, true // without headers: they were about that connection
	}
	e := wire.FromError(err)
	if _, undialled := errors.AsType[*undialledError](err); undialled {
		return nil, nil, false
	}
	s.metrics.relayed.Inc()
	return nil, e, true
}

// leaderOf is the member that err names as the leader; 0 if it names none, or
// something may have happened.
func leaderOf(err error) uint64 {
	e := classify(err)
	if e.Kind != driver.Unavailable || e.Outcome != driver.No {
		return 0
	}
	if away, ok := errors.AsType[*NotLeaderError](e); ok {
		return away.Leader
	}
	return 0
}

// relayMessage is a message on its way through: any of the API's.
type relayMessage struct{ proto.Message }

// relayCodec writes and reads the messages of one procedure.
type relayCodec struct{ procedure string }

// Name implements connect.Codec.
func (relayCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (relayCodec) Marshal(m any) ([]byte, error) {
	r, ok := m.(*relayMessage)
	if !ok {
		return nil, fmt.Errorf("%T is not a message to be passed on", m)
	}
	return proto.Marshal(r.Message)
}

// Unmarshal implements connect.Codec.
func (c relayCodec) Unmarshal(data []byte, m any) error {
	switch m := m.(type) {
	case *relayMessage:
		empty, err := outputOf(c.procedure)
		if err != nil {
			return err
		}
		m.Message = empty
		return proto.Unmarshal(data, empty)
	case proto.Message:
		return proto.Unmarshal(data, m)
	}
	return fmt.Errorf("%T is not a message", m)
}

// outputOf makes an empty answer of a procedure, "/package.Service/Method".
func outputOf(procedure string) (proto.Message, error) {
	name := protoreflect.FullName(dotted(procedure))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, err
	}
	method, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no method", name)
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}

func dotted(procedure string) string {
	b := []byte(procedure[1:])
	for i := range b {
		if b[i] == '/' {
			b[i] = '.'
		}
	}
	return string(b)
}

// undialledError says that the leader was not reached, so that nothing happened.
type undialledError struct{ error }

// Unwrap returns the cause below.
func (e *undialledError) Unwrap() error { return e.error }
