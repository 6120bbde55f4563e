package peer

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// RelayLine opens a line to a member by which this one passes calls of clients
// on. What goes over it is not this package's business. Both ends have
// compared who they are, as on every line: whoever accepts it knows that a
// member speaks.
func (p *Port) RelayLine(ctx context.Context, to uint64) (net.Conn, error) {
	p.mu.Lock()
	l, self := p.mu.links[to], p.mu.self
	p.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("%w: there is no line to %016x", ErrNoMember, to)
	}
	c, r, err := l.dialWithin(ctx, self, relay)
	if err != nil {
		return nil, err
	}
	line := &relayLine{Conn: c, r: r, closed: make(chan struct{})}
	line.let = func() { p.let(raw(c)) }
	return line, nil
}

// ServeRelays says who serves the lines by which other members pass calls on,
// and closes each; before that they are refused. serve must not block.
func (p *Port) ServeRelays(serve func(line net.Conn)) { p.relay.Store(&serve) }

// relayed serves a line by which another member passes calls on, to its end.
func (p *Port) relayed(c net.Conn, r *bufio.Reader, from uint64) {
	p.mu.Lock()
	if p.mu.relays == nil {
		p.mu.relays = map[net.Conn]uint64{}
	}
	p.mu.relays[raw(c)] = from
	p.mu.Unlock()
	line := &relayLine{Conn: c, r: r, closed: make(chan struct{})}
	line.let = func() { _ = c.Close() }
	(*p.relay.Load())(line)
	select {
	case <-line.closed:
	case <-p.ctx.Done():
	}
}

// relayLine is a connection behind a handshake of ours. Nobody sees by its type
// that there is TLS below.
type relayLine struct {
	net.Conn
	r      *bufio.Reader
	let    func()
	once   sync.Once
	closed chan struct{}
}

// Read implements net.Conn.
func (c *relayLine) Read(b []byte) (int, error) { return c.r.Read(b) }

// Close implements net.Conn.
func (c *relayLine) Close() error {
	c.once.Do(func() {
		_ = c.Conn.SetDeadline(time.Now()) // who writes now must not hold it up
		c.let()
		close(c.closed)
	})
	return nil
}

// SyscallConn implements syscall.Conn, so that it can be asked what the kernel
// holds.
func (c *relayLine) SyscallConn() (syscall.RawConn, error) {
	if s, ok := raw(c.Conn).(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, fmt.Errorf("%T has no descriptor", raw(c.Conn))
}
