package cluster

import (
	"context"

	"holdfast/driver"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// A Member is one node of the cluster, as the node that was asked sees it.
type Member struct {
	ID         uint64
	Name       string // empty: it was founded without one
	ClientAddr string
	PeerAddr   string
	Learner    bool // it gets the log and has no vote yet
	// Known: the fields below are known, which they are to the leader only.
	Known            bool
	Reached          bool   // it was heard within an election timeout
	Match            uint64 // it has the log up to this entry
	ReceivesSnapshot bool
	// Supports is the newest cluster version that its release can apply; 0:
	// not known to the node that was asked.
	Supports uint32
}

// ClusterStatus is the cluster as the node that was asked sees it.
type ClusterStatus struct {
	Server         string // that answered
	NodeID         uint64 // its ID
	LeaderID       uint64 // 0: it knows of none
	Term           uint64
	Applied        uint64 // index
	Commit         uint64 // index
	Domain         string
	Incarnation    uint64
	ClusterVersion uint32
	Supports       uint32 // newest cluster version that the node can apply
	Version        string // of its binary
	Ready          bool
	NotReady       string // why not
	Members        []Member
	Removed        []uint64 // IDs that never come back
	// StateHash is that of the state right after entry HashIndex, if it was
	// asked for: on all nodes it is the same.
	StateHash string
	HashIndex uint64
}

// ClusterStatusOptions are the settings of [Client.ClusterStatus].
type ClusterStatusOptions struct {
	// WithHash asks for the hash of the state right after the entry HashIndex,
	// 0 for now. It costs the node time in proportion to its state. If the
	// node is past that entry, or does not come to it soon, the error has kind
	// [driver.NotFound].
	WithHash  bool
	HashIndex uint64
}

// ClusterStatus asks the server that the client is connected to about the
// cluster. It answers even when nobody leads.
func (c *Client) ClusterStatus(ctx context.Context, o ClusterStatusOptions) (*ClusterStatus, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	st, err := c.link.stream(ctx, nil)
	if err != nil {
		return nil, err
	}
	r, _, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.ClusterStatus,
		&holdfastv1.ClusterStatusRequest{WithHash: o.WithHash, HashIndex: o.HashIndex})
	if e != nil {
		return nil, asRead(e)
	}
	return statusOf(st.conn.addr, r), nil
}

func statusOf(server string, r *holdfastv1.ClusterStatusResponse) *ClusterStatus {
	return &ClusterStatus{
		Server: server, NodeID: r.GetNodeId(), LeaderID: r.GetLeaderId(), Term: r.GetTerm(),
		Applied: r.GetAppliedIndex(), Commit: r.GetCommitIndex(), Domain: r.GetDomain(), Incarnation: r.GetIncarnation(),
		ClusterVersion: r.GetClusterVersion(), Supports: r.GetSupports(), Version: r.GetVersion(),
		Ready: r.GetReady(), NotReady: r.GetNotReadyReason(), Members: membersOf(r.GetMembers()), Removed: r.GetRemovedIds(),
		StateHash: r.GetStateHash(), HashIndex: r.GetHashIndex(),
	}
}

func membersOf(list []*holdfastv1.Member) []Member {
	var out []Member
	for _, m := range list {
		out = append(out, Member{
			ID: m.GetId(), Name: m.GetName(), ClientAddr: m.GetClientAddress(), PeerAddr: m.GetPeerAddress(), Learner: m.GetLearner(),
			Known: m.GetKnown(), Reached: m.GetReached(), Match: m.GetMatchIndex(), ReceivesSnapshot: m.GetReceivesSnapshot(), Supports: m.GetSupports(),
		})
	}
	return out
}

// AddMember lets a node join the cluster (operator): it gets the log, and a
// vote once it has caught up. Of m, Name and PeerAddr say where the node waits,
// and it tells the rest itself; with an ID, its ClientAddr and Supports are taken
// as they are. Adding it again is the
// same request. by names who does it, for the audit. It returns the members
// there are then.
func (c *Client) AddMember(ctx context.Context, m Member, by string) ([]Member, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	r, _, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.AddMember, &holdfastv1.AddMemberRequest{
		Id: m.ID, Name: m.Name, PeerAddress: m.PeerAddr, ClientAddress: m.ClientAddr, Supports: m.Supports, By: by,
	})
	if e != nil {
		return nil, e
	}
	return membersOf(r.GetMembers()), nil
}

// RemoveMember removes a member for good (operator): its ID never comes back.
// It is named by name, or by ID if name is empty. What would leave too few
// voters in reach is refused. It returns the members that are left.
func (c *Client) RemoveMember(ctx context.Context, name string, id uint64, by string) ([]Member, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	r, maybe, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.RemoveMember,
		&holdfastv1.RemoveMemberRequest{Name: name, Id: id, By: by})
	if e != nil && maybe && e.Kind == driver.NotFound { // an earlier try removed it
		st, err := c.ClusterStatus(ctx, ClusterStatusOptions{})
		if err != nil {
			return nil, e
		}
		return st.Members, nil
	}
	if e != nil {
		return nil, e
	}
	return membersOf(r.GetMembers()), nil
}
