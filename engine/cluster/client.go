package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast"
	"holdfast/driver"
)

// A Client is one process's line to the lock service: one connection, one
// locker, and the calls that only this service has. Its methods may be called
// by several goroutines at once.
//
// Their errors are, or wrap, a [*driver.Error] with kind, outcome and what to
// do; those of Acquire are a [*holdfast.Error].
type Client struct {
	link     *link
	locker   *holdfast.FencedLocker
	presence *presence
	refusals *refusals
	timeout  time.Duration
	once     sync.Once
	err      error
}

// Dial connects to the lock service and returns a client of it. endpoints is
// "host:port", or several separated by commas; any of them will do, and the
// client moves to another when one fails, and to the leader when it is told
// who leads. A nil o means all defaults.
//
// It returns when a server has answered, or with an error that says for each
// one why not, when ctx ends or OpenTimeout has passed. An address or an
// option that cannot work is refused before anything is sent, with an error of
// kind [driver.Invalid] or one that wraps [holdfast.ErrInvalid].
func Dial(ctx context.Context, endpoints string, o *Options) (*Client, error) {
	if o == nil {
		o = &Options{}
	}
	list, err := parseEndpoints(endpoints)
	if err != nil {
		return nil, err
	}
	l := newLink(list, o.dialer(), o.tls(), o.logger())
	if err := checkToken(o, list); err != nil {
		return nil, err
	}
	l.token = o.OperatorToken
	locker, err := holdfast.NewFencedLocker(engine{l}, o.locker())
	if err != nil {
		return nil, err
	}
	c := &Client{link: l, locker: locker, presence: newPresence(l, o), refusals: newRefusals(l), timeout: o.searchTimeout()}
	go l.connectLoop()
	search, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if _, err := l.stream(search, nil); err != nil {
		l.close()
		return nil, err
	}
	return c, nil
}

// Locker returns the portable locker on this client, the same one each time.
// Closing the client closes it.
func (c *Client) Locker() *holdfast.FencedLocker { return c.locker }

// Engine returns this client's line as an engine, for a further locker with
// other settings, such as another TTL: it has a session of its own on the same
// connection. Close such lockers before the client.
func (c *Client) Engine() driver.Fenced { return engine{c.link} }

// Close ends the client's sessions, so that all it holds is free, and leaves
// no connection and no goroutine. It ignores a cancelled ctx, and takes a
// bounded time: if no server answers, the sessions end by themselves after
// their TTL. It is idempotent.
func (c *Client) Close(ctx context.Context) error {
	c.once.Do(func() {
		ctx := context.WithoutCancel(ctx)
		c.refusals.close()
		c.err = errors.Join(c.locker.Close(ctx), c.presence.close(ctx))
		c.link.close()
	})
	return c.err
}
