package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// GetLock implements the service. A lock that nobody holds, waits for, closes
// or gave a value does not exist: the answer is NotFound, with the revision
// from which to watch for it.
func (s *service) GetLock(ctx context.Context, req *connect.Request[holdfastv1.GetLockRequest]) (*connect.Response[holdfastv1.GetLockResponse], error) {
	m := req.Msg
	if err := checkLock(m.GetLock()); err != nil {
		return nil, err
	}
	queue := int(m.GetQueueLimit())
	switch {
	case queue == 0:
		queue = defaultQueue
	case queue > maxQueue:
		return nil, invalid("queue_limit is %d: want 1 … %d, or 0 for the default %d", queue, maxQueue, defaultQueue)
	}
	out := &holdfastv1.GetLockResponse{}
	err := s.node.View(ctx, m.GetAllowStale(), func(r Reading) {
		out.Read = readInfo(r)
		if l, ok := r.State.Lock(m.GetLock(), queue); ok {
			out.Lock = lockMessage(r, l, maxHolders)
		}
	})
	switch {
	case err != nil:
		return nil, nothingDone(err)
	case out.Lock == nil:
		return nil, &driver.Error{
			Kind: driver.NotFound, Outcome: driver.No, Lock: m.GetLock(),
			Msg: fmt.Sprintf("lock %q is free: nobody holds it or waits for it, and it has no value", m.GetLock()),
			Err: &wire.Remote{Info: &holdfastv1.ErrorInfo{Revision: out.Read.GetRevision()}},
		}
	}
	return answer(out)
}

// ListLocks implements the service. Pages are in the byte order of names; a
// page ends early rather than exceed a frame.
func (s *service) ListLocks(ctx context.Context, req *connect.Request[holdfastv1.ListLocksRequest]) (*connect.Response[holdfastv1.ListLocksResponse], error) {
	m := req.Msg
	if err := checkPrefix(m.GetPrefix()); err != nil {
		return nil, err
	}
	size, err := checkPage(m.GetPageSize())
	if err != nil {
		return nil, err
	}
	after, err := lockPage(m.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &holdfastv1.ListLocksResponse{}
	err = s.node.View(ctx, m.GetAllowStale(), func(r Reading) {
		out.Read = readInfo(r)
		bytes := 0
		locks := r.State.Locks(m.GetPrefix(), after, size+1)
		for i, l := range locks {
			msg := lockMessage(r, l, maxHoldersInList)
			bytes += proto.Size(msg)
			if i == size || (i > 0 && bytes > maxPageBytes) {
				out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(locks[i-1].Name))
				return
			}
			out.Locks = append(out.Locks, msg)
		}
	})
	if err != nil {
		return nil, nothingDone(err)
	}
	return answer(out)
}

// lockPage is the name after which a page begins.
func lockPage(token string) (string, error) {
	name, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || (token != "" && fence.ValidateLockName(string(name)) != nil) {
		return "", invalid("page_token is not one: want the next_page_token of the last page, or none for the first")
	}
	return string(name), nil
}

// ListSessions implements the service.
func (s *service) ListSessions(ctx context.Context, req *connect.Request[holdfastv1.ListSessionsRequest]) (*connect.Response[holdfastv1.ListSessionsResponse], error) {
	m := req.Msg
	size, err := checkPage(m.GetPageSize())
	if err != nil {
		return nil, err
	}
	var after uint64
	if m.GetPageToken() != "" {
		var ok bool
		if after, ok = wire.ParseID(m.GetPageToken()); !ok {
			return nil, invalid("page_token is not one: want the next_page_token of the last page, or none for the first")
		}
	}
	out := &holdfastv1.ListSessionsResponse{}
	err = s.node.View(ctx, m.GetAllowStale(), func(r Reading) {
		out.Read = readInfo(r)
		bytes := 0
		sessions := r.State.Sessions(core.SessionID(after), size+1)
		for i := range sessions {
			msg := sessionMessage(r, &sessions[i], s.voices.attached(sessions[i].ID))
			bytes += proto.Size(msg)
			if i == size || (i > 0 && bytes > maxPageBytes) {
				out.NextPageToken = strconv.FormatUint(uint64(sessions[i-1].ID), 10)
				return
			}
			out.Sessions = append(out.Sessions, msg)
		}
	})
	if err != nil {
		return nil, nothingDone(err)
	}
	return answer(out)
}

// GetStatus implements the service. It answers also when the node is not
// ready, and never asks anybody else.
func (s *service) GetStatus(ctx context.Context, req *connect.Request[holdfastv1.GetStatusRequest]) (*connect.Response[holdfastv1.GetStatusResponse], error) {
	st := s.node.Status()
	out := &holdfastv1.GetStatusResponse{
		Version: s.version, Domain: fence.Domain(st.Domain).String(), Incarnation: fence.Incarnation(st.Incarnation).String(),
		Role: st.Role, Term: st.Term, AppliedIndex: st.Applied, NodeId: st.NodeID, LeaderId: st.LeaderID,
		Epoch: uint32(st.Epoch), LastNumber: st.LastNumber, Revision: uint64(st.Revision),
		ClockMs: wire.Millis(time.Duration(st.Clock)), Ready: st.Ready, NotReadyReason: st.Reason,
		Sessions: uint64(st.Sessions), Locks: uint64(st.Locks),
	}
	if req.Msg.GetWithHash() {
		// The copy is cheap, and is hashed here rather than on the loop.
		var state *core.State
		if err := s.node.View(ctx, true, func(r Reading) { state = r.State.Clone() }); err != nil {
			return nil, nothingDone(err)
		}
		out.AppliedIndex, out.Revision = state.Index(), uint64(state.Revision())
		out.StateHash = fmt.Sprintf("%x", state.Hash())
	}
	return answer(out)
}
