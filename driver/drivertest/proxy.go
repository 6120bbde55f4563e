package drivertest

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// A Way is a direction through a [Proxy].
type Way int

// The ways.
const (
	ToServer Way = iota
	ToClient
)

// A Proxy is a TCP line to a server that can be damaged as real lines are:
// refused, reset, silent in one direction or both, or slow. Bytes are never
// lost in the middle of a connection that goes on.
type Proxy struct {
	t        testing.TB
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu struct {
		sync.Mutex
		changed chan struct{} // closed and replaced when a setting changes
		stalled [2]bool
		delay   [2]time.Duration
		refuse  bool
		closed  bool
		pairs   map[*pair]struct{}
		total   int
	}
}

// pair is one connection through the proxy.
type pair struct {
	client, server net.Conn
	gone           chan struct{}
	once           sync.Once
}

// NewProxy listens on a loopback port and passes connections on to target
// ("host:port"). It is closed when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, target: target, listener: l}
	p.mu.changed = make(chan struct{})
	p.mu.pairs = make(map[*pair]struct{})
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is the address to dial instead of the server's.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Connections is how many connections were accepted so far, and how many of
// them are open.
func (p *Proxy) Connections() (total, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.total, len(p.mu.pairs)
}

// Retarget makes later connections go to another server.
func (p *Proxy) Retarget(target string) {
	p.set(func() { p.target = target })
}

// Stall keeps back everything in one direction until Restore; nobody is told,
// as when packets are dropped.
func (p *Proxy) Stall(w Way) { p.set(func() { p.mu.stalled[w] = true }) }

// Cut stalls both directions, of present and later connections.
func (p *Proxy) Cut() { p.set(func() { p.mu.stalled = [2]bool{true, true} }) }

// Delay adds a latency to every chunk in one direction.
func (p *Proxy) Delay(w Way, d time.Duration) { p.set(func() { p.mu.delay[w] = d }) }

// Refuse resets later connections as soon as they are accepted.
func (p *Proxy) Refuse() { p.set(func() { p.mu.refuse = true }) }

// Restore ends every damage. What was kept back goes on.
func (p *Proxy) Restore() {
	p.set(func() {
		p.mu.stalled, p.mu.delay, p.mu.refuse = [2]bool{}, [2]time.Duration{}, false
	})
}

// Reset ends all open connections with a TCP reset.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.mu.pairs {
		c.end()
	}
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
}

func (p *Proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.mu.closed = true
	for c := range p.mu.pairs {
		c.end()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.t.Errorf("proxy: %v", err)
			}
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	refuse, target := p.mu.refuse || p.mu.closed, p.target
	p.mu.total++
	p.mu.Unlock()
	if refuse {
		abort(client)
		return
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		abort(client)
		return
	}
	c := &pair{client: client, server: server, gone: make(chan struct{})}
	p.mu.Lock()
	p.mu.pairs[c] = struct{}{}
	if p.mu.closed {
		c.end()
	}
	p.mu.Unlock()
	var ways sync.WaitGroup
	ways.Go(func() { p.copy(c, server, client, ToServer) })
	ways.Go(func() { p.copy(c, client, server, ToClient) })
	ways.Wait()
	c.end()
	p.mu.Lock()
	delete(p.mu.pairs, c)
	p.mu.Unlock()
}

// copy passes one direction on until it ends.
func (p *Proxy) copy(c *pair, dst, src net.Conn, w Way) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !p.admit(c, w) {
				return
			}
			if _, werr := dst.Write(buf[:n]); werr != nil {
				c.end()
				return
			}
		}
		if err == nil {
			continue
		}
		if !p.admit(c, w) { // the end is kept back as well
			return
		}
		if t, ok := dst.(*net.TCPConn); ok && t.CloseWrite() == nil {
			return // the other direction may go on
		}
		c.end()
		return
	}
}

// admit waits until the direction passes something; false if the connection
// has ended before.
func (p *Proxy) admit(c *pair, w Way) bool {
	p.mu.Lock()
	delay := p.mu.delay[w]
	p.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-c.gone:
			return false
		}
	}
	for {
		p.mu.Lock()
		stalled, changed := p.mu.stalled[w], p.mu.changed
		p.mu.Unlock()
		if !stalled {
			return true
		}
		select {
		case <-changed:
		case <-c.gone:
			return false
		}
	}
}

// end resets both sides.
func (c *pair) end() {
	c.once.Do(func() {
		close(c.gone)
		abort(c.client)
		abort(c.server)
	})
}

// abort closes a connection with a reset rather than an orderly end.
func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
