package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	drainPass   = 2 * time.Millisecond
	drainAtMost = 2 * time.Second
)

// conns are the open connections, so that they can be drained after a stall
// (B9).
type conns struct {
	net.Listener
	mu  sync.Mutex
	all map[*conn]struct{}
}

// conn knows whether somebody waits in Read, and how much was read.
type conn struct {
	net.Conn
	owner  *conns
	inRead atomic.Bool
	reads  atomic.Uint64
}

func newConns(l net.Listener) *conns { return &conns{Listener: l, all: make(map[*conn]struct{})} }

// Accept implements [net.Listener].
func (l *conns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	wrapped := &conn{Conn: c, owner: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[wrapped] = struct{}{}
	return wrapped, nil
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	c.inRead.Store(true)
	n, err := c.Conn.Read(b)
	c.reads.Add(1)
	c.inRead.Store(false)
	return n, err
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.all, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

func (l *conns) list() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*conn, 0, len(l.all))
	for c := range l.all {
		all = append(all, c)
	}
	return all
}

// drain calls done once what had reached this machine when it was called has
// been read and handed to the node, so that no session is taken for silent
// only because this process slept (B9). It passes three barriers:
//
//  1. each connection was seen with a reader that waits and nothing in the
//     kernel's buffer: whole frames have then left the connection;
//  2. no unary call was seen that is not decoded yet, and no keepalive among
//     them that the node does not have yet;
//  3. each session stream was seen waiting for a message, twice in a row with
//     nothing handled in between.
//
// It is honest about what it cannot see: connections that the kernel accepted
// but this process did not, bytes that are still on the network, and a reader
// that the scheduler keeps from running between two passes. It is bounded:
// after drainAtMost it gives up, because a client that never stops sending
// must not keep dead sessions alive.
func (s *Server) drain(done func()) {
	go func() {
		defer done()
		begun := time.Now()
		if !s.drained(time.NewTicker(drainPass), begun.Add(drainAtMost)) {
			s.cfg.Logger.Warn("after a stall the connections were not read to their end", "gave_up_after", drainAtMost)
			return
		}
		s.cfg.Logger.Info("after a stall all connections were read", "took", time.Since(begun))
	}()
}

func (s *Server) drained(tick *time.Ticker, until time.Time) bool {
	defer tick.Stop()
	wait := func() bool {
		select {
		case now := <-tick.C:
			return now.Before(until)
		case <-s.node.Done():
			return false
		}
	}
	for _, c := range s.conns.list() {
		for !c.empty() {
			if !wait() {
				return false
			}
		}
	}
	for s.undecoded.Load() > 0 {
		if !wait() {
			return false
		}
	}
	for _, st := range s.service.streams.list() {
		for s.service.streams.open(st) {
			before, waits := st.handled.Load(), st.reading.Load()
			if !wait() {
				return false
			}
			if waits && st.reading.Load() && st.handled.Load() == before {
				break
			}
		}
	}
	return true
}

// empty reports whether everything that reached this connection was read.
func (c *conn) empty() bool {
	before := c.reads.Load()
	if !c.inRead.Load() {
		return c.closed()
	}
	return unread(c.Conn) == 0 && c.inRead.Load() && c.reads.Load() == before
}

// closed reports whether the connection is gone.
func (c *conn) closed() bool {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	_, open := c.owner.all[c]
	return !open
}
