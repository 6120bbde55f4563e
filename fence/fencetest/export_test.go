package fencetest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// Try runs one check and returns what it failed with, or "".
func Try(t T, h Harness, name string) string {
	t.Helper()
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no check %q", name)
	}
	r := &recorder{T: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		checks[i].run(newWorld(r, h))
	}()
	<-done
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.said
}

// recorder is a T whose failures are what a test is after.
type recorder struct {
	T
	mu       sync.Mutex
	said     string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said += fmt.Sprintf(format, args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
