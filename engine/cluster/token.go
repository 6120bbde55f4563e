package cluster

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"connectrpc.com/connect"
)

// checkToken refuses an operator's token that somebody on the network could
// read.
func checkToken(o *Options, endpoints []string) error {
	switch {
	case o.OperatorToken == "":
		return nil
	case strings.ContainsFunc(o.OperatorToken, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalid("", "the operator's token has a space, a line end or a character beyond ASCII: want the token alone")
	case o.TLS != nil || o.TLSNow != nil:
		return nil
	}
	for _, addr := range endpoints {
		if !onThisMachine(addr) {
			return invalid("", "the operator's token would cross the network to %s in the clear: use TLS (--ca FILE, or Options.TLS), or run this on the server's own machine", addr)
		}
	}
	return nil
}

func onThisMachine(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return host == "localhost"
}

// presenting is what shows an operator's token on a connection; nothing if there
// is none, or if others could read it.
func presenting(addr string, secure bool, token string) []connect.Interceptor {
	if token == "" || !secure && !onThisMachine(addr) {
		return nil
	}
	return []connect.Interceptor{bearer(token)}
}

// bearer is a token in the header of every call.
type bearer string

const authorization = "Authorization"

// WrapUnary implements [connect.Interceptor].
func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set(authorization, "Bearer "+string(b))
		return next(ctx, req)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		c := next(ctx, spec)
		c.RequestHeader().Set(authorization, "Bearer "+string(b))
		return c
	}
}

// WrapStreamingHandler implements [connect.Interceptor]; there is no handler
// here.
func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
