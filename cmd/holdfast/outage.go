package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// An outage tells a person that the line to the service broke, and that it
// stands again. The client itself only tries again. It looks at the connections,
// because nothing else of a quiet watch shows that nobody is there.
type outage struct {
	w io.Writer

	mu     sync.Mutex
	lines  int  // that stand
	ever   bool // one stood before
	told   bool // that none stands
	silent bool // the command is about to end
}

// dial opens a connection, and looks at it from then on.
func (o *outage) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		if ctx.Err() != context.Canceled {
			o.down(fmt.Sprintf("no server answers at %s", address), err)
		}
		return nil, err
	}
	o.lines++
	o.ever = true
	if o.told && !o.silent {
		o.told = false
		fmt.Fprintf(o.w, "holdfast: connected to %s again; going on without a gap\n", address)
	}
	return &lookedAt{Conn: conn, o: o, address: address, since: time.Now()}, nil
}

// glance is the longest that a line stands which the client leaves because its
// server only named the leader: less than any server may take to answer.
const glance = 400 * time.Millisecond

// down tells once that no line stands; mu is held. Before the first one stood,
// that is for the caller to say.
func (o *outage) down(what string, err error) {
	if o.silent || o.told || !o.ever || o.lines > 0 {
		return
	}
	o.told = true
	if err != nil {
		what += fmt.Sprintf(" (%s)", printable(err.Error()))
	}
	fmt.Fprintf(o.w, "holdfast: %s; trying again until it is back, or until interrupted\n", what)
}

// end silences o: what follows is wanted.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent = true
}

// lookedAt is a connection whose end is noticed.
type lookedAt struct {
	net.Conn
	o       *outage
	address string
	since   time.Time
	once    sync.Once
}

// Read implements net.Conn.
func (c *lookedAt) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended(err)
	}
	return n, err
}

// Close implements net.Conn.
func (c *lookedAt) Close() error {
	err := c.Conn.Close()
	c.ended(nil)
	return err
}

func (c *lookedAt) ended(why error) {
	c.once.Do(func() {
		c.o.mu.Lock()
		defer c.o.mu.Unlock()
		c.o.lines--
		ours := why == nil || errors.Is(why, net.ErrClosed)
		if ours && time.Since(c.since) < glance {
			return // a follower was asked, and named the leader
		}
		if ours || why == io.EOF {
			why = nil // one side closed the line: no more to say
		}
		c.o.down("the server at "+c.address+" went away", why)
	})
}
