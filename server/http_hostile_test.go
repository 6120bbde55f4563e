package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What is small on the line and long when it is unpacked is unpacked as far as
// a message may be long, and no further.
func TestABombIsNotUnpackedToItsEnd(t *testing.T) {
	w := start(t)
	const length = 64 << 20
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, length)); err != nil {
		t.Fatal(err)
	}
	z.Close()
	status, body := w.ask(http.MethodPost, "/holdfast.v1.LockService/GetStatus", bomb.String(), func(r *http.Request) {
		r.Header.Set("Content-Encoding", "gzip")
	})
	if status != http.StatusTooManyRequests || !strings.Contains(body, "4194304") || strings.Contains(body, "67108864") {
		t.Errorf("%d %s: want a refusal that names the limit, and not the length, which nobody should have counted", status, body)
	}
}

// The header of a stream of events can be asked for alone, and the connection
// serves the next request.
func TestHeadOfAStreamOfEventsEnds(t *testing.T) {
	w := start(t)
	c, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "HEAD /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	all, err := io.ReadAll(bufio.NewReader(c))
	if err != nil || !strings.Contains(string(all), "text/event-stream") || !strings.HasSuffix(string(all), "ok\n") {
		t.Errorf("%q, %v", all, err)
	}
}

// A body that nobody asked for, and that does not come, holds no connection
// for ever, whatever the request is.
func TestBodiesThatNobodyReadsAreCut(t *testing.T) {
	for _, r := range []struct {
		name, method, host string
		length             int64
	}{
		{"GET", "GET", "localhost", 10}, {"GET in chunks", "GET", "localhost", -1}, {"another host", "POST", "evil.example", 10},
	} {
		c := &deadlines{recorder: recorder{header: http.Header{}}}
		req, _ := http.NewRequestWithContext(t.Context(), r.method, "/", io.NopCloser(strings.NewReader("")))
		req.Host, req.ContentLength = r.host, r.length
		s := &Server{}
		s.guards(true, http.NotFoundHandler()).ServeHTTP(c, req)
		if c.read.IsZero() || time.Until(c.read) > bodyWithin {
			t.Errorf("%s: deadline %v", r.name, c.read)
		}
	}
}
