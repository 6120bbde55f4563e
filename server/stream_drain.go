package server

import (
	"log/slog"
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
// (B9), and counted: each is an open file, and the log needs some too.
type conns struct {
	net.Listener
	log  *slog.Logger
	mu   sync.Mutex
	most int
	full bool // and that was logged
	all  map[*conn]struct{}
}

// conn knows whether somebody waits in Read, and how much was read.
type conn struct {
	net.Conn
	owner  *conns
	inRead atomic.Bool
	reads  atomic.Uint64
}

func newConns(l net.Listener, log *slog.Logger) *conns {
	return &conns{Listener: l, log: log, most: connsWithin(fileLimit()), all: make(map[*conn]struct{})}
}

// connsWithin is how many connections there may be if the process may have so
// many open files: 64 are kept for the log and the like, of few files half.
func connsWithin(files uint64) int {
	return int(min(files-min(64, files/2), 1<<20))
}

// Accept implements [net.Listener]. A connection too many is closed at once:
// its client then looks for another server, or says that it found none.
func (l *conns) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if wrapped := l.add(c); wrapped != nil {
			return wrapped, nil
		}
		_ = c.Close()
	}
}

// add returns nil if there are enough.
func (l *conns) add(c net.Conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= l.most {
		if !l.full {
			l.full = true
			l.log.Warn("too many connections: further ones are closed at once; allow this process more open files, or end clients", "connections", l.most)
		}
		return nil
	}
	l.full = l.full && len(l.all) > l.most*9/10
	wrapped := &conn{Conn: c, owner: l}
	l.all[wrapped] = struct{}{}
	return wrapped
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
