package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// conn is one connection to one server. It never dials again: when it breaks,
// the link makes another one, so that a dead line is never used twice.
type conn struct {
	addr string // the endpoint as it was configured or told
	raw  net.Conn
	http *http.ClientConn
	rpc  holdfastv1connect.LockServiceClient

	mu struct {
		sync.Mutex
		calls int         // that were begun and have not ended
		left  bool        // no further ones begin
		stop  func() bool // of the wait for the link's end, while the last calls run
	}
}

// A dialFunc opens the connection below HTTP/2.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialConn connects to addr and makes sure that a lock service answers there.
func dialConn(ctx context.Context, addr string, dial dialFunc, tlsConfig *tls.Config, token string) (*conn, error) {
	raw, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c, err := newConn(ctx, addr, raw, tlsConfig, token)
	if err != nil {
		return nil, explainTLS(ctx, addr, dial, tlsConfig, err)
	}
	_, err = c.rpc.GetStatus(ctx, connect.NewRequest(&holdfastv1.GetStatusRequest{}))
	if err != nil && !answered(err) {
		c.close()
		return nil, explainTLS(ctx, addr, dial, tlsConfig, fmt.Errorf("connected, but no lock service answered: %w", err))
	}
	return c, nil
}

// answered reports whether err is what a lock service said, not a broken
// connection or some other server.
func answered(err error) bool { return wire.RemoteOf(wire.FromError(err)) != nil }

// newConn makes raw an HTTP/2 connection, after the TLS handshake if there is
// one to make. It is closed if that fails. (Not a Transport that is handed raw
// when it dials: it dials for every request that comes before its pool knows
// the connection.)
func newConn(ctx context.Context, addr string, raw net.Conn, tlsConfig *tls.Config, token string) (*conn, error) {
	protocols := new(http.Protocols)
	scheme := "http"
	if tlsConfig != nil {
		scheme = "https"
		protocols.SetHTTP2(true)
	} else {
		protocols.SetUnencryptedHTTP2(true)
	}
	t := &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return raw, nil },
		TLSClientConfig: tlsConfig.Clone(),
		Protocols:       protocols,
		// Pings find a dead line that nobody owes an answer on (a watch).
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
	// One connection carries everything: beyond the server's limit of streams
	// a call waits for its turn.
	line, err := t.NewClientConn(ctx, scheme, addr)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	c := &conn{addr: addr, raw: raw, http: line}
	c.rpc = holdfastv1connect.NewLockServiceClient(&http.Client{Transport: line}, scheme+"://"+addr,
		connect.WithInterceptors(presenting(addr, tlsConfig != nil, token)...),
		connect.WithReadMaxBytes(wire.MaxFrame),
		connect.WithSendMaxBytes(wire.MaxFrame),
		// Frames are small and many: compressing them costs more than it saves.
		connect.WithAcceptCompression("gzip", nil, nil),
	)
	return c, nil
}

// begin says that a call begins, which end must be told of; ok is false, and
// nothing was begun, if the connection is out of use. A call that nobody can
// repeat must not be one that was sent into a closed connection.
func (c *conn) begin() (end func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.left {
		return nil, false
	}
	c.mu.calls++
	return c.endCall, true
}

func (c *conn) endCall() {
	c.mu.Lock()
	c.mu.calls--
	last := c.mu.left && c.mu.calls == 0
	stop := c.mu.stop
	c.mu.Unlock()
	if last && stop != nil && stop() {
		c.close()
	}
}

// leave lets no further call begin, and closes the connection when those that
// have begun have their answers, or when ctx ends.
func (c *conn) leave(ctx context.Context) {
	c.mu.Lock()
	c.mu.left = true
	busy := c.mu.calls > 0
	if busy {
		c.mu.stop = context.AfterFunc(ctx, c.close)
	}
	c.mu.Unlock()
	if !busy {
		c.close()
	}
}

// close ends the connection and every call on it at once.
func (c *conn) close() {
	c.mu.Lock()
	c.mu.left = true
	c.mu.Unlock()
	_ = c.raw.Close()
	_ = c.http.Close()
}
