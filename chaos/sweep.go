//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// prefixOf is what the names of all things begin with that a process makes.
func prefixOf(pid int) string { return fmt.Sprintf("%s%d-", allPrefix, pid) }

const allPrefix = "hfchaos-"

// mark notes where PostgreSQL's files are, for a later sweep.
func (r *run) mark() error {
	u, err := url.Parse(r.pg.DSN("postgres"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "postgresql"), []byte(u.Query().Get("host")), 0o600)
}

// sweep removes what runs that were killed left behind: their processes ended
// with them, their namespaces, mounts and directories did not.
func sweep() error {
	var all error
	for _, dir := range []string{netnsDir, os.TempDir()} {
		names, err := filepath.Glob(filepath.Join(dir, allPrefix+"*"))
		if err != nil {
			return err
		}
		for _, name := range names {
			text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), allPrefix), "-")
			pid, err := strconv.Atoi(text)
			if err != nil || alive(pid) {
				continue
			}
			if dir == netnsDir {
				all = errors.Join(all, removeNamespace(filepath.Base(name)))
			} else {
				all = errors.Join(all, removeRun(name))
			}
		}
	}
	return all
}

// alive reports whether a process is there and is a run of chaos.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	program, _, _ := strings.Cut(string(text), "\x00")
	return strings.Contains(filepath.Base(program), "chaos")
}

// removeNamespace ends who is still in it, and removes it.
func removeNamespace(name string) error {
	out, err := exec.Command("ip", "netns", "pids", name).Output()
	if err == nil {
		for _, text := range strings.Fields(string(out)) {
			if pid, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	return ip("netns del " + name)
}

// removeRun removes a run's directory, and PostgreSQL's.
func removeRun(dir string) error {
	err := unmountBelow(dir)
	if text, readErr := os.ReadFile(filepath.Join(dir, "postgresql")); readErr == nil && strings.HasPrefix(filepath.Base(string(text)), "pgtest-") {
		err = errors.Join(err, os.RemoveAll(string(text)))
	}
	return errors.Join(err, os.RemoveAll(dir))
}
