package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/driver"
)

func TestBadAddresses(t *testing.T) {
	for _, c := range []struct{ list, says string }{
		{"", "is empty"},
		{"127.0.0.1", "missing port"},
		{"127.0.0.1:", "port \"\""},
		{"127.0.0.1:0", "1 to 65535"},
		{"127.0.0.1:65536", "1 to 65535"},
		{"127.0.0.1:http", "1 to 65535"},
		{":7433", "no host"},
		{"http://127.0.0.1:7433", "scheme \"http\""},
		{"::1:7433", "too many colons"},
		{"a b:1", "no host name"},
		{"user@host:1", "no host name"},
		{"127.0.0.1:1,", "is empty"},
		{"127.0.0.1:1,127.0.0.1:1", "twice"},
		{strings.Repeat("h:1,", 64) + "h:2", "twice"},
	} {
		_, err := Dial(t.Context(), c.list, nil)
		if driver.KindOf(err) != driver.Invalid || driver.OutcomeOf(err) != driver.No || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want an error that says %q", c.list, err, c.says)
		}
	}
	got, err := parseEndpoints(" [::1]:7433 , db.example:1,10.0.0.1:65535")
	if err != nil || len(got) != 3 || got[0] != "[::1]:7433" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestBadOptionsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	dialled := false
	o := &Options{TTL: 10 * time.Second, Margin: 10 * time.Second, Dialer: func(context.Context, string, string) (net.Conn, error) {
		dialled = true
		return nil, errors.New("no")
	}}
	_, err := Dial(t.Context(), "127.0.0.1:1", o)
	if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "margin < TTL") || dialled {
		t.Errorf("got %v, dialled %v", err, dialled)
	}
}

func TestDialSaysWhyEachServerDidNotAnswer(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	dead := deadAddr(t)
	addrs := []string{dead, web.Listener.Addr().String(), secure.Listener.Addr().String()}
	l := line(t, addrs...)
	var err error
	waitFor(t, "an error that names every server", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err = l.stream(ctx, nil); driver.KindOf(err) != driver.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		for _, says := range append(addrs, "connection refused", "no lock service answered") {
			if !strings.Contains(err.Error(), says) {
				return false
			}
		}
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, dead, nil)
	if driver.KindOf(err) != driver.Unavailable || driver.OutcomeOf(err) != driver.No || !strings.Contains(err.Error(), dead) {
		t.Errorf("got %v", err)
	}
}

func TestDeadEndpointsArePassedOver(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	// One that accepts and never answers.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	p := newCutter(t, srv.addr)
	c := dial(t, strings.Join([]string{deadAddr(t), mute.Addr().String(), p.Addr()}, ","), &Options{TTL: 3 * time.Second})
	g := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "x"))
	for range 2 {
		p.Reset()
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if g.State() == holdfast.StateLost {
		t.Errorf("lost over dead endpoints: %v", g.Cause())
	}
	if err := g.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// The client's side of TLS, with a server of the library's; see tls_test.go for
// our own.
func TestTLSIsSpokenWhenAskedFor(t *testing.T) {
	t.Parallel()
	f := &fake{t: t}
	f.mu.sessions, f.mu.changed = make(map[string]uint64), make(chan struct{})
	srv := httptest.NewUnstartedServer(f.handler())
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	roots := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c := dial(t, "127.0.0.1:"+port, &Options{TLS: &tls.Config{RootCAs: roots}})
	g := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "x"))
	if err := g.Release(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := Dial(ctx, "127.0.0.1:"+port, &Options{TLS: &tls.Config{}}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an untrusted certificate: %v", err)
	}
}
