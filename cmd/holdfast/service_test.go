package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
)

// A service is a real server process.
type service struct {
	*program
	addr   string
	client func() (*cluster.Client, error)
}

// startService starts holdfast dev or serve and waits until it serves.
func startService(t *testing.T, args ...string) *service {
	t.Helper()
	return startSecured(t, nil, args...)
}

// startSecured is startService for one whose clients need options.
func startSecured(t *testing.T, o *cluster.Options, args ...string) *service {
	t.Helper()
	p := newProgram(t, nil, args...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s := &service{program: p.start()}
	eventually(t, "the address of the service", func() bool {
		select {
		case <-p.done:
			t.Fatalf("holdfast %q ended: stdout %q, stderr %q", args, p.stdout, p.stderr)
		default:
		}
		_, rest, ok := strings.Cut(p.stdout.String(), "serving on ")
		s.addr, _, _ = strings.Cut(rest, ",")
		return ok && strings.Contains(rest, "\n")
	})
	s.client = sync.OnceValues(func() (*cluster.Client, error) {
		c, err := cluster.Dial(context.Background(), s.addr, o)
		if err == nil {
			t.Cleanup(func() { _ = c.Close(context.Background()) })
		}
		return c, err
	})
	return s
}

// dev starts a service of the test's own.
func dev(t *testing.T, flags ...string) *service {
	t.Helper()
	return startService(t, append([]string{"dev"}, flags...)...)
}

// on is a command line's environment that names the service.
func (s *service) on() []string { return []string{serverVariable + "=" + s.addr} }

// lock shows a lock in the form of lock get -o json, without a process for
// each look; ok is false if there is none.
func (s *service) lock(t *testing.T, name string) (l lockJSON, ok bool) {
	t.Helper()
	client, err := s.client()
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(t.Context(), name, cluster.GetOptions{})
	if isNotFound(err) {
		return l, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return toLockJSON(got, s.addr), true
}

// holds waits until the lock is held, and returns its holder.
func (s *service) holds(t *testing.T, name string) holderJSON {
	t.Helper()
	var h holderJSON
	eventually(t, "a holder of "+name, func() bool {
		l, ok := s.lock(t, name)
		if !ok || len(l.Holders) == 0 {
			return false
		}
		h = l.Holders[0]
		return true
	})
	return h
}

// free waits until nobody holds the lock.
func (s *service) free(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the release of "+name, func() bool {
		l, ok := s.lock(t, name)
		return !ok || len(l.Holders) == 0
	})
}

// A wire is a TCP line to a service that can be cut: nothing passes any more,
// and nobody is told.
type cable struct {
	addr string
	mu   struct {
		sync.Mutex
		cut   chan struct{}
		isCut bool
	}
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{addr: l.Addr().String()}
	c.mu.cut = make(chan struct{})
	t.Cleanup(func() {
		c.cut()
		l.Close()
	})
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			t.Cleanup(func() { near.Close(); far.Close() })
			go c.carry(far, near)
			go c.carry(near, far)
		}
	}()
	return c
}

// carry copies until the cable is cut, and then swallows.
func (c *cable) carry(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-c.mu.cut:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			to.Close()
			return
		}
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.isCut {
		c.mu.isCut = true
		close(c.mu.cut)
	}
}

func (c *cable) on() []string { return []string{serverVariable + "=" + c.addr} }

// create makes an empty file that a command waits for.
func create(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// untilFile is a line of shell that waits for a file without a busy loop.
const untilFile = `until [ -e "$1" ]; do read -t 0.02 _ <>/dev/null || :; sleep 0.02; done; `

// stamp reads nanoseconds since 1970 from a file.
func stamp(t *testing.T, path string) time.Time {
	t.Helper()
	var ns int64
	text := strings.TrimSpace(readFile(path))
	if err := json.Unmarshal([]byte(text), &ns); err != nil {
		t.Fatalf("%s: %q is no time stamp: %v", path, text, err)
	}
	return time.Unix(0, ns)
}

func kill(pid int, s syscall.Signal) { _ = unix.Kill(pid, s) }
