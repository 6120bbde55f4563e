package fencetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"holdfast/fence"
)

// T is what the suite needs of a [*testing.T].
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// A Harness connects the suite to one kind of gate.
type Harness struct {
	// New makes a fresh resource that has never seen a token.
	New func(t T) Resource
	// ArmBound is the longest time in which Arm answers, whatever is in its
	// way and without a deadline in its context. Required.
	ArmBound time.Duration
	// Rounds is how often two first writers race (C48). Default 200.
	Rounds int
}

// A Resource is something that gates guard. It may be used by several
// goroutines at once.
type Resource interface {
	// Open opens a gate on the resource as another process would: what the
	// gates share, they share through the resource.
	Open(t T, o Options) (Gate, error)
	// Ledger returns what took effect at the resource, oldest first. It
	// looks past the gate.
	Ledger(t T) []Entry
}

// Options say which gate to open.
type Options struct {
	Lock        string
	Name        string // the gate's name in errors
	Slots       uint32 // 0: a plain lock
	AllowShared bool
	Domain      fence.Domain   // zero: the first token pins it
	Reporter    fence.Reporter // may be nil
}

// A Gate is what the suite needs of a gate. Its methods may be called by
// several goroutines at once.
type Gate interface {
	Arm(ctx context.Context, t fence.Token) error
	// Write appends one entry to the ledger through the gate.
	Write(ctx context.Context, w Write) error
	Move(ctx context.Context, m fence.Move) error
	Show(ctx context.Context) (fence.State, error)
}

// A Write is one guarded write.
type Write struct {
	Token fence.Token
	Value string
	// Fail makes the write fail after the gate let it in (a broken
	// constraint, an error of the function that writes): Write returns an
	// error and the ledger has no entry.
	Fail bool
	// Inside, if not nil, is called once where the holder's own code runs,
	// after it has read and before the final step.
	Inside func()
	// Final, if not nil, is called once within the final step: after the
	// token was judged for the last time, and before the write takes effect.
	Final func()
}

// An Entry is one write that took effect.
type Entry struct {
	Token fence.Token
	Value string
}

// Run runs every check of the suite as a subtest.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(newWorld(t, h)) })
	}
}

// Case runs the checks of one case of the casebook ("C45"), so that a gate's
// package can have a test of that name.
func Case(t *testing.T, h Harness, name string) {
	t.Helper()
	found := false
	for _, c := range checks {
		if strings.HasPrefix(c.name, "Casebook"+name+"_") {
			found = true
			c.run(newWorld(t, h))
		}
	}
	if !found {
		t.Fatalf("the suite has no case %q", name)
	}
}
