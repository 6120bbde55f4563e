package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// A sayer prints a program's own messages without ever waiting for their
// reader: a full pipe behind stderr must not keep a wrapper from ending its
// command in time. What does not fit is dropped.
type sayer struct {
	mu     sync.RWMutex // held for reading while something is said
	closed bool
	lines  chan string
	done   chan struct{}
}

func newSayer(w io.Writer) *sayer {
	t := &sayer{lines: make(chan string, 64), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		for line := range t.lines {
			withoutTTOU(func() { _, _ = io.WriteString(w, line) })
		}
	}()
	return t
}

// say prints one message.
func (t *sayer) say(format string, args ...any) {
	_, _ = t.Write([]byte("holdfast: " + printableLines(fmt.Sprintf(format, args...)) + "\n"))
}

// Write implements io.Writer for what is a message with its name and line end
// already. What comes after close is dropped.
func (t *sayer) Write(line []byte) (int, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return len(line), nil
	}
	select {
	case t.lines <- string(line):
	default:
	}
	return len(line), nil
}

// close prints what is left, for at most a second.
func (t *sayer) close() {
	t.mu.Lock()
	t.closed = true
	close(t.lines)
	t.mu.Unlock()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
	}
}
