package drivertest

import (
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends one byte and reports whether it came back in time.
func exchange(t *testing.T, c net.Conn, bound time.Duration) error {
	t.Helper()
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(bound))
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func TestProxyDamage(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	if err := exchange(t, c, time.Minute); err != nil {
		t.Fatalf("undamaged line: %v", err)
	}
	for _, w := range []Way{ToServer, ToClient} {
		p.Stall(w)
		if err := exchange(t, c, 50*time.Millisecond); err == nil {
			t.Fatalf("way %d is stalled, and passed a byte", w)
		}
		p.Restore()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("what was kept back did not come: %v", err)
		}
	}
	p.Delay(ToClient, 50*time.Millisecond)
	began := time.Now()
	if err := exchange(t, c, time.Minute); err != nil || time.Since(began) < 50*time.Millisecond {
		t.Fatalf("delayed line: %v after %v", err, time.Since(began))
	}
	p.Restore()
	p.Reset()
	if err := exchange(t, c, time.Minute); err == nil {
		t.Fatal("the connection was reset, and passed a byte")
	}
	p.Refuse()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		defer c.Close()
		if err := exchange(t, c, time.Minute); err == nil {
			t.Fatal("connections are refused, and one passed a byte")
		}
	}
	p.Restore()
	if err := exchange(t, dial(t, p), time.Minute); err != nil {
		t.Fatalf("restored line: %v", err)
	}
}
