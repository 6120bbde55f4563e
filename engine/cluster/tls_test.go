package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/server"
	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
)

// serveTLS starts a server with a certificate; mutual asks clients for one.
func serveTLS(t *testing.T, ca *tlstest.CA, c tlstest.Certificate, mutual bool) string {
	t.Helper()
	var f tlsfiles.Files
	f.Cert, f.Key, f.CA = ca.Write(t.TempDir(), "server", c)
	if !mutual {
		f.CA = ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := server.Start(ctx, server.Config{Listen: "127.0.0.1:0", Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), TLS: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

// showing trusts a CA, and shows a certificate of another one, or of the same.
func showing(t *testing.T, trusts, signs *tlstest.CA, c tlstest.Certificate) *tls.Config {
	t.Helper()
	cert, key := signs.Issue(c)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: trusts.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
}

// TestTLSErrorsSayWhatToDo: whatever the two sides disagree about, the error of
// Dial says which side to change, and how.
func TestTLSErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	ca, other := tlstest.NewCA(t, "ours"), tlstest.NewCA(t, "theirs")
	past := time.Now().Add(-time.Hour)
	expired := tlstest.Certificate{NotBefore: past.Add(-time.Hour), NotAfter: past}
	plain := startProcess(t).addr
	one := serveTLS(t, ca, tlstest.Certificate{}, false)
	mutual := serveTLS(t, ca, tlstest.Certificate{}, true)
	old := serveTLS(t, ca, expired, false)
	named := serveTLS(t, ca, tlstest.Certificate{DNSNames: []string{"locks.example"}}, false)
	trusting := &tls.Config{RootCAs: ca.Pool()}
	for _, c := range []struct {
		what, addr string
		tls        *tls.Config
		says       string // "": it works
	}{
		{"server-side TLS", one, trusting, ""},
		{"mutual TLS", mutual, showing(t, ca, ca, tlstest.Certificate{}), ""},
		{"a plain client to a TLS server", one, nil, "the server speaks TLS, and this client does not"},
		{"a plain client to a mutual TLS server", mutual, nil, "the server speaks TLS, and this client does not"},
		{"a TLS client to a plain server", plain, trusting, "the server does not speak TLS"},
		{"an unknown CA", one, &tls.Config{RootCAs: other.Pool()}, "not signed by a CA that this client trusts"},
		{"the system's CAs", one, &tls.Config{}, "not signed by a CA that this client trusts"},
		{"an expired certificate", old, trusting, "the server's certificate has expired"},
		{"another name", named, trusting, "does not name 127.0.0.1"},
		{"no certificate of the client", mutual, trusting, "the server wants a certificate of the client"},
		{"a client's certificate of another CA", mutual, showing(t, ca, other, tlstest.Certificate{}), "does not know the CA that signed this client's certificate"},
		{"an expired one of the client", mutual, showing(t, ca, ca, expired), "this client's certificate has expired"},
		{"a client's certificate for servers", mutual, showing(t, ca, ca, tlstest.Certificate{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), "refuses this client's certificate"},
		{"an old version", one, &tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS12}, "a newer TLS version"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			client, err := Dial(t.Context(), c.addr, &Options{TLS: c.tls, OpenTimeout: 3 * time.Second})
			if err == nil {
				_ = client.Close(t.Context())
			}
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// TestTLSNow: each connection asks for the settings, so a client lives through
// the change of its own certificate and of both CAs.
func TestTLSNow(t *testing.T) {
	t.Parallel()
	first, second := tlstest.NewCA(t, "first"), tlstest.NewCA(t, "second")
	dir := t.TempDir()
	var f tlsfiles.Files
	f.Cert, f.Key, f.CA = first.Write(dir, "client", tlstest.Certificate{})
	set, err := tlsfiles.Open(f, tlsfiles.Options{Role: tlsfiles.Client})
	if err != nil {
		t.Fatal(err)
	}
	servers := []string{serveTLS(t, first, tlstest.Certificate{}, true), serveTLS(t, second, tlstest.Certificate{}, true)}
	var now, asked atomic.Int32
	lines := make(chan net.Conn, 100)
	client := dial(t, "localhost:7433", &Options{
		OpenTimeout: 20 * time.Second,
		TLSNow:      func() *tls.Config { asked.Add(1); return set.Client() },
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, servers[now.Load()])
			if err == nil {
				lines <- c
			}
			return c, err
		},
	})
	status := func() error {
		_, err := client.Status(t.Context())
		return err
	}
	if err := status(); err != nil {
		t.Fatal(err)
	}
	cert, key := second.Issue(tlstest.Certificate{})
	tlstest.Replace(t, f.Cert, cert)
	tlstest.Replace(t, f.Key, key)
	tlstest.Replace(t, f.CA, second.PEM())
	now.Store(1)
	_ = (<-lines).Close()
	if err := status(); err != nil {
		t.Errorf("after the change of everything: %v", err)
	}
	if asked.Load() < 2 {
		t.Errorf("asked for settings %d times", asked.Load())
	}
}
