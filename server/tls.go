package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/server/tlsfiles"
)

// portTLS is the TLS of one port; nil stands for a port without.
type portTLS struct {
	set     *tlsfiles.Set
	metrics []prometheus.Collector
	to      prometheus.Registerer
	stop    context.CancelFunc
}

// openTLS reads the files of one port and follows their changes until close.
// It returns nil if none are named. suits is as in [tlsfiles.Options].
func openTLS(cfg Config, role tlsfiles.Role, files tlsfiles.Files, suits func(*x509.Certificate) error) (*portTLS, error) {
	if files.IsZero() {
		return nil, nil
	}
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "holdfast", Name: "certificate_renewals_total", ConstLabels: prometheus.Labels{"use": string(role)},
		Help: "Changes of certificates, keys and CAs that were seen, by result: used, or refused (then the old ones stay in use, and the log says why).",
	}, []string{"result"})
	used, refused := reads.WithLabelValues("used"), reads.WithLabelValues("refused")
	set, err := tlsfiles.Open(files, tlsfiles.Options{
		Role: role, Logger: cfg.Logger, Every: cfg.certificatesEvery, Suits: suits,
		Changed: func(err error) {
			if err != nil {
				refused.Inc()
				return
			}
			used.Inc()
		},
	})
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	p := &portTLS{set: set, to: cfg.Registry, metrics: []prometheus.Collector{
		reads, expiry(set, role, "cert", func(cert, _ time.Time) time.Time { return cert }),
	}}
	if files.CA != "" {
		p.metrics = append(p.metrics, expiry(set, role, "ca", func(_, ca time.Time) time.Time { return ca }))
	}
	for i, c := range p.metrics {
		if err := p.to.Register(c); err != nil {
			p.metrics = p.metrics[:i]
			p.unregister()
			return nil, fmt.Errorf("metrics: %w: give each server a registry of its own", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go set.Watch(ctx)
	return p, nil
}

// expiry is when the certificates of a file expire, as Prometheus has times.
func expiry(set *tlsfiles.Set, role tlsfiles.Role, file string, of func(cert, ca time.Time) time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "holdfast", Name: "certificate_expiry_timestamp_seconds",
		ConstLabels: prometheus.Labels{"use": string(role), "file": file},
		Help:        "When the first certificate of the file expires, in seconds since 1970.",
	}, func() float64 { return float64(of(set.NotAfter()).Unix()) })
}

func (p *portTLS) unregister() {
	for _, c := range p.metrics {
		p.to.Unregister(c)
	}
}

// close ends the watch of the files.
func (p *portTLS) close() {
	if p == nil {
		return
	}
	p.stop()
	p.unregister()
}

// serve serves a port until it is closed: as srv.Serve, or with TLS.
func (p *portTLS) serve(srv *http.Server, l net.Listener) error {
	if p == nil {
		return srv.Serve(l)
	}
	srv.Protocols.SetUnencryptedHTTP2(false)
	srv.Protocols.SetHTTP2(true)
	srv.TLSConfig = p.set.Server()
	return srv.ServeTLS(l, "", "")
}

// openPeerTLS is openTLS for members among each other. A certificate that does
// not name this server would be refused by all others, at the start as later.
func openPeerTLS(cfg Config) (*portTLS, error) {
	me := cfg.Cluster.Name
	p, err := openTLS(cfg, tlsfiles.Peer, cfg.Cluster.TLS, func(leaf *x509.Certificate) error {
		if slices.Contains(leaf.DNSNames, me) {
			return nil
		}
		return fmt.Errorf("%s names %q, and this server is %q: give each member a certificate with its own name (subjectAltName = DNS:%s)", cfg.Cluster.TLS.Cert, leaf.DNSNames, me, me)
	})
	if err != nil {
		return nil, fmt.Errorf("for members: %w", err)
	}
	return p, nil
}

// members makes the port for members speak TLS with the files of the role
// [tlsfiles.Peer]; nil leaves it plain.
func (p *portTLS) members(c *PeerConfig) {
	if p == nil {
		return
	}
	peers := tlsfiles.NewPeerTLS(p.set)
	c.ListenTLS = peers.Server
	c.DialTLS = func() *tls.Config { return peers.Client("") }
	c.Verify = tlsfiles.Verify
}
