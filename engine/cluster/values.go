package cluster

import (
	"context"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// PutOptions are the settings of [Client.Put].
type PutOptions struct {
	// IfRevision, if not nil, must be the lock's ModifyRevision (0: no value
	// yet); otherwise nothing is changed, and the error has kind
	// [driver.Conflict]. (Write IfRevision: new(lock.ModifyRevision).)
	IfRevision *uint64
	// Bind removes the value when this client's own session ends: it is
	// closed, or was not heard for a TTL. See [Client.Bound].
	Bind bool
	// Token, if not zero, must be the lock's current token; otherwise nothing
	// is changed, and the error has kind [driver.Stale].
	Token fence.Token
}

// DeleteOptions are the settings of [Client.Delete], as in [PutOptions].
type DeleteOptions struct {
	IfRevision *uint64
	Token      fence.Token
}

// Put sets a lock's value, whether or not anyone holds the lock, and returns
// the revision of the change, which is the lock's ModifyRevision from now on.
// It is made once, however often it has to be sent. A conflict tells the
// revision found: [ConflictRevision].
//
// Puts and deletes belong to a session of the client's own, apart from the
// locker's: losing a lock's lease does not take bound values away, and ending
// the client ends both.
func (c *Client) Put(ctx context.Context, name string, value []byte, o PutOptions) (revision uint64, err error) {
	if len(value) > maxValue {
		return 0, invalid(name, "value of %d bytes: at most %d are allowed", len(value), maxValue)
	}
	req := &holdfastv1.PutRequest{Lock: name, Value: value, IfRevision: o.IfRevision, Bind: o.Bind, Token: tokenText(o.Token)}
	res, err := write(ctx, c, holdfastv1connect.LockServiceClient.Put, req,
		func(s *session, id driver.RequestID) { req.Session, req.Request = s.ref(), requestID(id) })
	return res.GetRevision(), err
}

// Delete removes a lock's value, and with it the lock, and returns the
// revision of the change. A lock that is held or waited for is not deleted.
func (c *Client) Delete(ctx context.Context, name string, o DeleteOptions) (revision uint64, err error) {
	req := &holdfastv1.DeleteRequest{Lock: name, IfRevision: o.IfRevision, Token: tokenText(o.Token)}
	res, err := write(ctx, c, holdfastv1connect.LockServiceClient.Delete, req,
		func(s *session, id driver.RequestID) { req.Session, req.Request = s.ref(), requestID(id) })
	return res.GetRevision(), err
}

// ConflictRevision returns the revision that a compare-and-set found, if err is
// a conflict; 0 says that there was no value.
func ConflictRevision(err error) uint64 {
	if driver.KindOf(err) != driver.Conflict {
		return 0
	}
	if r := wire.RemoteOf(err); r != nil {
		return r.Revision()
	}
	return 0
}

// Bound returns a channel that is closed when the session that bound values
// belong to is gone, and the values with it. A client that was cut off for
// longer than its TTL learns it there; a later Put opens a new session, and
// Bound then speaks of that one. Before the first Put it returns nil.
func (c *Client) Bound() <-chan struct{} {
	c.presence.mu.Lock()
	defer c.presence.mu.Unlock()
	if c.presence.mu.cur == nil {
		return nil
	}
	return c.presence.mu.cur.s.gone
}

// write makes one named request of the client's own session. If that session
// turns out to be gone, and the request has certainly not been done, it is
// made again in a new one.
func write[Req, Res any](ctx context.Context, c *Client, call rpc[Req, Res], req *Req, name func(*session, driver.RequestID)) (*Res, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	for {
		o, e := c.presence.session(ctx)
		if e != nil {
			return nil, e
		}
		id := o.next()
		name(o.s, id)
		res, maybe, e := unary(ctx, c.link, always, call, req)
		o.done(id)
		switch {
		case e == nil:
			return res, nil
		case e.Kind != driver.SessionLost:
			return nil, e
		case maybe:
			e.Outcome = driver.Unknown
			return nil, e
		}
		c.link.mu.Lock()
		c.link.lose(o.s, e)
		c.link.mu.Unlock()
	}
}

func tokenText(t fence.Token) string {
	if t.IsZero() {
		return ""
	}
	return t.String()
}
