package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
)

// secured are the files of a server with mutual TLS and of its clients.
type secured struct {
	t    *testing.T
	ca   *tlstest.CA
	dir  string
	data string
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{t: t, ca: tlstest.NewCA(t, "the CA"), dir: t.TempDir()}
	s.data = filepath.Join(s.dir, "data")
	s.ca.Write(s.dir, "server", tlstest.Certificate{CommonName: "first"})
	s.ca.Write(s.dir, "client", tlstest.Certificate{CommonName: "ann"})
	return s
}

func (s *secured) path(name string) string { return filepath.Join(s.dir, name) }

// serve starts a server with the certificate, and further flags.
func (s *secured) serve(listen string, flags ...string) *service {
	s.t.Helper()
	return startSecured(s.t, s.client(), append([]string{
		"serve", "--data", s.data, "--listen", listen, "--cert", s.path("server.pem"), "--key", s.path("server.key"),
	}, flags...)...)
}

// flags are a command's, of a client with a certificate.
func (s *secured) flags() []string {
	return []string{"--ca", s.path("ca.pem"), "--cert", s.path("client.pem"), "--key", s.path("client.key")}
}

// on is a command's environment that names the service and the files.
func (s *secured) on(srv *service) []string {
	return append(srv.on(), "HOLDFAST_CA="+s.path("ca.pem"), "HOLDFAST_CERT="+s.path("client.pem"), "HOLDFAST_KEY="+s.path("client.key"))
}

// client is how a client of the library speaks to the server.
func (s *secured) client() *cluster.Options {
	s.t.Helper()
	set, err := tlsfiles.Open(tlsfiles.Files{Cert: s.path("client.pem"), Key: s.path("client.key"), CA: s.path("ca.pem")}, tlsfiles.Options{Role: tlsfiles.Client})
	if err != nil {
		s.t.Fatal(err)
	}
	return &cluster.Options{TLSNow: set.Client}
}

// TestTLSCommands: each command that talks to a server does so over TLS, by
// flags and by variables, and says what to do when that fails.
func TestTLSCommands(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	other := tlstest.NewCA(t, "another CA")
	other.Write(s.dir, "foreign", tlstest.Certificate{}) // writes ca.pem, too
	tlstest.Replace(t, s.path("otherca.pem"), other.PEM())
	tlstest.Replace(t, s.path("ca.pem"), s.ca.PEM())
	srv := s.serve("127.0.0.1:0", "--ca", s.path("ca.pem"))
	plain := dev(t)

	worker := start(t, s.on(srv), "run", "invoices", "--", "sleep", "1000")
	grant := srv.holds(t, "invoices").Grant
	for _, args := range [][]string{{"lock", "list"}, {"lock", "get", "invoices"}, {"session", "list"}} {
		byFlags := run(t, 0, srv.on(), append(args, s.flags()...)...)
		byVariables := run(t, 0, s.on(srv), args...)
		for _, p := range []*program{byFlags, byVariables} {
			if !strings.Contains(p.stdout.String(), "invoices") {
				t.Errorf("%q says %q", args, p.stdout)
			}
		}
	}
	run(t, 0, s.on(srv), "lock", "revoke", "invoices", "--token", grant, "--now")
	worker.expect(exitLost)

	ca := []string{"--ca", s.path("ca.pem")}
	for _, c := range []struct {
		what  string
		on    []string
		flags []string
		code  int
		says  string
	}{
		{"a plain client", srv.on(), nil, exitUnreachable, "the server speaks TLS"},
		{"a plain server", plain.on(), ca, exitUnreachable, "the server does not speak TLS"},
		{"no certificate", srv.on(), ca, exitUnreachable, "give one with its key (--cert FILE --key FILE"},
		{"another CA", srv.on(), []string{"--ca", s.path("otherca.pem")}, exitUnreachable, "give the right one (--ca FILE"},
		{"a certificate of another CA", srv.on(), append(ca[:2:2], "--cert", s.path("foreign.pem"), "--key", s.path("foreign.key")), exitUnreachable, "use a certificate of its CA"},
		{"no CA", srv.on(), s.flags()[2:], exitUsage, "--cert and --key are given without --ca"},
		{"no key", srv.on(), s.flags()[:4], exitUsage, "only one is given"},
		{"no file", srv.on(), []string{"--ca", s.path("none")}, exitUsage, "no such file"},
		{"another's key", srv.on(), append(ca[:2:2], "--cert", s.path("client.pem"), "--key", s.path("server.key")), exitUsage, "belongs to it"},
	} {
		for _, args := range [][]string{{"lock", "list"}, {"run", "x", "--", "true"}} {
			dash := len(args)
			if args[0] == "run" {
				dash = 2
			}
			line := append(append(append([]string{}, args[:dash]...), c.flags...), args[dash:]...)
			t.Run(c.what+", "+args[0], func(t *testing.T) {
				t.Parallel()
				run(t, c.code, c.on, line...).says(c.says)
			})
		}
	}
}

func TestServeTLSRefusals(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.ca.Write(s.dir, "old", tlstest.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	pair := []string{"--cert", s.path("server.pem"), "--key", s.path("server.key")}
	for _, c := range []struct {
		flags []string
		code  int
		says  string
	}{
		{pair[:2], exitUsage, "--cert is given without --key"},
		{pair[2:], exitUsage, "--key is given without --cert"},
		{[]string{"--ca", s.path("ca.pem")}, exitUsage, "--ca is given without --cert and --key"},
		{append([]string{"--ca", "system"}, pair...), exitUsage, "any public authority"},
		{[]string{"--listen", "0.0.0.0:0"}, exitUsage, "want --cert and --key"},
		{[]string{"--cert", s.path("server.pem"), "--key", s.path("client.key")}, exitFailure, "belongs to it"},
	} {
		run(t, c.code, nil, append([]string{"serve", "--data", s.data, "--listen", "127.0.0.1:0"}, c.flags...)...).says(c.says)
	}
	srv := startSecured(t, nil, "serve", "--data", s.data, "--listen", "0.0.0.0:0", "--cert", s.path("old.pem"), "--key", s.path("old.key"))
	srv.says("EXPIRED", s.path("old.pem"))
	srv.signal(unix.SIGTERM)
	srv.expect(0)
	if _, err := os.Stat(s.data); err != nil {
		t.Error(err)
	}
}

// TestOperatorCommands: with credentials configured, the commands that take
// something from others need one.
func TestOperatorCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		tlstest.Replace(t, path, []byte(text))
		return path
	}
	tokens := write("tokens", "ann:0123456789abcdef\nbob:fedcba9876543210\n")
	mine, bare := write("mine", "ann:0123456789abcdef\n"), write("bare", "fedcba9876543210")
	srv := startService(t, "serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--operator-token-file", tokens)
	worker := start(t, srv.on(), "run", "invoices", "--", "sleep", "1000")
	h := srv.holds(t, "invoices")
	revoke := []string{"lock", "revoke", "invoices", "--token", h.Grant, "--now"}
	for _, args := range [][]string{revoke, {"session", "end", h.Session}} {
		run(t, exitFailure, srv.on(), args...).says("only operators may do this", "--operator-token-file")
		run(t, exitFailure, srv.on(), append(args, "--operator-token-file", write("wrong", "0123456789abcdee"))...).says("only operators may do this")
	}
	for _, args := range [][]string{{"backup", filepath.Join(dir, "b")}, {"cluster", "remove", "n9"}, {"cluster", "transfer"}} {
		run(t, exitFailure, srv.on(), args...).says("only operators may do this", "--operator-token-file")
	}
	run(t, 0, srv.on(), "backup", filepath.Join(dir, "b"), "--operator-token-file", mine)
	run(t, exitMissing, srv.on(), "cluster", "remove", "n9", "--operator-token-file", mine)
	run(t, exitUsage, srv.on(), append(revoke, "--operator-token-file", tokens)...).says("holds several tokens")
	run(t, exitUsage, srv.on(), append(revoke, "--operator-token-file", write("none", "#\n"))...).says("holds no token")
	run(t, exitUsage, []string{serverVariable + "=locks.example:7433"}, append(revoke, "--operator-token-file", mine)...).says("in the clear")
	if worker.ended() {
		t.Fatalf("the holder has ended: %s", worker.stderr)
	}
	run(t, 0, append(srv.on(), "HOLDFAST_OPERATOR_TOKEN_FILE="+mine), revoke...)
	worker.expect(exitLost)
	next := start(t, srv.on(), "run", "invoices", "--", "sleep", "1000")
	id := srv.holds(t, "invoices").Session
	run(t, 0, srv.on(), "session", "end", id, "--operator-token-file", bare)
	next.expect(exitLost)
}
