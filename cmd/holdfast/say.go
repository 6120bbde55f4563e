package main

import (
	"fmt"
	"io"
	"time"
)

// A sayer prints a program's own messages without ever waiting for their
// reader: a full pipe behind stderr must not keep a wrapper from ending its
// command in time. What does not fit is dropped.
type sayer struct {
	lines chan string
	done  chan struct{}
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
	select {
	case t.lines <- "holdfast: " + printableLines(fmt.Sprintf(format, args...)) + "\n":
	default:
	}
}

// close prints what is left, for at most a second. say must not be called
// after it.
func (t *sayer) close() {
	close(t.lines)
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
	}
}
