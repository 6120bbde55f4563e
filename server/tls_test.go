package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// secured is a server with TLS, and its files.
type secured struct {
	*world
	ca    *tlstest.CA
	files tlsfiles.Files
	dir   string
}

func startSecured(t *testing.T, mutual bool, change ...func(*Config)) *secured {
	t.Helper()
	s := &secured{ca: tlstest.NewCA(t, "the CA"), dir: t.TempDir()}
	s.files.Cert, s.files.Key, s.files.CA = s.ca.Write(s.dir, "server", tlstest.Certificate{CommonName: "first"})
	files := s.files
	if !mutual {
		files.CA = ""
	}
	s.world = start(t, append(change, func(c *Config) {
		c.TLS, c.certificatesEvery = files, 5*time.Millisecond
	})...)
	return s
}

// client is an HTTP client that trusts the CA; with a name it shows a
// certificate of that name.
func (s *secured) client(name string, http2 bool) *http.Client {
	s.t.Helper()
	p := new(http.Protocols)
	p.SetHTTP2(http2)
	p.SetHTTP1(!http2)
	tr := &http.Transport{Protocols: p, TLSClientConfig: s.dialing(name)}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

func (s *secured) dialing(name string) *tls.Config {
	s.t.Helper()
	c := &tls.Config{RootCAs: s.ca.Pool()}
	if name != "" {
		cert, key := s.ca.Issue(tlstest.Certificate{CommonName: name, DNSNames: []string{name + ".example"}})
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			s.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func (s *secured) lockService(name string, opts ...connect.ClientOption) holdfastv1connect.LockServiceClient {
	return holdfastv1connect.NewLockServiceClient(s.client(name, true), "https://"+s.Addr(), append(opts, wire.Limits())...)
}

// TestTLSOnEveryProtocol: HTTP/2 for connect, gRPC and gRPC-Web, HTTP/1.1 for
// JSON and pages, over one port.
func TestTLSOnEveryProtocol(t *testing.T) {
	t.Parallel()
	for _, mutual := range []bool{false, true} {
		t.Run(fmt.Sprint("mutual=", mutual), func(t *testing.T) {
			t.Parallel()
			s := startSecured(t, mutual)
			name := ""
			if mutual {
				name = "ann"
			}
			for what, opts := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}} {
				if _, err := s.lockService(name, opts...).GetStatus(t.Context(), connect.NewRequest(&holdfastv1.GetStatusRequest{})); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			cc, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(s.dialing(name))))
			if err != nil {
				t.Fatal(err)
			}
			defer cc.Close()
			if err := cc.Invoke(t.Context(), holdfastv1connect.LockServiceGetStatusProcedure, &holdfastv1.GetStatusRequest{}, &holdfastv1.GetStatusResponse{}); err != nil {
				t.Errorf("grpc-go: %v", err)
			}
			for _, http2 := range []bool{false, true} {
				c := s.client(name, http2)
				res, err := c.Post("https://"+s.Addr()+"/holdfast.v1.LockService/GetStatus", "application/json", strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != 200 || !strings.Contains(string(body), `"role":"leader"`) || (res.ProtoMajor == 2) != http2 {
					t.Errorf("JSON over %s: %d %s", res.Proto, res.StatusCode, body)
				}
			}
			if !mutual {
				return
			}
			if _, err := s.lockService("").GetStatus(t.Context(), connect.NewRequest(&holdfastv1.GetStatusRequest{})); err == nil {
				t.Error("a client without a certificate was served")
			}
		})
	}
}

// TestTLSLetsOthersIn: with TLS the port need not be on loopback, and a Host of
// any name is served, because the certificate has no name that an attacker
// chose. Without, both are refused.
func TestTLSLetsOthersIn(t *testing.T) {
	t.Parallel()
	s := startSecured(t, false, func(c *Config) { c.Listen = "0.0.0.0:0" })
	_, port, _ := net.SplitHostPort(s.Addr())
	c := s.client("", false)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "locks.example:7433"
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	_, err = Start(t.Context(), Config{Listen: "0.0.0.0:0", Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "give a certificate") {
		t.Errorf("without TLS: %v", err)
	}
	_, err = Start(t.Context(), Config{Listen: "127.0.0.1:0", Dir: t.TempDir(), TLS: tlsfiles.Files{Cert: s.files.Cert}})
	if err == nil || !strings.Contains(err.Error(), "without its key") {
		t.Errorf("a certificate without its key: %v", err)
	}
}

// TestTLSCertificateReplaced: connections that stand go on, new ones are shown
// the new certificate, and a broken pair changes nothing and is counted.
func TestTLSCertificateReplaced(t *testing.T) {
	t.Parallel()
	s := startSecured(t, false)
	stands := s.lockService("")
	call := func() error {
		_, err := stands.GetStatus(t.Context(), connect.NewRequest(&holdfastv1.GetStatusRequest{}))
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		c, err := tls.Dial("tcp", s.Addr(), s.dialing(""))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	metric := func(line string) bool {
		res, err := s.client("", true).Get("https://" + s.Addr() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return strings.Contains(string(body), line)
	}
	end := time.Now().Add(40 * 24 * time.Hour).Truncate(time.Second)
	cert, key := s.ca.Issue(tlstest.Certificate{CommonName: "second", NotAfter: end})
	tlstest.Replace(t, s.files.Cert, cert)
	s.until("the broken pair to be seen", func() bool {
		return metric(`holdfast_certificate_renewals_total{result="refused",use="server"} 1`)
	})
	if got := shown(); got != "first" {
		t.Errorf("while the key is the old one, %q is shown", got)
	}
	tlstest.Replace(t, s.files.Key, key)
	s.until("the new certificate", func() bool { return shown() == "second" })
	if err := call(); err != nil {
		t.Errorf("a connection that stood: %v", err)
	}
	if line := fmt.Sprintf(`holdfast_certificate_expiry_timestamp_seconds{file="cert",use="server"} %v`, float64(end.Unix())); !metric(line) {
		t.Errorf("no metric %s", line)
	}
}

// TestTLSAndStalls: a drain sees through TLS: what had reached this machine is
// read before anything expires, and the drain ends.
func TestTLSAndStalls(t *testing.T) {
	t.Parallel()
	s := startSecured(t, false)
	rpc := s.lockService("")
	opened, err := rpc.OpenSession(t.Context(), connect.NewRequest(&holdfastv1.OpenSessionRequest{TtlMs: 60_000}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := rpc.Watch(ctx, connect.NewRequest(&holdfastv1.WatchRequest{}))
	if err != nil || !watch.Receive() {
		t.Fatal(err)
	}
	_ = opened
	done := make(chan struct{})
	s.Server.drain(func() { close(done) })
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the drain does not end")
	}
	if n := len(s.log.lines("after a stall all connections were read")); n != 1 {
		t.Errorf("the drain gave up; log:\n%s", s.log)
	}
}
