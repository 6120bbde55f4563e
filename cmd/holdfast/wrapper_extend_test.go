package main

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Once the guardian has sent SIGTERM, the wrapper's own schedule stands too: a
// guardian that is stopped from then on must not win the command more time.
func TestRenewalAfterSIGTERMMovesNothing(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	l := &fakeLease{ctx: context.Background(), start: bootNow(), ttl: 10 * time.Second, renewals: time.Hour}
	w := &wrapper{cmd: command{grace: time.Second}, lease: l, say: func(string, ...any) {}}
	if w.line, err = newLine(pair[0]); err != nil {
		t.Fatal(err)
	}
	defer w.line.file.Close()
	w.extend()
	before := w.backup.killAt
	if before == 0 {
		t.Fatal("no schedule")
	}
	l.ttl = 20 * time.Second
	w.extend()
	if w.backup.killAt <= before {
		t.Fatal("a renewal does not count")
	}
	before = w.backup.killAt
	w.reported(report{Event: reportTermed})
	l.ttl = 30 * time.Second
	w.extend()
	if w.backup.killAt != before || w.told != before {
		t.Errorf("the end was moved by %v after SIGTERM", w.backup.killAt-before)
	}
}
