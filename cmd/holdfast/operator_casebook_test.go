package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
	"holdfast/server/tlsfiles/tlstest"
)

// TestCasebookC77_NobodyEndsAnothersLease: who has neither the session's secret
// nor an operator's credential cannot release, renew, cancel, end or take away
// anything of it, hand leadership over, change members or take a backup,
// whatever IDs and tokens were read somewhere; and each try is on record.
func TestCasebookC77_NobodyEndsAnothersLease(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.ca.Write(s.dir, "ops", tlstest.Certificate{CommonName: "ops"})
	srv := s.serve("127.0.0.1:0", "--ca", s.path("ca.pem"), "--operator-cert-name", "ops")
	victim := start(t, s.on(srv), "run", "a/x", "--", "sleep", "1000")
	h := srv.holds(t, "a/x")
	hc := s.http()
	call := func(method, body string) string {
		t.Helper()
		res, err := hc.Post("https://"+srv.addr+"/holdfast.v1.LockService/"+method, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// The session's ID and the token are public; a secret is not.
	guess := `"session":{"id":"` + h.Session + `","secret":"` + strings.Repeat("1", 64) + `"}`
	mine := regexp.MustCompile(`"sessionId":"(\d+)".*"secret":"([0-9a-f]+)"`).FindStringSubmatch(call("OpenSession", `{"ttlMs":60000}`))
	own := `"session":{"id":"` + mine[1] + `","secret":"` + mine[2] + `"}`
	for _, c := range []struct{ method, body, kind string }{
		{"KeepAlive", `{` + guess + `}`, "denied"},
		{"Release", `{` + guess + `,"grant":"` + h.Grant + `"}`, "denied"},
		{"Cancel", `{` + guess + `,"request":{"n":"1"}}`, "denied"},
		{"EndSession", `{` + guess + `}`, "denied"},
		{"Acquire", `{` + guess + `,"request":{"n":"9"},"lock":"a/x"}`, "denied"},
		{"Release", `{` + own + `,"grant":"` + h.Grant + `"}`, "not-held"},
		{"RevokeGrant", `{"lock":"a/x","grant":"` + h.Grant + `","now":true,"by":"root"}`, "denied"},
		{"ExpelSession", `{"sessionId":"` + h.Session + `","by":"root"}`, "denied"},
		{"TransferLeadership", `{}`, "denied"},
		{"RemoveMember", `{"name":"a"}`, "denied"},
		{"AddMember", `{"name":"b"}`, "denied"},
	} {
		if text := call(c.method, c.body); !strings.Contains(text, `"kind":"`+c.kind+`"`) {
			t.Errorf("%s %s: %s, want %s", c.method, c.body, text, c.kind)
		}
	}
	run(t, exitFailure, s.on(srv), "backup", s.path("stolen")).says("only operators may do this")
	run(t, exitFailure, s.on(srv), "session", "end", h.Session).says("only operators may do this")
	if victim.ended() || srv.holds(t, "a/x").Grant != h.Grant {
		t.Fatalf("the lease was ended: %s", victim.stderr)
	}
	records := run(t, 0, s.on(srv), "audit", "-o", "json").stdout.String()
	for _, name := range []string{"revoke", "expel", "transfer", "remove-member", "add-member", "backup"} {
		if !strings.Contains(records, `"call":"`+name+`"`) || strings.Contains(records, `"outcome":"done"`) {
			t.Errorf("no record of a denied %s, or one of a done call:\n%s", name, records)
		}
	}
	if text := srv.stderr.String(); strings.Count(text, "msg=audit call=expel") != 2 {
		t.Errorf("not each denied call is in the node's own log:\n%s", text)
	}
	ops := append(srv.on(), "HOLDFAST_CA="+s.path("ca.pem"), "HOLDFAST_CERT="+s.path("ops.pem"), "HOLDFAST_KEY="+s.path("ops.key"))
	run(t, 0, ops, "session", "end", h.Session)
	victim.expect(exitLost)
}

// http is a client of the JSON API with the client's certificate.
func (s *secured) http() *http.Client {
	s.t.Helper()
	pair, err := tls.LoadX509KeyPair(s.path("client.pem"), s.path("client.key"))
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(readFile(s.path("ca.pem")))) {
		s.t.Fatal("ca.pem holds no certificate")
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// TestCasebookC78_CredentialsDoNotStopExpiry: TLS and credentials are turned on,
// replaced and turned off under sessions that live and sessions that are dead:
// the dead still end in time, the live ones and their locks go on. What the
// service itself puts into its log needs no credential.
func TestCasebookC78_CredentialsDoNotStopExpiry(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	tokens := filepath.Join(s.dir, "tokens")
	tlstest.Replace(t, tokens, []byte("ann:0123456789abcdef\n"))
	plain := []string{"serve", "--data", s.data}
	mutual := append(plain[:3:3], "--cert", s.path("server.pem"), "--key", s.path("server.key"), "--ca", s.path("ca.pem"))
	withTokens := append(mutual[:len(mutual):len(mutual)], "--operator-token-file", tokens, "--operator-cert-name", "ops")
	addr := "127.0.0.1:0"
	long := ""
	for round, args := range [][]string{plain, mutual, withTokens, withTokens, mutual, plain} {
		if round == 3 { // every secret is replaced
			s.ca.Write(s.dir, "server", tlstest.Certificate{CommonName: "second"})
			tlstest.Replace(t, tokens, []byte("bob:fedcba9876543210\n"))
		}
		var o *cluster.Options
		if len(args) > len(plain) {
			o = s.client()
		}
		srv := startSecured(t, o, append(args, "--listen", addr)...)
		addr = srv.addr
		client, err := srv.client()
		if err != nil {
			t.Fatal(err)
		}
		if long == "" {
			long = s.hold(srv, o, "kept", time.Hour)
		}
		if l, ok := srv.lock(t, "kept"); !ok || len(l.Holders) != 1 || l.Holders[0].Grant != long {
			t.Fatalf("round %d: the lock of a session that lives is %+v", round, l)
		}
		// A dead holder of this round, and one who waits behind it.
		dead := fmt.Sprintf("dead/%d", round)
		s.hold(srv, o, dead, time.Second)
		if round > 0 { // and the one that died with the server of the round before
			eventually(t, "the end of a session that was open over the change", func() bool {
				_, held := srv.lock(t, fmt.Sprintf("over/%d", round-1))
				return !held
			})
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		g, err := client.Locker().Acquire(ctx, dead)
		cancel()
		if err != nil {
			t.Fatalf("round %d: behind a dead holder: %v", round, err)
		}
		if waited := time.Since(begun); waited > 10*time.Second {
			t.Errorf("round %d: the dead holder of a lease of 1 s was there for %v", round, waited)
		}
		_ = g.Release(t.Context())
		s.hold(srv, o, fmt.Sprintf("over/%d", round), time.Second)
		_ = client.Close(context.Background())
		srv.signal(unix.SIGTERM)
		srv.expect(0)
	}
}

// hold acquires a lock for a client that is never heard again, and returns the
// grant's number.
func (s *secured) hold(srv *service, o *cluster.Options, lock string, ttl time.Duration) string {
	s.t.Helper()
	scheme, hc := "http://", &http.Client{Timeout: patience}
	if o != nil {
		scheme, hc = "https://", s.http()
	}
	call := func(method, body, want string) []string {
		res, err := hc.Post(scheme+srv.addr+"/holdfast.v1.LockService/"+method, "application/json", strings.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		found := regexp.MustCompile(want).FindStringSubmatch(string(text))
		if found == nil {
			s.t.Fatalf("%s: %s", method, text)
		}
		return found
	}
	me := call("OpenSession", fmt.Sprintf(`{"ttlMs":%d}`, ttl.Milliseconds()), `"sessionId":"(\d+)".*"secret":"([0-9a-f]+)"`)
	return call("Acquire", fmt.Sprintf(`{"session":{"id":"%s","secret":"%s"},"request":{"n":"1"},"lock":%q}`, me[1], me[2], lock), `"number":"(\d+)"`)[1]
}

// TestCertificatesReplacedUnderLoad: server's and clients' certificates, and at
// last the CA, are replaced while clients work: no call fails, no lock is lost,
// and new connections are shown the new certificate.
func TestCertificatesReplacedUnderLoad(t *testing.T) {
	s := newSecured(t)
	srv := s.serve("127.0.0.1:0", "--ca", s.path("ca.pem"))
	worker := start(t, s.on(srv), "run", "kept", "--ttl", "2s", "--", "sleep", "1000")
	grant := srv.holds(t, "kept").Grant
	var calls atomic.Int64
	failed := make(chan error, 8)
	stop := make(chan struct{})
	for i := range 4 {
		o := s.client()
		o.TTL = 5 * time.Second
		client, err := cluster.Dial(t.Context(), srv.addr, o)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		go func() { failed <- work(client, fmt.Sprint("load/", i), stop, &calls) }()
	}
	shown := func() string {
		c := s.http().Transport.(*http.Transport).TLSClientConfig
		conn, err := tls.Dial("tcp", srv.addr, c)
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	second := tlstest.NewCA(t, "the next CA")
	both := append(append([]byte{}, s.ca.PEM()...), second.PEM()...)
	for i, change := range []func(){
		func() { s.writePair(s.ca, "server", "name-0") },
		func() { s.writePair(s.ca, "client", "ann again"); s.writePair(s.ca, "server", "name-1") },
		// Both CAs are trusted before a certificate of the new one is used.
		func() { tlstest.Replace(t, s.path("ca.pem"), both); s.writePair(s.ca, "server", "name-2") },
		func() { s.writePair(second, "client", "ann"); s.writePair(second, "server", "name-3") },
		func() { tlstest.Replace(t, s.path("ca.pem"), second.PEM()); s.writePair(second, "server", "name-4") },
	} {
		before := calls.Load()
		change()
		eventually(t, fmt.Sprintf("certificate %d", i), func() bool { return shown() == fmt.Sprint("name-", i) })
		eventually(t, "calls after the change", func() bool { return calls.Load() > before+20 })
		run(t, 0, s.on(srv), "lock", "get", "kept")
	}
	close(stop)
	for range 4 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if worker.ended() || srv.holds(t, "kept").Grant != grant {
		t.Errorf("a lock was lost: %s", worker.stderr)
	}
	t.Logf("%d calls", calls.Load())
}

func (s *secured) writePair(ca *tlstest.CA, name, common string) {
	s.t.Helper()
	cert, key := ca.Issue(tlstest.Certificate{CommonName: common})
	tlstest.Replace(s.t, s.path(name+".pem"), cert)
	tlstest.Replace(s.t, s.path(name+".key"), key)
}

// work acquires and releases until it is told to stop.
func work(client *cluster.Client, name string, stop chan struct{}, calls *atomic.Int64) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		g, err := client.Locker().Acquire(ctx, name)
		if err == nil {
			err = g.Release(ctx)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("a call failed on a line that nobody cut: %w", err)
		}
		calls.Add(1)
	}
}
