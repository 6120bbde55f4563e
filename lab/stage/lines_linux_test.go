package stage

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// pair is a line of an in-process worker, and its other end.
func pair(t *testing.T, l *lines) (worker, service net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if worker, err = l.dial(t.Context(), "tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if service, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { worker.Close(); service.Close() })
	return worker, service
}

// nothing makes sure that conn brings nothing, not even its end, for a while.
func nothing(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if n, err := conn.Read(make([]byte, 10)); n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a line that stands still brought %d bytes, %v", n, err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func TestALineStandsStill(t *testing.T) {
	l := &lines{still: newStillness()}
	worker, service := pair(t, l)
	if err := l.still.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	// To the service: neither bytes nor the end.
	go func() {
		_, _ = io.WriteString(worker, "hello")
	}()
	nothing(t, service)
	// To the worker.
	var came atomic.Bool
	read := make(chan string, 1)
	go func() {
		b := make([]byte, 10)
		n, _ := worker.Read(b)
		came.Store(true)
		read <- string(b[:n])
	}()
	if _, err := io.WriteString(service, "there"); err != nil {
		t.Fatal(err)
	}
	nothing(t, service)
	if came.Load() {
		t.Error("the worker read while it stood still")
	}
	l.still.thaw()
	if got := <-read; got != "there" {
		t.Errorf("the worker read %q", got)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(service, b); err != nil || string(b) != "hello" {
		t.Errorf("the service read %q, %v", b, err)
	}
}

// TestALineClosedInStillness: this side is free at once; the other side hears
// nothing, as of a process that is stopped.
func TestALineClosedInStillness(t *testing.T) {
	l := &lines{still: newStillness()}
	worker, service := pair(t, l)
	if err := l.still.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	blocked := make(chan error, 1)
	go func() {
		_, err := worker.Write([]byte("x"))
		blocked <- err
	}()
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-blocked; err == nil {
		t.Error("a write to a closed line succeeded")
	}
	nothing(t, service)
	l.still.thaw()
	if n, err := service.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the stillness: %d, %v", n, err)
	}
}

func TestACutLine(t *testing.T) {
	l := &lines{still: newStillness()}
	worker, service := pair(t, l)
	if err := l.still.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.still.kill()
	l.cut()
	if _, err := worker.Write([]byte("goodbye")); err == nil {
		t.Error("a write to a line that was cut succeeded")
	}
	if b, _ := io.ReadAll(service); len(b) > 0 {
		t.Errorf("over a line that was cut came %q", b)
	}
	if _, err := l.dial(t.Context(), "tcp", service.LocalAddr().String()); err == nil {
		t.Error("a dead worker dials")
	}
	if l.still.enter() {
		t.Error("a dead worker begins something")
	}
}

func TestTheClockStandsStill(t *testing.T) {
	s := newStillness()
	if err := s.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	at, began := s.clock(), time.Now()
	eventually(t, "a moment", func() bool { return time.Since(began) > 20*time.Millisecond })
	if now := s.clock(); now != at {
		t.Errorf("the clock went from %v to %v", at, now)
	}
	s.thaw()
	if now := s.clock(); now < at+20*time.Millisecond {
		t.Errorf("after the stillness the clock shows %v, and before %v: it must jump", now, at)
	}
}
