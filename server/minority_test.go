package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// calling makes a call that needs a leader.
func calling[Req, Res any](call func(holdfastv1connect.LockServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		_, err := call(w.rpc, ctx, connect.NewRequest(req))
		return err
	}
}

// needLeader are all calls that only a leader can answer, for a session that
// holds a grant.
func needLeader(ref *holdfastv1.SessionRef, grant uint64) map[string]func(context.Context, *world) error {
	type api = holdfastv1connect.LockServiceClient
	id := func(n uint64) *holdfastv1.RequestID { return &holdfastv1.RequestID{Lane: 3, N: n} }
	return map[string]func(context.Context, *world) error{
		"OpenSession":        calling(api.OpenSession, &holdfastv1.OpenSessionRequest{Secret: drawSecret().String(), TtlMs: 60_000}),
		"KeepAlive":          calling(api.KeepAlive, &holdfastv1.KeepAliveRequest{Session: ref}),
		"Acquire":            calling(api.Acquire, &holdfastv1.AcquireRequest{Session: ref, Request: id(1), Lock: "other"}),
		"Cancel":             calling(api.Cancel, &holdfastv1.CancelRequest{Session: ref, Request: id(2)}),
		"Release":            calling(api.Release, &holdfastv1.ReleaseRequest{Session: ref, Grant: grant}),
		"Put":                calling(api.Put, &holdfastv1.PutRequest{Session: ref, Request: id(3), Lock: "other", Value: []byte("x")}),
		"Delete":             calling(api.Delete, &holdfastv1.DeleteRequest{Session: ref, Request: id(4), Lock: "other"}),
		"GetLock":            calling(api.GetLock, &holdfastv1.GetLockRequest{Lock: "l"}),
		"ListLocks":          calling(api.ListLocks, &holdfastv1.ListLocksRequest{}),
		"ListSessions":       calling(api.ListSessions, &holdfastv1.ListSessionsRequest{}),
		"ListAudit":          calling(api.ListAudit, &holdfastv1.ListAuditRequest{}),
		"RevokeGrant":        calling(api.RevokeGrant, &holdfastv1.RevokeGrantRequest{Lock: "l", Grant: grant}),
		"ExpelSession":       calling(api.ExpelSession, &holdfastv1.ExpelSessionRequest{SessionId: ref.GetId()}),
		"RemoveMember":       calling(api.RemoveMember, &holdfastv1.RemoveMemberRequest{Name: "b"}),
		"AddMember":          calling(api.AddMember, &holdfastv1.AddMemberRequest{Id: 42, Name: "n2", PeerAddress: "10.0.0.2:7434", ClientAddress: "10.0.0.2:7433", Supports: core.SupportedVersion}),
		"TransferLeadership": calling(api.TransferLeadership, &holdfastv1.TransferLeadershipRequest{}),
		"Backup": func(ctx context.Context, w *world) error {
			s, err := w.rpc.Backup(ctx, connect.NewRequest(&holdfastv1.BackupRequest{}))
			if err != nil {
				return err
			}
			defer s.Close()
			for s.Receive() {
			}
			return s.Err()
		},
		"Session": func(ctx context.Context, w *world) error {
			s := w.rpc.Session(ctx)
			_ = s.Send(&holdfastv1.SessionRequest{Frames: []*holdfastv1.ClientFrame{{Id: 1, Body: &holdfastv1.ClientFrame_Open{Open: &holdfastv1.OpenSessionRequest{Secret: drawSecret().String(), TtlMs: 60_000, Instance: instance("m")}}}}})
			res, err := s.Receive()
			if err == nil && len(res.GetFrames()) > 0 {
				if e := res.GetFrames()[0].GetError(); e != nil {
					return wire.FromErrorInfo(e)
				}
			}
			_ = s.CloseRequest()
			return err
		},
	}
}

// TestMinorityAnswersEveryCall: two of three members end. Calls that reach the
// one that is left, when it still takes itself for the leader and afterwards,
// all end long before their deadline, with an error that says whether
// something may have happened; afterwards nothing may. What it has it still
// shows to who asks for no more.
func TestMinorityAnswersEveryCall(t *testing.T) {
	worlds := startServers(t, 3)
	lead := worlds[0]
	c := lead.open("holder", time.Minute)
	grant := c.acquire("l").GetNumber()
	for _, w := range worlds[1:] {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_ = w.Stop(ctx)
		cancel()
	}
	calls := needLeader(c.ref, grant)
	ask := func(when string, fine func(e *driver.Error) bool) {
		var all sync.WaitGroup
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				err := calls[name](ctx, lead)
				if e := wire.FromError(err); e == nil || ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || e.Kind != driver.Unavailable || !fine(e) {
					t.Errorf("%s, %s: %v", when, name, err)
				}
			})
		}
		all.Wait()
	}
	ask("at once", func(*driver.Error) bool { return true })
	lead.until("it does not lead", func() bool { return lead.node.Status().Role != "leader" })
	ask("afterwards", func(e *driver.Error) bool { return e.Outcome == driver.No })
	res, err := lead.rpc.GetLock(t.Context(), connect.NewRequest(&holdfastv1.GetLockRequest{Lock: "l", AllowStale: true}))
	if err != nil || !res.Msg.GetRead().GetStale() || res.Msg.GetLock().GetHolders()[0].GetGrant() != grant {
		t.Errorf("a stale reading: %v, %v", res, err)
	}
}

// TestEntriesThatNeverCome: who asked for the state after an entry that never
// comes leaves nothing behind when it has gone, and only so many wait.
func TestEntriesThatNeverCome(t *testing.T) {
	t.Parallel()
	n := startTestNode(t, nil)
	never := n.Status().Applied + 1_000_000
	waiting := func() int {
		k, err := question(t.Context(), n.Node, true, func(l *loop, done func(int, error)) { done(len(l.members.passing), nil) })
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	gone, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range maxPassing {
		all.Go(func() { _, _ = n.StateAt(gone, never) })
	}
	eventually(t, "they wait", func() bool { return waiting() == maxPassing })
	if _, err := n.StateAt(t.Context(), never); !errors.Is(err, ErrOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	all.Wait()
	n.do(core.Tick{})
	if k := waiting(); k != 0 {
		t.Errorf("%d still wait", k)
	}
	at := n.Status().Applied + 1
	got := make(chan error, 1)
	go func() { _, err := n.StateAt(t.Context(), at); got <- err }()
	eventually(t, "it waits", func() bool { return waiting() == 1 })
	n.do(core.Tick{})
	if err := <-got; err != nil {
		t.Error(err)
	}
}
