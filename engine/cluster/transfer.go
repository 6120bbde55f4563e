package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// TransferLeadership hands leadership over to a member (operator), by name, or
// by ID if name is empty; with neither to the one that has most of the log. It
// returns who leads then.
//
// A leader that hands over may end the connection before its answer. So the
// member is always named to the service, and the same is asked again wherever
// the line leads next: who is named and leads already is the answer.
func (c *Client) TransferLeadership(ctx context.Context, name string, id uint64, by string) (Member, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if name != "" || id != 0 {
		return c.transferTo(ctx, name, id, by)
	}
	before, err := c.leaderStatus(ctx)
	if err != nil {
		return Member{}, err
	}
	able := before.successors()
	if len(able) == 0 {
		return c.transferTo(ctx, "", 0, by) // the service says why there is nobody
	}
	for _, m := range able {
		var leader Member
		if leader, err = c.transferTo(ctx, "", m.ID, by); err == nil {
			return leader, nil
		}
		if driver.KindOf(err) != driver.Conflict || ctx.Err() != nil {
			return Member{}, err
		}
		// It did not take over, or is not to lead now. Perhaps another does.
		if now, serr := c.leaderStatus(ctx); serr == nil && now.LeaderID != before.LeaderID {
			return now.member(now.LeaderID), nil
		}
	}
	return Member{}, err
}

// transferTo asks until somebody can say whether that member leads.
func (c *Client) transferTo(ctx context.Context, name string, id uint64, by string) (Member, error) {
	again := always
	if name == "" && id == 0 {
		again = ifNot
	}
	r, _, e := unary(ctx, c.link, again, holdfastv1connect.LockServiceClient.TransferLeadership,
		&holdfastv1.TransferLeadershipRequest{Name: name, Id: id, By: by})
	if e == nil {
		return Member{ID: r.GetLeaderId(), Name: r.GetName()}, nil
	}
	if e.Outcome == driver.Unknown && errors.Is(ctx.Err(), context.DeadlineExceeded) && again == always {
		// The time was up with an answer outstanding: one look more.
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer cancel()
		if st, err := c.leaderStatus(look); err == nil {
			if m := st.member(st.LeaderID); name != "" && m.Name == name || name == "" && m.ID == id {
				return m, nil
			}
		}
	}
	if e.Outcome == driver.Unknown {
		lost := *e
		lost.Msg, lost.Err = "no server answered whether leadership was handed over: look at the members (holdfast cluster status), and ask again", e
		return Member{}, &lost
	}
	return Member{}, e
}

// lastLook is how long a transfer whose time is up looks who leads.
const lastLook = 2 * time.Second

// successors are the members to which leadership can go, the best first. The
// status must be the leader's.
func (s *ClusterStatus) successors() []Member {
	var able []Member
	for _, m := range s.Members {
		if m.ID != s.LeaderID && !m.Learner && m.Reached && !m.ReceivesSnapshot {
			able = append(able, m)
		}
	}
	slices.SortStableFunc(able, func(a, b Member) int { return cmp.Compare(b.Match, a.Match) })
	return able
}

// member is the one with an ID; only its ID if it is none.
func (s *ClusterStatus) member(id uint64) Member {
	for _, m := range s.Members {
		if m.ID == id {
			return m
		}
	}
	return Member{ID: id}
}

// leaderStatus is the cluster as its leader sees it. It moves the line there.
func (c *Client) leaderStatus(ctx context.Context) (*ClusterStatus, error) {
	var not *stream
	for {
		st, err := c.link.stream(ctx, not)
		if err != nil {
			return nil, err
		}
		try, cancel := context.WithTimeout(ctx, maxSilence)
		r, err := st.conn.rpc.ClusterStatus(try, connect.NewRequest(&holdfastv1.ClusterStatusRequest{}))
		cancel()
		e := wire.FromError(err)
		switch {
		case err == nil && r.Msg.GetLeaderId() != 0 && r.Msg.GetLeaderId() == r.Msg.GetNodeId():
			return statusOf(st.conn.addr, r.Msg), nil
		case err == nil:
			s := statusOf(st.conn.addr, r.Msg)
			away := &holdfastv1.ErrorInfo{Message: "the server does not lead", Term: s.Term, LeaderAddress: s.member(s.LeaderID).ClientAddr}
			e = &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: &wire.Remote{Info: away}}
		case e.Kind != driver.Unavailable || ctx.Err() != nil:
			return nil, asRead(e)
		}
		c.link.refusedUnary(st, e)
		not = st
	}
}
