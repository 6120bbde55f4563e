package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"holdfast/server/tlsfiles"
)

// DefaultListen is where a server listens unless told otherwise.
const DefaultListen = "127.0.0.1:7433"

// Config says how a server is to run. Only Dir has no default.
type Config struct {
	// Listen is the address for clients, host:port; default [DefaultListen].
	// Port 0 takes a free one. Without TLS and without Insecure it must be
	// loopback.
	Listen string
	// Dir is the data directory; see [NodeConfig.Dir].
	Dir string
	// Logger gets what an operator should know; default slog.Default().
	Logger *slog.Logger
	// Pprof serves /debug/pprof/. It shows memory and goroutines to whoever
	// can reach the port.
	Pprof bool
	// TLS names the port's certificate and key, and with CA whoever signs the
	// certificates that clients must then show. The files are read again when
	// they change. The zero value means no TLS.
	TLS tlsfiles.Files
	// OperatorTokenFile names a file with lines NAME:TOKEN, and
	// OperatorCertNames are names in clients' certificates (which TLS.CA must
	// then ask for). Who shows a token, as "Authorization: Bearer TOKEN", or
	// such a certificate is an operator. With neither, everybody on the
	// server's own machine is. The file is read again when it changes.
	OperatorTokenFile string
	OperatorCertNames []string
	// Insecure allows to listen beyond loopback without TLS: whoever can
	// read the network then reads sessions' secrets.
	Insecure bool
	// AllowedHosts are names, beside addresses and localhost, that a Host
	// header may carry while the server listens on loopback.
	AllowedHosts []string
	// MaxSessions, SnapshotEntries and Tick are as in [NodeConfig].
	MaxSessions     int
	SnapshotEntries uint64
	Tick            time.Duration
	// Registry gets all metrics and is served at /metrics; default a new one.
	Registry *prometheus.Registry
	// Version is what the server says it is; default "dev".
	Version string

	// Cluster is for a server that is one of several.
	Cluster ClusterConfig

	nodeHooks         nodeHooks     // for tests of this package
	certificatesEvery time.Duration // likewise: how often files are looked at
}

// Server is one running server: a node and the port that its clients use.
// Its methods may be called from any goroutine.
type Server struct {
	cfg        Config
	node       *Node
	service    *service
	conns      *conns
	tls        *portTLS
	relays     *relayPort // nil: other members pass nothing on
	peerTLS    *portTLS
	operators  *operators
	http       *http.Server
	serving    atomic.Int64       // requests that are served now
	undecoded  atomic.Int64       // of these, calls whose body is not read yet
	quit       context.CancelFunc // ends what waits for long
	background context.CancelFunc
	unregister func()        // takes the metrics out of the registry
	ended      chan struct{} // closed when everything has stopped
	err        error         // set before ended is closed
	stop       chan context.Context
}

// Start opens the data directory, starts the node and serves its port. It
// returns once the node runs; [Server.Addr] is then the address to dial. While
// the node reads its log the port answers 503, with the reason. A directory or
// an address that cannot be used, and a configuration that breaks a rule, are
// errors that say what to do. When ctx ends while the node starts, so does
// Start.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Cluster.Check(cfg.Listen, cfg.Insecure, !cfg.Cluster.TLS.IsZero()); err != nil {
		return nil, err
	}
	loopback, err := checkListen(ctx, cfg)
	if err != nil {
		return nil, err
	}
	known, err := newOperators(cfg)
	if err != nil {
		return nil, err
	}
	secure, err := openTLS(cfg, tlsfiles.Server, cfg.TLS, nil)
	if err != nil {
		return nil, err
	}
	members, err := openPeerTLS(cfg)
	if err != nil {
		secure.close()
		return nil, err
	}
	s, err := startServing(ctx, cfg, secure, members, known, loopback)
	if err != nil {
		secure.close()
		members.close()
		return nil, err
	}
	cfg.Logger.Info("serving", "address", s.Addr(), "dir", cfg.Dir, "version", cfg.Version, "tls", secure != nil)
	return s, nil
}

// startServing is Start once the configuration was checked.
func startServing(ctx context.Context, cfg Config, secure, members *portTLS, known *operators, loopback bool) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w: is another server running there? Stop it, or choose another address", cfg.Listen, err)
	}
	if ip, err := netip.ParseAddrPort(listener.Addr().String()); !cfg.Insecure && secure == nil && (err != nil || !ip.Addr().Unmap().IsLoopback()) {
		_ = listener.Close()
		return nil, fmt.Errorf("listen is %q, which is now %s: want a loopback address", cfg.Listen, listener.Addr())
	}
	s := &Server{cfg: cfg, conns: newConns(listener, cfg.Logger), tls: secure, peerTLS: members, operators: known, ended: make(chan struct{}), stop: make(chan context.Context, 1)}
	var handler atomic.Pointer[http.Handler]
	s.http = newHTTP(s.guards(loopback && secure == nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*handler.Load()).ServeHTTP(w, r)
	})), cfg.Logger)
	var waits atomic.Pointer[string]
	first := starting(&waits)
	handler.Store(&first)
	served := make(chan error, 1)
	go func() { served <- secure.serve(s.http, s.conns) }()

	peers, err := cfg.listenForPeers(ctx, s.Addr())
	if err == nil {
		members.members(&peers)
		peers.Waits = func(reason string) { waits.Store(&reason) }
		s.node, err = StartNode(ctx, NodeConfig{
			Dir: cfg.Dir, Tick: cfg.Tick, Logger: cfg.Logger, Registerer: cfg.Registry, MaxSessions: cfg.MaxSessions,
			SnapshotEntries: cfg.SnapshotEntries, Peers: peers, hooks: cfg.nodeHooks,
		})
	}
	if err == nil {
		err = s.serve(&handler)
		if err != nil {
			err = errors.Join(err, s.node.Stop(context.WithoutCancel(ctx)))
		}
	}
	if err != nil {
		_ = s.http.Close()
		<-served
		return nil, err
	}
	go s.run(served)
	return s, nil
}

// guards is what stands before every handler. A body that does not come must
// not hold whoever is refused either, so withCall is the first. (rebindable: a
// name that an attacker points here would be served; with TLS the certificate
// does not have that name.)
func (s *Server) guards(rebindable bool, next http.Handler) http.Handler {
	return withCall(&s.serving, &s.undecoded, guarded(rebindable, s.cfg.AllowedHosts, withinLength(next)))
}

// serve puts the real handlers in place.
func (s *Server) serve(handler *atomic.Pointer[http.Handler]) error {
	stopping, quit := context.WithCancel(context.Background())
	background, end := context.WithCancel(context.Background())
	s.quit, s.background = quit, end
	s.service = &service{
		node: s.node, log: s.cfg.Logger, version: s.cfg.Version, metrics: newMetrics(), operators: s.operators,
		voices: newVoices(), streams: &streams{}, stopping: stopping, slowAfter: slowAfter,
	}
	unregister, err := s.service.metrics.register(s.cfg.Registry, s.node, s.service.voices)
	if err != nil {
		quit()
		end()
		return fmt.Errorf("metrics: %w: give each server a registry of its own", err)
	}
	s.unregister = unregister
	go s.service.tally(background)
	s.relay()
	s.node.OnDrain(s.drain)
	s.node.OnAway(s.service.sendAway)
	routes := s.routes()
	handler.Store(&routes)
	return nil
}

// relay lets calls be passed on between members: to this one, and from it. A
// session's secret, which goes with them, is not to cross the network in the
// clear if clients are spared that.
func (s *Server) relay() {
	if s.node.port == nil || s.tls != nil && s.peerTLS == nil {
		return
	}
	_, calls := s.service.handler()
	s.relays = s.newRelayPort(calls)
	go func() { _ = s.relays.http.Serve(s.relays) }()
	s.node.port.ServeRelays(func(line net.Conn) { s.relays.take(s.conns, line) })
	s.service.relays = newRelays(s.node)
}

// run waits for the first reason to end, and ends everything.
func (s *Server) run(served <-chan error) {
	ctx := context.Background()
	var why error
	select {
	case ctx = <-s.stop:
	case <-s.node.Done():
		why = s.node.Err()
		if why == nil {
			why = ErrStopped
		}
		s.cfg.Logger.Error("the node ended; the server stops", "error", why)
	case err := <-served:
		why = fmt.Errorf("the port failed: %w", err)
	}
	s.node.stepAside(ctx)
	// What waits ends first, so that the rest can be waited for.
	s.quit()
	s.hangUp(ctx)
	if err := s.node.Stop(ctx); err != nil && why == nil {
		why = fmt.Errorf("the node did not stop cleanly: %w", err)
	}
	if s.service.relays != nil {
		s.service.relays.CloseIdleConnections()
	}
	s.unregister()
	s.tls.close()
	s.peerTLS.close()
	s.background()
	s.err = why
	close(s.ended)
}

// hangUp stops listening, waits until the calls that are under way have been
// answered, at most 5 s, and closes the connections. (http's own Shutdown would
// leave each HTTP/2 connection another second.)
func (s *Server) hangUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	shut := make(chan struct{})
	go func() {
		defer close(shut)
		_ = s.http.Shutdown(ctx)
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; quiet < 5; quiet++ {
		select {
		case <-tick.C:
			if s.serving.Load() > 0 {
				quiet = 0
			}
		case <-ctx.Done():
			quiet = 5
		case <-shut:
			quiet = 5
		}
	}
	_ = s.http.Close()
	if s.relays != nil {
		_ = s.relays.http.Close()
	}
	cancel()
	<-shut
}

// Addr is the address that the server listens on, host:port.
func (s *Server) Addr() string { return s.conns.Addr().String() }

// Wait returns when the server has ended: nil after a clean [Server.Stop],
// else why.
func (s *Server) Wait() error {
	<-s.ended
	return s.err
}

// Stop ends the server: calls that wait are told to ask again, short ones are
// finished, nothing that was acknowledged is lost. It returns when all is
// closed, or ctx ends; then the rest goes on ending. It may be called more
// than once. Sessions live on in the data directory.
func (s *Server) Stop(ctx context.Context) error {
	select {
	case s.stop <- ctx:
	default: // somebody else did
	}
	select {
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("the server is still stopping: %w", context.Cause(ctx))
	}
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
		c.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	hosts := make([]string, 0, len(c.AllowedHosts))
	for _, h := range c.AllowedHosts {
		hosts = append(hosts, strings.ToLower(h))
	}
	c.AllowedHosts = hosts
	c.Cluster = c.Cluster.withDefaults()
	return c
}

// checkListen reports whether the address is loopback, and refuses any other
// unless that was asked for.
func checkListen(ctx context.Context, cfg Config) (loopback bool, err error) {
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return false, fmt.Errorf("listen is %q: want host:port, for example %s: %w", cfg.Listen, DefaultListen, err)
	}
	if _, err := net.DefaultResolver.LookupPort(ctx, "tcp", port); err != nil || port == "" {
		return false, fmt.Errorf("listen is %q: want a port 0 … 65535 after the colon", cfg.Listen)
	}
	loopback, err = OnLoopback(ctx, host)
	switch {
	case err != nil:
		return false, fmt.Errorf("listen is %q: %w", cfg.Listen, err)
	case !loopback && !cfg.Insecure && cfg.TLS.IsZero():
		return false, fmt.Errorf("listen is %q, which others can reach, and there is no TLS: give a certificate and its key, listen on loopback (%s), or accept with insecure that sessions' secrets cross the network in the clear", cfg.Listen, DefaultListen)
	}
	return loopback, nil
}

// OnLoopback reports whether every address of host is loopback, so that only
// this machine can connect to it. An empty host stands for all addresses of
// the machine. A name that cannot be resolved is an error.
func OnLoopback(ctx context.Context, host string) (bool, error) {
	if host == "" {
		return false, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback(), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return false, err
	}
	for _, ip := range ips {
		if !ip.Unmap().IsLoopback() {
			return false, nil
		}
	}
	return len(ips) > 0, nil
}
