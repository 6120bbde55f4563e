//go:build linux

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The clients of a run are this program, called as "… worker SPEC".
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "worker" {
		if err := runWorker(os.Args[2]); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A short run: three servers, two clients, a few faults; nothing is violated,
// and nothing is left.
func TestAShortRun(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "build", "-o", binary, "holdfast/cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	var said bytes.Buffer
	s := settings{
		binary: binary, prefix: prefixOf(os.Getpid()), servers: 3, clients: 2, lasts: 4 * time.Second, seed: 5,
		gated: true, real: os.Getuid() == 0, out: &said, unlock: time.Minute,
		only: []string{"kill -9: the leader", "SIGSTOP: one client", "partition: the leader alone"},
	}
	r, err := once(t.Context(), s, false)
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	var tab table
	tab.add(r)
	tab.print(&said)
	t.Logf("%s", &said)
	if len(r.judge.violations) > 0 || len(r.strikes) == 0 || len(r.history.grants) < 10 {
		t.Errorf("%d violations, %d faults, %d grants", len(r.judge.violations), len(r.strikes), len(r.history.grants))
	}
	wantNothingLeft(t, s)
}

func wantNothingLeft(t *testing.T, s settings) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(netnsDir, s.prefix+"*"), filepath.Join(os.TempDir(), s.prefix+"*")} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), s.prefix) {
		t.Errorf("a mount is left behind, or %v", err)
	}
}

// A run that is told to stop leaves nothing either.
func TestARunThatIsStopped(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := settings{
		binary: "/bin/false", prefix: prefixOf(os.Getpid()), servers: 3, clients: 1, lasts: time.Minute,
		gated: true, real: os.Getuid() == 0, out: &bytes.Buffer{}, unlock: time.Minute,
	}
	if _, err := once(ctx, s, false); err == nil {
		t.Error("no error")
	}
	wantNothingLeft(t, s)
}
