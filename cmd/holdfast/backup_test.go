package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file is there only when it is complete; it is never replaced unasked, and
// only its owner can read it.
func TestBackupFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := dev(t)
	file := filepath.Join(dir, "backup")
	run(t, 0, s.on(), "backup", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	first := readFile(file)
	run(t, 1, s.on(), "backup", file).says("exists", "--force")
	if readFile(file) != first {
		t.Error("it was replaced")
	}
	run(t, 0, s.on(), "backup", file, "--force")
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, 64, s.on(), "backup", fifo, "--force").says("no ordinary file")
	run(t, 64, s.on(), "backup", dir, "--force").says("no ordinary file")
	run(t, 1, s.on(), "backup", filepath.Join(dir, "none", "backup")).says("no file can be made in " + filepath.Join(dir, "none") + ": no such file or directory\n")
	// Standard output has nothing but the backup, and it can be checked on its way.
	out := run(t, 0, s.on(), "backup", "-")
	out.says("a whole backup")
	verify := newProgram(t, nil, "backup", "verify", "-")
	verify.cmd.Stdin = bytes.NewReader([]byte(out.stdout.String()))
	if text := verify.start().expect(0).stdout.String(); !strings.Contains(text, "every byte as it was written") || !strings.Contains(text, "0 locks") {
		t.Errorf("verify says %q", text)
	}
	// Without a server there is no file, and nothing is left of the attempt.
	run(t, 69, []string{serverVariable + "=127.0.0.1:1"}, "backup", filepath.Join(dir, "unreachable"))
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("there are %v, %v", names, err)
	}
}

// A path that became a file meanwhile is not replaced.
func TestSettleReplacesNothingUnasked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for path, text := range map[string]string{from: "new", to: "old"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := settle(from, to, false); err == nil || readFile(to) != "old" {
		t.Errorf("%v, there is %q", err, readFile(to))
	}
	if err := settle(from, to, true); err != nil || readFile(to) != "new" {
		t.Errorf("%v, there is %q", err, readFile(to))
	}
}
