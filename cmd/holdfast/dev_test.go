package main

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDev(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		p := newProgram(t, []string{"TMPDIR=" + temp}, "dev").start()
		line := ""
		eventually(t, "the line to export", func() bool {
			_, rest, ok := strings.Cut(p.stdout.String(), "export ")
			line, _, _ = strings.Cut(rest, "\n")
			return ok && strings.HasSuffix(rest, "\n")
		})
		run(t, 0, []string{line}, "run", "dev", "--", "true")
		if left, err := os.ReadDir(temp); err != nil || len(left) != 1 {
			t.Fatalf("in the temporary directory: %v, %v", left, err)
		}
		p.signal(sig)
		p.expect(0)
		if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

func TestDevRefusesATakenAddress(t *testing.T) {
	t.Parallel()
	s := dev(t)
	temp := t.TempDir()
	run(t, exitFailure, []string{"TMPDIR=" + temp}, "dev", "--listen", s.addr).says("cannot listen")
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
