package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// Calls of clients are passed on over the members' own lines (C5): the port for
// members has proved that a member speaks, by its certificate if members talk
// by TLS, and what a session may do its secret says, which the call carries.
// Nothing else of the client comes along, so who calls by such a line is never
// an operator.

// relayPort serves the lines by which other members pass calls on.
type relayPort struct {
	lines  chan net.Conn
	closed chan struct{}
	http   *http.Server
	addr   net.Addr
}

// newRelayPort serves h, the handler of all calls. Connections are kept among
// those of clients: after a stall they are read to their end, too (B9).
func (s *Server) newRelayPort(h http.Handler) *relayPort {
	p := &relayPort{lines: make(chan net.Conn), closed: make(chan struct{}), addr: s.conns.Addr()}
	p.http = newHTTP(withCall(&s.serving, &s.undecoded, onlyRelayed(withinLength(h))), s.cfg.Logger)
	p.http.Protocols.SetHTTP1(false)
	return p
}

// take hands a line to the server, and returns at once.
func (p *relayPort) take(all *conns, line net.Conn) {
	c := all.add(line)
	if c == nil {
		_ = line.Close()
		return
	}
	select {
	case p.lines <- c:
	case <-p.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (p *relayPort) Accept() (net.Conn, error) {
	select {
	case c := <-p.lines:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It is called once, by http.Server.
func (p *relayPort) Close() error {
	close(p.closed)
	return nil
}

// Addr implements net.Listener.
func (p *relayPort) Addr() net.Addr { return p.addr }

// onlyRelayed lets those calls through that a member may pass on, marked so
// that they go no further, and takes everything from them by which an operator
// could be known.
func onlyRelayed(next http.Handler) http.Handler {
	takes := map[string]bool{}
	for _, call := range relayed {
		takes[call] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !takes[r.URL.Path] {
			_ = connect.NewErrorWriter().Write(w, r, wire.Error(&driver.Error{
				Kind: driver.Denied, Outcome: driver.No,
				Msg: fmt.Sprintf("a member does not pass %q on: ask the leader itself", clip(strings.TrimPrefix(r.URL.Path, "/"+holdfastv1connect.LockServiceName+"/"))),
			}))
			return
		}
		if c := callOf(r.Context()); c != nil {
			c.shows = shown{}
		}
		if r.Header.Get(relayedHeader) == "" {
			r.Header.Set(relayedHeader, "follower")
		}
		next.ServeHTTP(w, r)
	})
}

// memberHost is a member's place in the addresses of calls that are passed on.
const memberHost = ".member.invalid"

// newRelays is the HTTP client by which calls are passed on: few connections
// carry them all. Its addresses name members.
func newRelays(n *Node) *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		host, _, _ := net.SplitHostPort(addr)
		id, err := strconv.ParseUint(strings.TrimSuffix(host, memberHost), 16, 64)
		if err != nil {
			return nil, &undialledError{err}
		}
		c, err := n.port.RelayLine(ctx, id)
		if err != nil {
			return nil, &undialledError{err}
		}
		return c, nil
	}
	return &http.Client{Transport: &http.Transport{
		Protocols: p, DialContext: dial, IdleConnTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
	}}
}
