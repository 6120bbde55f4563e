package lab

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A client that asks on and on and reads no answer is cut off.
func TestReadersWhoDoNotReadAreCut(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *Config) { c.InProcess, c.hooks.writeWithin = true, 200*time.Millisecond })
	conn, err := net.Dial("tcp", b.lab.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	calls := strings.Repeat("GET /lab/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 100)
	cut := make(chan error)
	go func() {
		for {
			if _, err := io.WriteString(conn, calls); err != nil {
				cut <- err
				return
			}
		}
	}()
	select {
	case <-cut:
	case <-time.After(patience):
		t.Errorf("after %v the connection is still held", patience)
		conn.Close()
		<-cut
	}
	eventually(t, "the end of the last answer", func() bool { return b.lab.serving.Load() == 0 })
}
