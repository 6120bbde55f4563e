package server

import (
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"

	"holdfast/server/peer"
	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
)

// A handshake that fails again and again is told once, with whose it is, why,
// and what to do; the ports of the connections do not make it news.
func TestFailedHandshakesAreToldOnce(t *testing.T) {
	dir, ca, strangers := t.TempDir(), tlstest.NewCA(t, "members"), tlstest.NewCA(t, "strangers")
	open := func(ca *tlstest.CA, name string) *tlsfiles.PeerTLS {
		var f tlsfiles.Files
		f.Cert, f.Key, f.CA = ca.Write(dir, name, tlstest.Certificate{DNSNames: []string{name}})
		set, err := tlsfiles.Open(f, tlsfiles.Options{Role: tlsfiles.Peer})
		if err != nil {
			t.Fatal(err)
		}
		return tlsfiles.NewPeerTLS(set)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	a := peer.New(peer.Config{Listener: l, Logger: slog.New(slog.NewTextHandler(log, nil)), ListenTLS: open(ca, "a").Server})
	defer a.Close()
	fails := func(c *tls.Config) {
		t.Helper()
		for range 5 {
			raw, err := net.Dial("tcp", a.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if c == nil {
				_, _ = raw.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
			} else {
				conn := tls.Client(raw, c)
				if err = conn.HandshakeContext(t.Context()); err == nil {
					_, err = conn.Read(make([]byte, 1)) // the other side's refusal
				}
				if err == nil {
					t.Fatal("it was let in")
				}
			}
			_, _ = raw.Read(make([]byte, 1))
			raw.Close()
		}
	}
	wrong := open(strangers, "b").Client("")
	wrong.VerifyConnection = nil
	fails(wrong)                            // b is refused here
	fails(open(strangers, "c").Client("a")) // c refuses this node
	fails(nil)                              // no TLS at all
	for _, want := range [][]string{
		{"member=b", "this node does not accept the member's certificate", "unknown authority", "from=127.0.0.1"},
		{"the member does not accept this node's certificate"},
		{"the other side does not speak TLS"},
	} {
		eventually(t, "the line "+want[0], func() bool { return strings.Contains(log.String(), want[0]) })
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, want[0]) {
				for _, text := range want[1:] {
					if !strings.Contains(line, text) {
						t.Errorf("%q is not in %s", text, line)
					}
				}
			}
		}
	}
	if n := strings.Count(log.String(), "TLS handshake failed"); n != 3 {
		t.Errorf("told %d times, want 3:\n%s", n, log)
	}
}
