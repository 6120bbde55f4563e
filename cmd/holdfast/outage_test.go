package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// A follower that names the leader is left at once: nothing has gone away. A
// server that closes the line has, and so has one that was left after a while.
func TestOutageIsNoMoveToTheLeader(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	var out strings.Builder
	o := &outage{w: &out}
	open := func() (mine, theirs net.Conn) {
		t.Helper()
		c, err := o.dial(context.Background(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, <-accepted
	}
	mine, _ := open()
	mine.(*lookedAt).since = time.Now() // however long this test was kept waiting
	mine.Close()
	mine, theirs := open()
	if out.String() != "" {
		t.Errorf("after a move to the leader it says %q", out.String())
	}
	theirs.Close()
	if _, err := mine.Read(make([]byte, 1)); err == nil {
		t.Fatal("the line stands")
	}
	if !strings.Contains(out.String(), "went away; trying again") {
		t.Errorf("after an end by the server it says %q", out.String())
	}
	mine, _ = open()
	if !strings.Contains(out.String(), "connected to "+ln.Addr().String()+" again") {
		t.Errorf("after the next line it says %q", out.String())
	}
	out.Reset()
	mine.(*lookedAt).since = time.Now().Add(-glance)
	mine.Close()
	if !strings.Contains(out.String(), "went away") {
		t.Errorf("after a silent server was left it says %q", out.String())
	}
}
