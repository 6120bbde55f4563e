package cluster

import (
	"bytes"
	"context"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/fence"
)

// A Board shows who holds a lock and what it publishes there. It is what
// package elect needs of this service (elect.Board).
type Board struct{ c *Client }

// Board returns the client's board.
func (c *Client) Board() *Board { return &Board{c} }

// Value is an acquire option that publishes a value with the grant, as
// [AcquireOptions].Value does, for an acquire through a portable locker. It
// refuses a value that is too long.
func (b *Board) Value(value []byte) (holdfast.AcquireOption, error) {
	o := AcquireOptions{Value: bytes.Clone(value)}
	if err := o.check(); err != nil {
		return nil, &holdfast.Error{Op: "publish", Kind: holdfast.ErrInvalid, Err: err}
	}
	return holdfast.WithExtension(&extension{o}), nil
}

// Put changes the value that was published with the grant of this token. If
// that is not the lock's current token, nothing is changed, and the error has
// kind [driver.Stale]. A zero token is refused, since a put without one would
// outlive the grant.
func (b *Board) Put(ctx context.Context, lock string, token fence.Token, value []byte) error {
	if token.IsZero() {
		return invalid(lock, "put without a token: want that of the lock's holder")
	}
	_, err := b.c.Put(ctx, lock, value, PutOptions{Token: token})
	return err
}

// observePause spaces the tries of an observer that gets no answer.
const observePause = 200 * time.Millisecond

// Observe calls see with who holds a lock, and with the lock's value: at once,
// and after each change. The zero Token says that nobody does. Of a lock with
// several holders it shows the one that was granted last. It returns nil when
// see returned false, and else an error: that of ctx, or of kind
// [driver.Invalid], [driver.Denied] or [driver.Unsupported].
func (b *Board) Observe(ctx context.Context, lock string, see func(token fence.Token, label, host string, value []byte) bool) error {
	o := &observation{c: b.c, lock: lock, see: see}
	for {
		err := o.follow(ctx)
		switch driver.KindOf(err) {
		case driver.Invalid, driver.Denied, driver.Unsupported:
			return err
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		t := time.NewTimer(observePause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// observation is one call of Observe.
type observation struct {
	c    *Client
	lock string
	see  func(fence.Token, string, string, []byte) bool
	told bool // now was shown
	now  holding
}

// holding is what an observer sees of a lock.
type holding struct {
	grant       uint64
	token       fence.Token
	label, host string
	value       []byte
}

func (h *holding) same(as *holding) bool {
	return h.grant == as.grant && (h.value == nil) == (as.value == nil) && bytes.Equal(h.value, as.value)
}

// show shows what is new, and reports whether to go on.
func (o *observation) show(next holding) bool {
	if o.told && next.same(&o.now) {
		return true
	}
	o.told, o.now = true, next
	return o.see(next.token, next.label, next.host, next.value)
}

// follow loads the state and follows the lock's events from there, until see
// has enough (nil), or the watch ends.
func (o *observation) follow(ctx context.Context) error {
	next, revision, err := o.load(ctx)
	if err != nil {
		return err
	}
	if !o.show(next) {
		return nil
	}
	w := WatchOptions{Lock: o.lock}
	if revision != 0 {
		w.After = &revision
	}
	for batch, err := range o.c.Watch(ctx, w) {
		switch {
		case err != nil:
			return err
		case len(batch.Events) == 0 && revision == 0:
			// The watch stands; what came before it is seen by looking again.
			if next, revision, err = o.load(ctx); err != nil {
				return err
			}
		}
		for i := range batch.Events {
			if batch.Events[i].Revision > revision {
				next.apply(&batch.Events[i])
			}
		}
		if !o.show(next) {
			return nil
		}
	}
	return ctx.Err()
}

// load reads the lock. The revision is that of the state, or 0 if there is no
// such lock, since the service does not tell it then.
func (o *observation) load(ctx context.Context) (h holding, revision uint64, err error) {
	l, err := o.c.Get(ctx, o.lock, GetOptions{QueueLimit: 1})
	switch {
	case driver.KindOf(err) == driver.NotFound:
		return h, 0, nil
	case err != nil:
		return h, 0, err
	}
	if l.HasValue {
		h.value = append([]byte{}, l.Value...)
	}
	for _, x := range l.Holders {
		if x.Grant > h.grant {
			h.grant, h.token, h.label, h.host = x.Grant, x.Token, x.Label, x.Host
		}
	}
	return h, l.Read.Revision, nil
}

// apply takes one event of the lock in.
func (h *holding) apply(e *Event) {
	switch e.Kind {
	case "granted":
		h.grant, h.token, h.label, h.host = e.Grant, e.Token, e.Label, e.Host
		if e.HasValue {
			h.value = append([]byte{}, e.Value...)
		}
	case "released":
		if e.Grant == h.grant {
			h.grant, h.token, h.label, h.host = 0, fence.Token{}, "", ""
		}
	case "put":
		h.value = append([]byte{}, e.Value...)
	case "deleted":
		h.value = nil
	}
}
