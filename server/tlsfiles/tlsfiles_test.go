package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/server/tlsfiles/tlstest"
)

// rig is a set on files of its own, and what it logged.
type rig struct {
	*Set
	ca  *tlstest.CA
	log *bytes.Buffer
}

func newRig(t *testing.T, role Role, c tlstest.Certificate, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{ca: tlstest.NewCA(t, "the CA"), log: &bytes.Buffer{}}
	var f Files
	f.Cert, f.Key, f.CA = r.ca.Write(t.TempDir(), "it", c)
	o := Options{Role: role, Logger: slog.New(slog.NewTextHandler(r.log, nil))}
	for _, fn := range change {
		fn(&o)
	}
	var err error
	if r.Set, err = Open(f, o); err != nil {
		t.Fatal(err)
	}
	return r
}

// talk makes a connection between two settings, says a word and hears it back,
// and returns what the dialling side saw, and both sides' errors.
func talk(t *testing.T, accept, dial *tls.Config) (state tls.ConnectionState, acceptErr, dialErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			accepted <- err
			return
		}
		defer raw.Close()
		c := tls.Server(raw, accept)
		_, err = io.CopyN(c, c, 4)
		accepted <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	dial = dial.Clone()
	if dial.ServerName == "" {
		dial.ServerName = "127.0.0.1"
	}
	c := tls.Client(raw, dial)
	_, dialErr = c.Write([]byte("word"))
	if dialErr == nil {
		_, dialErr = io.ReadFull(c, make([]byte, 4))
	}
	raw.Close()
	return c.ConnectionState(), <-accepted, dialErr
}

func TestBothSides(t *testing.T) {
	server := newRig(t, Server, tlstest.Certificate{})
	known := newRig(t, Client, tlstest.Certificate{})
	known.ca = server.ca
	known.files.Cert, known.files.Key, known.files.CA = server.ca.Write(t.TempDir(), "client", tlstest.Certificate{CommonName: "ann"})
	state, acceptErr, err := talk(t, server.Server(), known.Client())
	if err != nil || acceptErr != nil {
		t.Fatalf("both sides have certificates of the CA: %v, %v", err, acceptErr)
	}
	if state.Version != tls.VersionTLS13 {
		t.Errorf("version %x", state.Version)
	}
	old := known.Client()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, _, err := talk(t, server.Server(), old); err == nil {
		t.Error("TLS 1.2 was spoken")
	}
	none := known.Client()
	none.GetClientCertificate = nil
	if _, acceptErr, _ := talk(t, server.Server(), none); acceptErr == nil {
		t.Error("a client without a certificate was let in")
	}
	stranger := newRig(t, Client, tlstest.Certificate{})
	foreign := stranger.Client()
	foreign.RootCAs = server.ca.Pool()
	if _, acceptErr, _ := talk(t, server.Server(), foreign); acceptErr == nil {
		t.Error("a client with a certificate of another CA was let in")
	}
	if _, _, err := talk(t, server.Server(), stranger.Client()); err == nil {
		t.Error("a server with a certificate of another CA was believed")
	}
	elsewhere := known.Client()
	elsewhere.ServerName = "elsewhere.example"
	if _, _, err := talk(t, server.Server(), elsewhere); err == nil {
		t.Error("a server with another name was believed")
	}
}

// TestReplace: new connections are shown the new certificate; whatever stands
// in the files while they are replaced, or is wrong with them, breaks nothing.
func TestReplace(t *testing.T) {
	var told []error
	r := newRig(t, Server, tlstest.Certificate{CommonName: "first"}, func(o *Options) {
		o.Changed = func(err error) { told = append(told, err) }
	})
	shown := func() string {
		t.Helper()
		state, _, err := talk(t, withoutClients(r.Set), &tls.Config{RootCAs: r.ca.Pool()})
		if err != nil && len(state.PeerCertificates) == 0 {
			t.Fatal(err)
		}
		return state.PeerCertificates[0].Subject.CommonName
	}
	if got := shown(); got != "first" {
		t.Fatalf("shown %q", got)
	}
	cert, key := r.ca.Issue(tlstest.Certificate{CommonName: "second"})
	expired, expiredKey := r.ca.Issue(tlstest.Certificate{CommonName: "expired", NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	nameless, namelessKey := r.ca.Issue(tlstest.Certificate{CommonName: "nameless", Nameless: true})
	first, firstKey, root := read(t, r.files.Cert), read(t, r.files.Key), read(t, r.files.CA)
	for _, step := range []struct {
		what          string
		cert, key, ca []byte
		wrong, shows  string
	}{
		{"the new certificate beside the old key", cert, firstKey, root, "private key", "first"},
		{"a half of a certificate", cert[:len(cert)/2], firstKey, root, "certificate", "first"},
		{"nothing", nil, nil, nil, "no certificate", "first"},
		{"as it was", first, firstKey, root, "", "first"},
		{"an expired one", expired, expiredKey, root, "expired", "first"},
		{"one without names", nameless, namelessKey, root, "names no host", "first"},
		{"a CA that is none", cert, key, []byte("hello"), "no certificate", "first"},
		{"all of the new", cert, key, root, "", "second"},
	} {
		tlstest.Replace(t, r.files.Cert, step.cert)
		tlstest.Replace(t, r.files.Key, step.key)
		tlstest.Replace(t, r.files.CA, step.ca)
		told = nil
		err := r.Refresh()
		if step.wrong == "" && err != nil || step.wrong != "" && (err == nil || !strings.Contains(err.Error(), step.wrong)) {
			t.Errorf("%s: %v, want %q", step.what, err, step.wrong)
		}
		again := r.Refresh()
		if (again == nil) != (err == nil) {
			t.Errorf("%s, looked at again: %v, was %v", step.what, again, err)
		}
		if len(told) > 1 || err == nil && len(told) == 0 {
			t.Errorf("%s: told %d times", step.what, len(told))
		}
		if got := shown(); got != step.shows {
			t.Errorf("%s: shown %q, want %q", step.what, got, step.shows)
		}
	}
	if err := os.Remove(r.files.Key); err != nil {
		t.Fatal(err)
	}
	if err := r.Refresh(); !errors.Is(err, os.ErrNotExist) || shown() != "second" {
		t.Errorf("without a key file: %v, shown %q", err, shown())
	}
	tlstest.Replace(t, r.files.Key, key)
	if err := r.Refresh(); err != nil {
		t.Errorf("the key is there again: %v", err)
	}
	for _, text := range []string{"certificates were read anew", "changed certificates are not used", "the old certificates and key stay in use"} {
		if !strings.Contains(r.log.String(), text) {
			t.Errorf("the log does not say %q:\n%s", text, r.log)
		}
	}
}

// withoutClients is a server's settings that ask nothing of the client, and
// follow the files.
func withoutClients(s *Set) *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := s.accepting()
		c.ClientAuth = tls.NoClientCert
		return c, nil
	}}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	ca := tlstest.NewCA(t, "the CA")
	cert, key, root := ca.Write(dir, "it", tlstest.Certificate{})
	_, otherKey, _ := ca.Write(dir, "other", tlstest.Certificate{})
	clientOnly, clientKey, _ := ca.Write(dir, "client", tlstest.Certificate{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	serverOnly, serverKey, _ := ca.Write(dir, "server", tlstest.Certificate{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	nameless, namelessKey, _ := ca.Write(dir, "nameless", tlstest.Certificate{Nameless: true})
	locked := filepath.Join(dir, "locked.key")
	tlstest.Replace(t, locked, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	long := filepath.Join(dir, "long")
	tlstest.Replace(t, long, make([]byte, maxBytes+1))
	for _, c := range []struct {
		role Role
		f    Files
		says string
	}{
		{Server, Files{Key: key}, "without its certificate"},
		{Server, Files{Cert: cert}, "without its key"},
		{Server, Files{CA: root}, "are missing"},
		{Server, Files{Cert: cert, Key: key, CA: SystemCA}, "any public authority"},
		{Server, Files{Cert: cert, Key: filepath.Join(dir, "none")}, "no such file"},
		{Server, Files{Cert: cert, Key: otherKey}, "belongs to it"},
		{Server, Files{Cert: cert, Key: locked}, "passphrase"},
		{Server, Files{Cert: key, Key: key}, "no certificate"},
		{Server, Files{Cert: cert, Key: key, CA: key}, "no certificate"},
		{Server, Files{Cert: long, Key: key}, "longer than"},
		{Server, Files{Cert: clientOnly, Key: clientKey}, "serverAuth"},
		{Server, Files{Cert: nameless, Key: namelessKey}, "subjectAltName"},
		{Client, Files{Cert: serverOnly, Key: serverKey, CA: root}, "clientAuth"},
		{Client, Files{Cert: cert, Key: key}, "CA is missing"},
		{Peer, Files{Cert: cert, Key: key}, "CA is missing"},
		{Peer, Files{Cert: serverOnly, Key: serverKey, CA: root}, "clientAuth"},
	} {
		if _, err := Open(c.f, Options{Role: c.role}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %+v: %v, want %q", c.role, c.f, err, c.says)
		}
	}
	for _, f := range []Files{{CA: SystemCA}, {CA: root}, {Cert: cert, Key: key, CA: root}} {
		if _, err := Open(f, Options{Role: Client}); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// TestWarnings: each certificate is spoken of 30, 7 and 1 days before its end,
// and when it has come, once.
func TestWarnings(t *testing.T) {
	now := time.Now()
	end := now.Add(90 * day)
	r := newRig(t, Server, tlstest.Certificate{NotAfter: end}, func(o *Options) {
		o.Now = func() time.Time { return now }
	})
	for _, step := range []struct {
		left   time.Duration
		spoken int
	}{
		{60 * day, 0}, {29 * day, 1}, {28 * day, 0}, {6 * day, 1}, {5 * day, 0}, {time.Hour, 1}, {time.Minute, 0}, {-time.Second, 1}, {-day, 0},
	} {
		now = end.Add(-step.left)
		r.log.Reset()
		r.warn()
		if n := strings.Count(r.log.String(), "certificate="); n != step.spoken {
			t.Errorf("%v before the end: spoken of %d times, want %d:\n%s", step.left, n, step.spoken, r.log)
		}
	}
	now = time.Now()
	expired := newRig(t, Server, tlstest.Certificate{NotBefore: now.Add(-10 * day), NotAfter: now.Add(-day)})
	if text := expired.log.String(); !strings.Contains(text, "EXPIRED") || !strings.Contains(text, "level=ERROR") {
		t.Errorf("an expired certificate at the start: %q", text)
	}
	cert, _ := expired.NotAfter()
	if !cert.Before(now) {
		t.Errorf("it expires at %v", cert)
	}
	brief := newRig(t, Server, tlstest.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(23 * time.Hour)})
	if brief.log.Len() != 0 {
		t.Errorf("a fresh certificate that lives for a day: %s", brief.log)
	}
}

// TestPeers: a certificate names its member, on both sides.
func TestPeers(t *testing.T) {
	a := newRig(t, Peer, tlstest.Certificate{DNSNames: []string{"a"}})
	b := newRig(t, Peer, tlstest.Certificate{DNSNames: []string{"b"}})
	b.files.Cert, b.files.Key, b.files.CA = a.ca.Write(t.TempDir(), "b", tlstest.Certificate{DNSNames: []string{"b"}})
	pa, pb := NewPeerTLS(a.Set), NewPeerTLS(b.Set)
	if state, acceptErr, err := talk(t, pa.Server(), pb.Client("a")); err != nil || acceptErr != nil || Verify(state, "a") != nil {
		t.Fatalf("b dials a: %v, %v, %v", err, acceptErr, Verify(state, "a"))
	}
	if state, _, err := talk(t, pa.Server(), pb.Client("c")); err == nil {
		t.Error("a was taken for c")
	} else if Verify(state, "c") == nil {
		t.Error("Verify takes a for c")
	}
	if _, acceptErr, err := talk(t, pa.Server(), pb.Client("")); err != nil || acceptErr != nil {
		t.Errorf("b asks whoever is there: %v, %v", err, acceptErr)
	}
	stranger := newRig(t, Peer, tlstest.Certificate{DNSNames: []string{"a"}})
	ps := NewPeerTLS(stranger.Set)
	for _, name := range []string{"a", ""} {
		if _, _, err := talk(t, withoutClients(stranger.Set), pb.Client(name)); err == nil {
			t.Errorf("asked for %q, a member of another CA was believed", name)
		}
		if _, acceptErr, _ := talk(t, pa.Server(), ps.Client(name)); acceptErr == nil {
			t.Errorf("asking for %q, a member of another CA was let in", name)
		}
	}
	for _, name := range []string{"a", ""} {
		if err := Verify(tls.ConnectionState{}, name); err == nil {
			t.Errorf("asked for %q: without a certificate it is a member", name)
		}
	}
}
