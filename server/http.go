package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// routes is everything that the port serves, without its guards.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	prefix, calls := s.service.handler()
	mux.Handle(prefix, onlyCalls(prefix, calls))
	mux.HandleFunc("GET /v1/watch", s.service.serveEvents)
	mux.HandleFunc("GET /healthz", s.serveHealth)
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{Registry: s.cfg.Registry}))
	if s.cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "Holdfast lock service %s\n\nPOST /holdfast.v1.LockService/METHOD with Content-Type: application/json, or gRPC\nGET  /v1/watch /healthz /readyz /metrics\n", s.cfg.Version)
	})
	return mux
}

// serveHealth says whether the process should live: a node that ended should
// be started anew.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-s.node.Done():
		plain(w, http.StatusServiceUnavailable, fmt.Sprintf("the node has ended: %v", s.node.Err()))
	default:
		plain(w, http.StatusOK, "ok")
	}
}

// serveReady says whether the node can serve, and if not, why not.
func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	if s.service.stopping.Err() != nil {
		plain(w, http.StatusServiceUnavailable, "not ready: the server is stopping")
		return
	}
	if ok, why := s.node.Ready(); !ok {
		plain(w, http.StatusServiceUnavailable, "not ready: "+why)
		return
	}
	plain(w, http.StatusOK, "ready")
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// starting answers everything while the node reads its log, or waits for the
// other founders of its cluster, or to be added to one. The process is well
// then, and must not be started anew for it.
func starting(waits *atomic.Pointer[string]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			plain(w, http.StatusOK, "ok")
			return
		}
		w.Header().Set("Retry-After", "1")
		reason := "starting, the node reads its log"
		if r := waits.Load(); r != nil {
			reason = *r
		}
		plain(w, http.StatusServiceUnavailable, "not ready: "+reason)
	})
}

// guarded refuses what a browser was tricked into sending. A page of another
// site can make a browser call a service on this machine: a plain form cannot
// (only JSON and gRPC content types are taken), a script of another origin is
// refused by its Origin or Sec-Fetch-Site header, and a name that an attacker
// points at 127.0.0.1 (DNS rebinding) by its Host header: on loopback, that
// must be an address, localhost, or one of the allowed names.
func guarded(loopback bool, allowed []string, next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plain(w, http.StatusForbidden, fmt.Sprintf("refused: a call from the web page %s; this service answers only to pages of its own", r.Header.Get("Origin")))
	}))
	return origins.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loopback && !LocalHost(r.Host, allowed...) {
			plain(w, http.StatusForbidden, fmt.Sprintf("refused: Host is %q, and this server listens on loopback: use an address or localhost", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// LocalHost reports whether a Host header cannot come from DNS rebinding: it
// names an address, localhost, or one of the allowed names, which are in lower
// case. A port at its end does not count. What else of this machine is served
// to browsers asks it too.
func LocalHost(hostport string, allowed ...string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(allowed, host)
}

// newHTTP is the HTTP server with its limits. There is no time limit for
// whole requests: acquires, watches and streams last. Bodies, headers, idle
// connections and unread answers have theirs.
func newHTTP(h http.Handler, logger *slog.Logger) *http.Server {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		Protocols:         new(http.Protocols),
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000,
			SendPingTimeout:      15 * time.Second,
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     slowAfter,
		},
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return srv
}
