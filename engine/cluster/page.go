package cluster

import (
	"context"

	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// A Page is one page of a list, for a caller that shows no more than that.
// [Client.List] and [Client.Sessions] go through all pages.
type Page[T any] struct {
	Items []T
	// Next names the page after this one; "" if this is the last. It stays
	// good while what is listed changes: the page begins after the last item
	// of this one, whether or not that is still there.
	Next string
	Read ReadInfo
}

// LockPage shows one page of the locks whose names begin with prefix: the
// first one, or that which another page named as its next. Queues are not
// listed.
func (c *Client) LockPage(ctx context.Context, prefix, page string, o ListOptions) (Page[*Lock], error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	res, _, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.ListLocks,
		&holdfastv1.ListLocksRequest{Prefix: prefix, PageSize: o.PageSize, PageToken: page, AllowStale: o.AllowStale})
	if e != nil {
		return Page[*Lock]{}, asRead(e)
	}
	out := Page[*Lock]{Next: res.GetNextPageToken(), Read: readInfo(res.GetRead())}
	var d decoder
	for _, m := range res.GetLocks() {
		l := d.lock(m, res.GetRead())
		out.Items = append(out.Items, &l)
	}
	return out, d.result()
}

// SessionPage shows one page of the sessions, in the order of their IDs, like
// [Client.LockPage].
func (c *Client) SessionPage(ctx context.Context, page string, o ListOptions) (Page[*Session], error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	res, _, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.ListSessions,
		&holdfastv1.ListSessionsRequest{PageSize: o.PageSize, PageToken: page, AllowStale: o.AllowStale})
	if e != nil {
		return Page[*Session]{}, asRead(e)
	}
	out := Page[*Session]{Next: res.GetNextPageToken(), Read: readInfo(res.GetRead())}
	for _, m := range res.GetSessions() {
		s := sessionInfo(m, res.GetRead())
		out.Items = append(out.Items, &s)
	}
	return out, nil
}
