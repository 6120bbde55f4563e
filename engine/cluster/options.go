package cluster

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"holdfast"
)

// Options are the settings of a client. A zero field means its default. The
// settings of the lease are those of [holdfast.Options], with its defaults and
// its rules.
type Options struct {
	// TTL is how long the service keeps this client's locks after it last
	// heard of it: 1 s – 24 h, default 15 s.
	TTL time.Duration
	// Margin is how long before the end of the TTL the client gives up;
	// default TTL/10.
	Margin time.Duration
	// KeepaliveInterval is how often the lease is renewed; default TTL/6.
	KeepaliveInterval time.Duration
	// CallTimeout bounds each single call that renews, releases or cancels;
	// default KeepaliveInterval. Calls of the client itself (Get, Put, …)
	// end with their context, and without a deadline there after 10 s.
	CallTimeout time.Duration
	// OpenTimeout bounds the search for a service that opens a session; default
	// 5 s. [Dial] searches as long at most, too.
	OpenTimeout time.Duration
	// Label says, for people, who holds a lock ("billing run on db7"); at
	// most 256 bytes. It never decides ownership.
	Label string
	// Host is the machine's name, for people; at most 256 bytes. The default
	// is what the machine calls itself.
	Host string
	// Clock is for tests; see [holdfast.Options].
	Clock func() time.Duration
	// Logger gets losses, failures and changes of server; nil means silence.
	Logger *slog.Logger
	// TLS, if set, is how servers are spoken to; it must trust their
	// certificates. nil means plain HTTP/2, which servers offer on loopback.
	TLS *tls.Config
	// TLSNow, if set, takes the place of TLS: it is asked for the settings of
	// each new connection, so that certificates and CAs can be replaced while
	// the client runs. It must be quick, and never return nil.
	TLSNow func() *tls.Config
	// OperatorToken, if set, is shown with every call, so that the service
	// knows this client as an operator ([Client.Revoke] and the like). It is
	// not sent in the clear to other machines.
	OperatorToken string
	// Dialer opens connections; nil means a [net.Dialer]. It is for tests and
	// for tunnels.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// OnPulse, if not nil, is called after each keepalive is settled.
	OnPulse func(holdfast.PulseInfo)
}

// defaultDeadline is the longest a call of the client takes whose context has
// no deadline.
const defaultDeadline = 10 * time.Second

// locker is the part of o that package holdfast checks and keeps.
func (o *Options) locker() *holdfast.Options {
	return &holdfast.Options{
		TTL: o.TTL, Margin: o.Margin, KeepaliveInterval: o.KeepaliveInterval,
		CallTimeout: o.CallTimeout, OpenTimeout: o.OpenTimeout,
		Label: o.Label, Host: o.host(), Clock: o.Clock, Logger: o.Logger, OnPulse: o.OnPulse,
	}
}

func (o *Options) host() string {
	if o.Host != "" {
		return o.Host
	}
	name, _ := os.Hostname() // for people only: "" will do
	return strings.ToValidUTF8(name, "")
}

func (o *Options) tls() func() *tls.Config {
	if o.TLSNow != nil {
		return o.TLSNow
	}
	return func() *tls.Config { return o.TLS }
}

func (o *Options) dialer() dialFunc {
	if o.Dialer != nil {
		return o.Dialer
	}
	return new(net.Dialer).DialContext
}

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.New(slog.DiscardHandler)
}

// searchTimeout is how long Dial looks for a server at most.
func (o *Options) searchTimeout() time.Duration {
	if o.OpenTimeout > 0 {
		return o.OpenTimeout
	}
	return holdfast.DefaultOpenTimeout
}

// withDeadline bounds ctx for one call of the client.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, defaultDeadline)
}
