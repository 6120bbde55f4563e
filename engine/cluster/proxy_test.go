package cluster

import (
	"context"
	"net"
	"sync"
	"testing"
)

// cutter is a TCP proxy in front of a server whose line can be damaged: reset,
// or made to swallow everything without a word, in each direction.
type cutter struct {
	t      *testing.T
	ln     net.Listener
	target func() string
	done   sync.WaitGroup

	mu struct {
		sync.Mutex
		pairs    map[*pair]struct{}
		up, down bool // swallow: client → server, server → client
		refuse   bool
		accepted int
		closed   bool
	}
}

// pair is one connection through the proxy.
type pair struct{ client, server net.Conn }

func newCutter(t *testing.T, target func() string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cutter{t: t, ln: ln, target: target}
	p.mu.pairs = make(map[*pair]struct{})
	p.done.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *cutter) addr() string { return p.ln.Addr().String() }

func (p *cutter) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.mu.refuse
		p.mu.accepted++
		p.mu.Unlock()
		if refuse {
			reset(c)
			continue
		}
		s, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target())
		if err != nil {
			reset(c)
			continue
		}
		pr := &pair{c, s}
		p.mu.Lock()
		closed := p.mu.closed
		p.mu.pairs[pr] = struct{}{}
		p.mu.Unlock()
		if closed {
			pr.close()
		}
		p.done.Go(func() { p.copy(pr, s, c, true) })
		p.done.Go(func() { p.copy(pr, c, s, false) })
	}
}

// copy moves bytes, or swallows them while its direction is damaged.
func (p *cutter) copy(pr *pair, dst, src net.Conn, up bool) {
	defer func() {
		pr.close()
		p.mu.Lock()
		delete(p.mu.pairs, pr)
		p.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.mu.Lock()
			swallow := p.mu.down
			if up {
				swallow = p.mu.up
			}
			p.mu.Unlock()
			if !swallow {
				if _, err := dst.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// swallow damages the directions.
func (p *cutter) swallow(up, down bool) {
	p.mu.Lock()
	p.mu.up, p.mu.down = up, down
	p.mu.Unlock()
}

// cut resets every connection.
func (p *cutter) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pr := range p.mu.pairs {
		pr.close()
		delete(p.mu.pairs, pr)
	}
}

// refuse resets new connections too, until heal.
func (p *cutter) refuse() {
	p.mu.Lock()
	p.mu.refuse = true
	p.mu.Unlock()
	p.cut()
}

// heal lets everything through, on new connections: those that lost bytes are
// reset.
func (p *cutter) heal() {
	p.cut()
	p.mu.Lock()
	p.mu.refuse, p.mu.up, p.mu.down = false, false, false
	p.mu.Unlock()
}

// dials counts the connections that clients made.
func (p *cutter) dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.accepted
}

func (p *cutter) close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	_ = p.ln.Close()
	p.cut()
	p.done.Wait()
}

func (pr *pair) close() { reset(pr.client); reset(pr.server) }

// reset closes c with an RST.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
