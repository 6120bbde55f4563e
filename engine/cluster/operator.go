package cluster

import (
	"context"
	"sync"
	"time"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// RevokeOptions are the settings of [Client.Revoke].
type RevokeOptions struct {
	// Now frees the lock at once. This breaks the promise of the lease: the
	// holder may go on until it hears of it, and only gates stop it. Without
	// Now the holder is told, and the lock is free when it has stopped, or
	// after its TTL.
	Now bool
	// By names who does it, for the holder and the audit.
	By string
}

// A Revoked is what became of a revoke.
type Revoked struct {
	Revision uint64
	// Token is the revocation token: it can arm a gate, so that the old
	// holder's token is refused there, and can never write.
	Token fence.Token
	// Note warns the operator, if there is something to know before a gate is
	// armed; else it is empty.
	Note string
}

// Revoke takes a grant back from its holder (operator). grant is the grant's
// own number, as [Client.Get] shows it. If that grant is no longer held the
// error has kind [driver.NotHeld] and names the holder. An error whose outcome
// is unknown is not tried again here: look at the lock first.
func (c *Client) Revoke(ctx context.Context, name string, grant uint64, o RevokeOptions) (*Revoked, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	res, _, e := unary(ctx, c.link, ifNot, holdfastv1connect.LockServiceClient.RevokeGrant,
		&holdfastv1.RevokeGrantRequest{Lock: name, Grant: grant, Now: o.Now, By: o.By})
	if e != nil {
		return nil, e
	}
	token, err := fence.ParseToken(res.GetRevocationToken())
	if err != nil {
		return nil, &driver.Error{Kind: driver.Internal, Outcome: driver.Yes, Lock: name, Msg: "revoked, but the revocation token makes no sense: " + err.Error(), Err: err}
	}
	return &Revoked{Revision: res.GetRevision(), Token: token, Note: res.GetNote()}, nil
}

// ExpelSession ends another's session (operator): all that it holds is free at
// once. by names who does it, for the audit.
func (c *Client) ExpelSession(ctx context.Context, id uint64, by string) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	_, maybe, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.ExpelSession,
		&holdfastv1.ExpelSessionRequest{SessionId: id, By: by})
	switch {
	case e == nil:
		return nil
	case maybe && (e.Kind == driver.NotFound || e.Kind == driver.SessionLost):
		return nil // an earlier try ended it
	}
	return e
}

// ReportRefusal tells the service that a gate refused a token, so that an
// operator sees which zombie was stopped, where. seen may be the zero Token.
func (c *Client) ReportRefusal(ctx context.Context, gate string, offered, seen fence.Token) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	_, _, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.ReportRefusal,
		&holdfastv1.ReportRefusalRequest{Gate: gate, Offered: tokenText(offered), Seen: tokenText(seen)})
	if e != nil {
		return e
	}
	return nil
}

// Reporter returns a reporter for gates: each refusal of a token is told to the
// service, in the background and in order. A gate never waits for it; while
// the service does not keep up, more than a thousand refusals are dropped, and
// the log says how many.
func (c *Client) Reporter() fence.Reporter { return c.refusals }

// refusals is the queue of reports that were not sent yet. A goroutine drains
// it while there is something in it, and ends.
type refusals struct {
	link *link
	ctx  context.Context
	stop context.CancelFunc

	mu struct {
		sync.Mutex
		queue   []fence.Refusal
		dropped int
		running bool
		closed  bool
	}
	loops sync.WaitGroup
}

const maxRefusals = 1000

func newRefusals(l *link) *refusals {
	r := &refusals{link: l}
	r.ctx, r.stop = context.WithCancel(l.ctx)
	return r
}

// Report implements fence.Reporter.
func (r *refusals) Report(_ context.Context, refusal fence.Refusal) {
	if refusal.Offered.IsZero() {
		return // no token to speak of: the gate's own log has it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.closed:
		return
	case len(r.mu.queue) >= maxRefusals:
		r.mu.dropped++
		return
	}
	r.mu.queue = append(r.mu.queue, refusal)
	if !r.mu.running {
		r.mu.running = true
		r.loops.Go(r.drain)
	}
}

func (r *refusals) drain() {
	for {
		r.mu.Lock()
		if len(r.mu.queue) == 0 || r.ctx.Err() != nil {
			r.mu.running = false
			r.mu.Unlock()
			return
		}
		next, dropped := r.mu.queue[0], r.mu.dropped
		r.mu.queue, r.mu.dropped = r.mu.queue[1:], 0
		r.mu.Unlock()
		if dropped > 0 {
			r.link.log.Warn("refusals were not reported to the service: too many at once", "dropped", dropped)
		}
		ctx, cancel := context.WithTimeout(r.ctx, defaultDeadline)
		_, _, e := unary(ctx, r.link, always, holdfastv1connect.LockServiceClient.ReportRefusal, &holdfastv1.ReportRefusalRequest{
			Gate: next.Gate, Offered: tokenText(next.Offered), Seen: tokenText(next.Seen),
		})
		cancel()
		if e != nil {
			r.link.log.Warn("a gate's refusal was not reported to the service", "gate", next.Gate, "offered", next.Offered.String(), "error", wire.FromError(e))
		}
	}
}

// close sends what is queued for a moment longer, and drops the rest.
func (r *refusals) close() {
	r.mu.Lock()
	r.mu.closed = true
	r.mu.Unlock()
	late := time.AfterFunc(time.Second, r.stop)
	r.loops.Wait()
	late.Stop()
	r.stop()
}
