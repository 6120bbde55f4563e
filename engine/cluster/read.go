package cluster

import (
	"context"
	"fmt"
	"iter"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// GetOptions are the settings of [Client.Get].
type GetOptions struct {
	// QueueLimit is how many places of the queue to show; default 100.
	QueueLimit uint32
	// AllowStale takes the answer of whichever server is asked, marked with
	// its age, when no quorum confirms it.
	AllowStale bool
}

// ListOptions are the settings of [Client.List] and [Client.Sessions].
type ListOptions struct {
	// PageSize is how many to ask for at a time: 1 – 1000, default 100.
	PageSize uint32
	// AllowStale is as in [GetOptions].
	AllowStale bool
}

// Get shows one lock: holders, queue and value. A lock that nobody holds,
// waits for or has given a value does not exist: kind [driver.NotFound].
func (c *Client) Get(ctx context.Context, name string, o GetOptions) (*Lock, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	res, _, err := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.GetLock,
		&holdfastv1.GetLockRequest{Lock: name, QueueLimit: o.QueueLimit, AllowStale: o.AllowStale})
	if err != nil {
		return nil, asRead(err)
	}
	var d decoder
	l := d.lock(res.GetLock(), res.GetRead())
	if err := d.result(); err != nil {
		return nil, err
	}
	return &l, nil
}

// List goes through the locks whose names begin with prefix, in the order of
// their names; "" is all. It asks page by page, each as of its own moment. An
// error ends it, as its last element. Queues are not listed.
func (c *Client) List(ctx context.Context, prefix string, o ListOptions) iter.Seq2[*Lock, error] {
	return func(yield func(*Lock, error) bool) {
		req := &holdfastv1.ListLocksRequest{Prefix: prefix, PageSize: o.PageSize, AllowStale: o.AllowStale}
		for {
			page, cancel := withDeadline(ctx)
			res, _, err := unary(page, c.link, always, holdfastv1connect.LockServiceClient.ListLocks, req)
			cancel()
			if err != nil {
				yield(nil, asRead(err))
				return
			}
			for _, m := range res.GetLocks() {
				var d decoder
				l := d.lock(m, res.GetRead())
				if err := d.result(); err != nil {
					yield(nil, err)
					return
				}
				if !yield(&l, nil) {
					return
				}
			}
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// Sessions goes through all sessions, in the order of their IDs, like
// [Client.List].
func (c *Client) Sessions(ctx context.Context, o ListOptions) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		req := &holdfastv1.ListSessionsRequest{PageSize: o.PageSize, AllowStale: o.AllowStale}
		for {
			page, cancel := withDeadline(ctx)
			res, _, err := unary(page, c.link, always, holdfastv1connect.LockServiceClient.ListSessions, req)
			cancel()
			if err != nil {
				yield(nil, asRead(err))
				return
			}
			for _, m := range res.GetSessions() {
				s := sessionInfo(m, res.GetRead())
				if !yield(&s, nil) {
					return
				}
			}
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// Status shows the server that the client is connected to.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	st, err := c.link.stream(ctx, nil)
	if err != nil {
		return nil, err
	}
	r, _, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.GetStatus, &holdfastv1.GetStatusRequest{})
	if e != nil {
		return nil, asRead(e)
	}
	domain, err := fence.ParseDomain(r.GetDomain())
	if err != nil && r.GetDomain() != "" {
		return nil, &driver.Error{Kind: driver.Internal, Outcome: driver.No, Err: fmt.Errorf("the service's answer makes no sense: %w", err)}
	}
	return &Status{
		Server: st.conn.addr, Version: r.GetVersion(), Domain: domain, Incarnation: r.GetIncarnation(),
		Role: r.GetRole(), Term: r.GetTerm(), AppliedIndex: r.GetAppliedIndex(),
		NodeID: r.GetNodeId(), LeaderID: r.GetLeaderId(), Epoch: r.GetEpoch(), LastNumber: r.GetLastNumber(),
		Revision: r.GetRevision(), Clock: wire.FromMillis(r.GetClockMs()),
		Ready: r.GetReady(), NotReady: r.GetNotReadyReason(),
		Sessions: r.GetSessions(), Locks: r.GetLocks(), StateHash: r.GetStateHash(),
	}, nil
}

// asRead says of a failed read that it changed nothing.
func asRead(e *driver.Error) error {
	c := *e
	c.Outcome = driver.No
	return &c
}
