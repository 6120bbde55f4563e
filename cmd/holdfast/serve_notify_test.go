package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manager listens as a service manager does.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// hears returns the next note, "" if none comes in time.
func hears(t *testing.T, l *net.UnixConn, within time.Duration) string {
	t.Helper()
	var buf [4096]byte
	_ = l.SetReadDeadline(time.Now().Add(within))
	n, err := l.Read(buf[:])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// A real server tells when it is ready, that it lives, and that it stops.
func TestServeNotifies(t *testing.T) {
	t.Parallel()
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@holdfast-test-" + filepath.Base(t.TempDir()) + t.Name()} {
		l := manager(t, name)
		p := start(t, []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=2000000"}, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0")
		if got := hears(t, l, patience); !strings.HasPrefix(got, "READY=1\nSTATUS=serving on 127.0.0.1:") {
			t.Errorf("first it says %q", got)
		}
		for range 3 {
			if got := hears(t, l, patience); got != "WATCHDOG=1" {
				t.Errorf("then it says %q", got)
			}
		}
		p.signal(unix.SIGTERM)
		got := ""
		for got = hears(t, l, patience); got == "WATCHDOG=1"; got = hears(t, l, patience) {
		}
		if !strings.HasPrefix(got, "STOPPING=1") {
			t.Errorf("at the end it says %q", got)
		}
		p.expect(0)
	}
}

// Who was not asked to feed a watchdog does not, and nothing that is wrong with
// the manager keeps a server from serving.
func TestServeNotifiesNobody(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "notify")
	l := manager(t, name)
	p := start(t, []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=400000", "WATCHDOG_PID=1"}, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0")
	if got := hears(t, l, patience); !strings.HasPrefix(got, "READY=1") {
		t.Errorf("it says %q", got)
	}
	if got := hears(t, l, time.Second); got != "" {
		t.Errorf("it says %q for another's watchdog", got)
	}
	p.signal(unix.SIGTERM)
	p.expect(0)
	s := newProgram(t, []string{"NOTIFY_SOCKET=" + name + ".none", "WATCHDOG_USEC=1"}, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0").start()
	eventually(t, "a server", func() bool { return strings.Contains(s.stdout.String(), "serving on ") })
	s.says("the service manager cannot be told anything")
	s.signal(unix.SIGTERM)
	s.expect(0)
}

// A loop that does not turn is not vouched for.
func TestNotesOfAHungLoop(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	l := manager(t, name)
	t.Setenv("NOTIFY_SOCKET", name)
	t.Setenv("WATCHDOG_USEC", "40000")
	t.Setenv("WATCHDOG_PID", "")
	var beat atomic.Uint64
	n := openNotes(slog.New(slog.DiscardHandler))
	n.ready("a:1", beat.Load)
	if got := hears(t, l, patience); got != "READY=1\nSTATUS=serving on a:1" {
		t.Errorf("it says %q", got)
	}
	if got := hears(t, l, 200*time.Millisecond); got != "" {
		t.Errorf("it says %q of a loop that stands still", got)
	}
	beat.Add(1)
	if got := hears(t, l, patience); got != "WATCHDOG=1" {
		t.Errorf("it says %q", got)
	}
	if got := hears(t, l, 200*time.Millisecond); got != "" {
		t.Errorf("it says %q again for one turn", got)
	}
	n.close()
	// A number that is none.
	var log bytes.Buffer
	t.Setenv("WATCHDOG_USEC", "soon")
	n = openNotes(slog.New(slog.NewTextHandler(&log, nil)))
	n.ready("a:1", beat.Load)
	n.stopping()
	n.close()
	if !strings.Contains(log.String(), "WATCHDOG_USEC") {
		t.Errorf("log %q", &log)
	}
}
