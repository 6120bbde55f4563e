package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// As many connections as the process may have open files would leave none for
// the log, and a log that cannot go on stops the node.
func TestConnectionsLeaveFilesForTheLog(t *testing.T) {
	for limit, want := range map[uint64]int{0: 0, 64: 32, 1024: 960, 1<<64 - 1: 1 << 20} {
		if n := connsWithin(limit); n != want {
			t.Errorf("%d connections within %d files, want %d", n, limit, want)
		}
	}
	w := start(t)
	if w.conns.most <= 0 {
		t.Fatalf("at most %d connections", w.conns.most)
	}
	w.conns.mu.Lock()
	w.conns.most = len(w.conns.all) + 3
	w.conns.mu.Unlock()
	var open []net.Conn
	answers := func() (string, error) {
		c, err := net.Dial("tcp", w.Addr())
		if err != nil {
			return "", err
		}
		open = append(open, c)
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(patience))
		var first [12]byte
		_, err = io.ReadFull(c, first[:])
		return string(first[:]), err
	}
	for range 3 {
		if text, err := answers(); err != nil || text != "HTTP/1.1 200" {
			t.Fatalf("%q, %v", text, err)
		}
	}
	for range 2 {
		if text, err := answers(); err == nil {
			t.Fatalf("one connection too many was answered: %q", text)
		}
	}
	if n := len(w.log.lines(`"level":"WARN"`, "connections")); n != 1 {
		t.Errorf("%d records, want one", n)
	}
	open[0].Close()
	w.until("there is room again", func() bool {
		text, err := answers()
		return err == nil && strings.HasSuffix(text, "200")
	})
	for _, c := range open {
		c.Close()
	}
}
