package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
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

// A client that asks and does not read is cut off, as the streams are: each of
// its answers may be as long as a message, and it can ask for any number.
func TestAnswersThatNobodyReadsAreCut(t *testing.T) {
	for _, before := range []int{0, 2} {
		w := start(t)
		w.service.slowAfter = 500 * time.Millisecond
		for i := range 200 {
			if status, body := w.json("Put", fmt.Sprintf(`{"lock":"l%d","value":"%s"}`, i, strings.Repeat("AAAA", 1365))); status != 200 {
				t.Fatalf("%d %s", status, body)
			}
		}
		c, err := net.Dial("tcp", w.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const body = `{"pageSize":1000}`
		request := fmt.Sprintf("POST /holdfast.v1.LockService/ListLocks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		answers := bufio.NewReader(c)
		for range before {
			// The limit is one for each answer, not for the connection.
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, res.Body); err != nil || n < 1<<20 {
				t.Fatalf("%d bytes, %v", n, err)
			}
			pause := time.NewTimer(w.service.slowAfter * 3 / 2)
			<-pause.C
		}
		if _, err := io.WriteString(c, strings.Repeat(request, 64)); err != nil {
			t.Fatal(err)
		}
		local := c.LocalAddr().String()
		w.until("the connection is closed", func() bool {
			for _, open := range w.conns.list() {
				if open.RemoteAddr().String() == local {
					return false
				}
			}
			return true
		})
	}
}
