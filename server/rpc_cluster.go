package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/replica"
	"holdfast/wire/holdfastv1"
)

// hashWait is how long a node waits for the entry whose state it is to hash.
const hashWait = 5 * time.Second

// memberKinds says what the refusals of changes of membership are on the wire.
var memberKinds = []struct {
	err  error
	kind driver.Kind
}{
	{replica.ErrChangePending, driver.Busy},
	{replica.ErrLagging, driver.Busy},
	{replica.ErrBadMember, driver.Invalid},
	{replica.ErrMemberExists, driver.Conflict},
	{replica.ErrRemovedID, driver.Conflict},
	{replica.ErrLosesQuorum, driver.Conflict},
	{replica.ErrNoMember, driver.NotFound},
	{ErrNoTransfer, driver.Conflict},
	{ErrPassed, driver.NotFound},
	{ErrTooNew, driver.Unsupported},
}

// refusedChange gives an error about members its kind; others stay as they are.
func refusedChange(err error) error {
	for _, k := range memberKinds {
		if errors.Is(err, k.err) {
			return &driver.Error{Kind: k.kind, Outcome: driver.No, Msg: err.Error(), Err: err}
		}
	}
	return err
}

// ClusterStatus implements the service. Any node answers, ready or not.
func (s *service) ClusterStatus(ctx context.Context, req *connect.Request[holdfastv1.ClusterStatusRequest]) (*connect.Response[holdfastv1.ClusterStatusResponse], error) {
	out := &holdfastv1.ClusterStatusResponse{Version: s.version}
	if req.Msg.GetWithHash() {
		wait, cancel := context.WithTimeout(ctx, hashWait)
		defer cancel()
		// The copy is cheap, and is hashed here rather than on the loop.
		st, err := s.node.StateAt(wait, req.Msg.GetHashIndex())
		switch {
		case err == nil:
			out.StateHash, out.HashIndex = fmt.Sprintf("%x", st.Hash()), st.Index()
		case ctx.Err() == nil && wait.Err() != nil:
			return nil, &driver.Error{Kind: driver.NotFound, Outcome: driver.No, Msg: fmt.Sprintf("entry %d was not applied here within %v: ask for an earlier one", req.Msg.GetHashIndex(), hashWait)}
		default:
			return nil, nothingDone(refusedChange(err))
		}
	}
	v, err := s.node.Cluster(ctx)
	if err != nil {
		return nil, nothingDone(err)
	}
	ready := s.node.Status()
	out.NodeId, out.LeaderId, out.Term = v.NodeID, v.Leader, v.Term
	out.AppliedIndex, out.CommitIndex = v.Applied, v.Commit
	out.Domain, out.Incarnation = fence.Domain(v.Domain).String(), v.Incarnation
	out.ClusterVersion, out.Supports = v.Version, v.Supports
	out.Ready, out.NotReadyReason = ready.Ready, ready.Reason
	out.Members, out.RemovedIds = memberMessages(v), v.Removed
	return answer(out)
}

func memberMessages(v ClusterView) []*holdfastv1.Member {
	var out []*holdfastv1.Member
	for _, m := range v.Members {
		msg := &holdfastv1.Member{
			Id: m.ID, Name: m.Name, ClientAddress: m.ClientAddr, PeerAddress: m.PeerAddr, Learner: m.Learner, Supports: m.Supports,
		}
		if p := m.Progress; p != nil {
			msg.Known, msg.Reached, msg.MatchIndex, msg.ReceivesSnapshot = true, p.Active, p.Match, p.Snapshot
		}
		out = append(out, msg)
	}
	return out
}

// AddMember implements the service. Adding the same node again is the same
// request: a new node asks until it is answered.
func (s *service) AddMember(ctx context.Context, req *connect.Request[holdfastv1.AddMemberRequest]) (*connect.Response[holdfastv1.AddMemberResponse], error) {
	m := req.Msg
	op := &operation{call: "add-member", by: m.GetBy(), on: onMember(m.GetName(), m.GetId())}
	op.add("id", m.GetId(), "name", clip(m.GetName()), "peer_address", clip(m.GetPeerAddress()))
	var out *holdfastv1.AddMemberResponse
	err := s.operator(ctx, req.Peer(), op, func() (err error) {
		out, err = s.addMember(ctx, m, op)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer(out)
}

func (s *service) addMember(ctx context.Context, m *holdfastv1.AddMemberRequest, op *operation) (*holdfastv1.AddMemberResponse, error) {
	if err := checkMemberAddress("peer_address", m.GetPeerAddress()); err != nil {
		return nil, err
	}
	v, err := s.leaderView(ctx)
	if err != nil {
		return nil, err
	}
	n := core.Member{ID: m.GetId(), Name: m.GetName(), PeerAddr: m.GetPeerAddress(), ClientAddr: m.GetClientAddress()}
	supports := m.GetSupports()
	if n.ID == 0 {
		if n, supports, err = s.ownFacts(ctx, n, v.Incarnation); err != nil {
			return nil, refusedChange(err)
		}
		op.on = onMember(n.Name, n.ID)
	}
	if err := checkMemberAddress("client_address", n.ClientAddr); err != nil {
		return nil, err
	}
	if supports < v.Version {
		return nil, &driver.Error{Kind: driver.Unsupported, Outcome: driver.No, Msg: fmt.Sprintf("the release of the new node applies cluster versions up to %d, and this cluster is at %d: start the release that the members run, or a later one", supports, v.Version)}
	}
	if !v.has(n) {
		if err := s.begin(ctx, op); err != nil {
			return nil, err
		}
		if err := s.node.ChangeMembers(ctx, replica.Change{Kind: replica.AddLearner, Member: n}); err != nil {
			return nil, refusedChange(err)
		}
		if v, err = s.node.Cluster(ctx); err != nil {
			return nil, err
		}
	}
	return &holdfastv1.AddMemberResponse{Incarnation: v.Incarnation, Domain: v.Domain[:], ClusterVersion: v.Version, Members: memberMessages(v)}, nil
}

// ownFacts asks the node that is to be added who it is.
func (s *service) ownFacts(ctx context.Context, n core.Member, incarnation uint64) (core.Member, uint32, error) {
	a, err := s.node.lookUp(ctx, n.PeerAddr)
	switch {
	case err != nil:
		return n, 0, err
	case a.State == peer.IsMember && a.Incarnation != incarnation:
		err = fmt.Errorf("%w: the node at %s belongs to another cluster: stop it, and start it with --join and an empty data directory", replica.ErrMemberExists, n.PeerAddr)
	case a.State == peer.IsFounding || a.State == peer.IsNew && len(a.List) > 0:
		err = fmt.Errorf("%w: the node at %s is about to found a cluster of its own: start it with --join in place of --initial-cluster", replica.ErrMemberExists, n.PeerAddr)
	case n.Name != "" && n.Name != a.Name:
		err = fmt.Errorf("%w: the node at %s calls itself %q, not %q: start it with that --name, or add it by its own", replica.ErrBadMember, n.PeerAddr, clip(a.Name), clip(n.Name))
	case a.PeerAddr != n.PeerAddr:
		err = fmt.Errorf("%w: the node at %s says that members reach it at %q: add it under that address, or start it with another --peer-advertise", replica.ErrBadMember, n.PeerAddr, clip(a.PeerAddr))
	}
	return core.Member{ID: a.ID, Name: a.Name, PeerAddr: a.PeerAddr, ClientAddr: a.ClientAddr}, a.Supports, err
}

// has reports whether n is a member already, under the same name and address.
func (v ClusterView) has(n core.Member) bool {
	for _, m := range v.Members {
		if m.ID == n.ID {
			return m.Name == n.Name && m.PeerAddr == n.PeerAddr && m.ClientAddr == n.ClientAddr
		}
	}
	return false
}

// RemoveMember implements the service. To remove the leader, leadership is
// handed over first: the caller is told whom to ask then.
func (s *service) RemoveMember(ctx context.Context, req *connect.Request[holdfastv1.RemoveMemberRequest]) (*connect.Response[holdfastv1.RemoveMemberResponse], error) {
	m := req.Msg
	op := &operation{call: "remove-member", by: m.GetBy(), on: "member " + asked(m.GetName(), m.GetId())}
	op.add("id", m.GetId(), "name", clip(m.GetName()))
	var out *holdfastv1.RemoveMemberResponse
	err := s.operator(ctx, req.Peer(), op, func() (err error) {
		out, err = s.removeMember(ctx, m, op)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer(out)
}

func (s *service) removeMember(ctx context.Context, m *holdfastv1.RemoveMemberRequest, op *operation) (*holdfastv1.RemoveMemberResponse, error) {
	v, err := s.leaderView(ctx)
	if err != nil {
		return nil, err
	}
	n, err := v.find(m.GetName(), m.GetId())
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	if n.ID == v.NodeID && len(v.Members) > 1 {
		if _, err := s.node.TransferLeadership(ctx, 0); err != nil {
			return nil, refusedChange(fmt.Errorf("%s leads and must hand leadership over before it is removed: %w", replica.Called(n), err))
		}
		if _, err := s.leaderView(ctx); err != nil {
			return nil, err // says whom to ask now
		}
		return nil, &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "leadership came back before the member was removed: try again"}
	}
	if err := s.node.ChangeMembers(ctx, replica.Change{Kind: replica.Remove, Member: n}); err != nil {
		return nil, refusedChange(err)
	}
	if v, err = s.node.Cluster(ctx); err != nil {
		return nil, err
	}
	return &holdfastv1.RemoveMemberResponse{Id: n.ID, Members: memberMessages(v)}, nil
}

// TransferLeadership implements the service.
func (s *service) TransferLeadership(ctx context.Context, req *connect.Request[holdfastv1.TransferLeadershipRequest]) (*connect.Response[holdfastv1.TransferLeadershipResponse], error) {
	m := req.Msg
	op := &operation{call: "transfer", leaves: true, by: m.GetBy(), on: "leadership to " + asked(m.GetName(), m.GetId())}
	op.add("id", m.GetId(), "name", clip(m.GetName()))
	var out *holdfastv1.TransferLeadershipResponse
	err := s.operator(ctx, req.Peer(), op, func() (err error) {
		out, err = s.transfer(ctx, m, op)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer(out)
}

func (s *service) transfer(ctx context.Context, m *holdfastv1.TransferLeadershipRequest, op *operation) (*holdfastv1.TransferLeadershipResponse, error) {
	v, err := s.leaderView(ctx)
	if err != nil {
		return nil, err
	}
	var to core.Member
	if m.GetName() != "" || m.GetId() != 0 {
		if to, err = v.find(m.GetName(), m.GetId()); err != nil {
			return nil, err
		}
	}
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	id, err := s.node.TransferLeadership(ctx, to.ID)
	if err != nil {
		return nil, refusedChange(err)
	}
	out := &holdfastv1.TransferLeadershipResponse{LeaderId: id}
	for _, n := range v.Members {
		if n.ID == id {
			out.Name = n.Name
		}
	}
	return out, nil
}

// leaderView is the cluster as this node sees it, if it leads: confirmed by a
// quorum, so that nothing is decided by a deposed leader.
func (s *service) leaderView(ctx context.Context) (ClusterView, error) {
	if err := s.node.View(ctx, false, func(Reading) {}); err != nil {
		return ClusterView{}, nothingDone(err)
	}
	v, err := s.node.Cluster(ctx)
	if err != nil {
		return v, nothingDone(err)
	}
	return v, nil
}

// find is the member that a request names.
func (v ClusterView) find(name string, id uint64) (core.Member, error) {
	if name == "" && id == 0 {
		return core.Member{}, invalid("the member is missing: want its name or its id, as ClusterStatus shows them")
	}
	if name != "" && id != 0 {
		return core.Member{}, invalid("name and id exclude each other: want one of them")
	}
	for _, m := range v.Members {
		if m.ID == id || name != "" && m.Name == name {
			return m.Member, nil
		}
	}
	for _, old := range v.Removed {
		if old == id {
			return core.Member{}, &driver.Error{Kind: driver.NotFound, Outcome: driver.No, Msg: fmt.Sprintf("member %016x was removed before", id)}
		}
	}
	return core.Member{}, &driver.Error{Kind: driver.NotFound, Outcome: driver.No, Msg: fmt.Sprintf("no member %s: see the members with ClusterStatus (holdfast cluster status)", asked(name, id))}
}

// onMember is a member that a request is about, as an audit record has it.
func onMember(name string, id uint64) string {
	if id == 0 {
		return "member " + asked(name, id) // its ID is not known
	}
	return fmt.Sprintf("member %s (%016x)", clip(name), id)
}

// asked is a member as a request names it, for people.
func asked(name string, id uint64) string {
	switch {
	case name != "":
		return clip(name)
	case id != 0:
		return fmt.Sprintf("%016x", id)
	}
	return "any"
}

// checkMemberAddress refuses what cannot be the address of a member.
func checkMemberAddress(field, addr string) error {
	if err := checkText(field, addr); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(addr)
	n, perr := strconv.ParseUint(port, 10, 16)
	ip, _ := netip.ParseAddr(host)
	if err != nil || perr != nil || n == 0 || host == "" || ip.IsUnspecified() {
		return invalid("%s is %q: want host:port as others reach it, such as 10.0.0.7:7434", field, clip(addr))
	}
	return nil
}
