package stage

import (
	"context"
	"net"
	"sync"
)

// lines are the connections of an in-process worker. What would go over them
// waits while it is still, in both directions, closing included; after cut
// nothing goes over them, not even a goodbye.
type lines struct {
	still *stillness

	mu    sync.Mutex
	dead  bool
	conns map[*line]struct{}
}

// dial opens a line, when it is not still.
func (l *lines) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !l.still.pass(ctx) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		return nil, net.ErrClosed
	}
	raw, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &line{Conn: raw, of: l}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	if l.conns == nil {
		l.conns = make(map[*line]struct{})
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// cut ends all lines for good.
func (l *lines) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.conns {
		c.cancel()
		_ = c.Conn.Close()
	}
	l.conns = nil
}

func (l *lines) forget(c *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// A line is one connection.
type line struct {
	net.Conn
	of     *lines
	ctx    context.Context // ends when this side has closed it
	cancel context.CancelFunc
}

// Read gives bytes that came before a stillness only after it.
func (c *line) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.of.still.pass(c.ctx) {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *line) Write(b []byte) (int, error) {
	if !c.of.still.pass(c.ctx) {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close is at once on this side; the other side hears of it after a stillness.
func (c *line) Close() error {
	if c.ctx.Err() != nil {
		return net.ErrClosed
	}
	c.cancel()
	go func() {
		if c.of.still.pass(context.Background()) {
			_ = c.Conn.Close()
		}
		c.of.forget(c)
	}()
	return nil
}
