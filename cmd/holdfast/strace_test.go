package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
)

// faulty is a strace that makes system calls on a path fail in a process.
type faulty struct {
	cmd    *exec.Cmd
	stderr *safeBuffer
}

// fail attaches one to a process.
func fail(t *testing.T, pid int, path, fault string) *faulty {
	t.Helper()
	call, _, _ := strings.Cut(fault, ":")
	f := &faulty{stderr: &safeBuffer{}}
	f.cmd = exec.Command("strace", "-f", "-p", fmt.Sprint(pid), "-P", path, "-e", "trace="+call, "-e", "inject="+fault)
	f.cmd.Stderr = f.stderr
	if err := f.cmd.Start(); err != nil {
		t.Fatalf("%v: this test needs the command strace", err)
	}
	ended := make(chan struct{})
	go func() { _ = f.cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = f.cmd.Process.Signal(unix.SIGTERM) // detaches
		<-ended
	})
	eventually(t, "strace's attachment", func() bool {
		select {
		case <-ended:
			t.Fatalf("strace cannot trace process %d, and this test cannot do without (ptrace must be permitted): %s", pid, f.stderr)
		default:
		}
		return strings.Contains(f.stderr.String(), " attached")
	})
	return f
}

// A promise is a lock that was acknowledged as held before something failed.
type promise struct {
	grants map[string]uint64
}

// take acquires locks until one cannot be had any more, or there are enough.
func (p *promise) take(t *testing.T, client *cluster.Client, prefix string, enough int) {
	t.Helper()
	for i := range enough {
		name := fmt.Sprintf("%s/%d", prefix, i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second*3/2)
		g, err := client.Acquire(ctx, name, cluster.AcquireOptions{})
		cancel()
		if err != nil {
			return // not acknowledged
		}
		p.grants[name] = g.Token().Number
	}
}

// kept checks that each is held by its grant.
func (p *promise) kept(t *testing.T, s *service) {
	t.Helper()
	client, err := s.client()
	if err != nil {
		t.Fatal(err)
	}
	for name, number := range p.grants {
		l, err := client.Get(t.Context(), name, cluster.GetOptions{})
		if err != nil || len(l.Holders) != 1 || l.Holders[0].Token.Number != number {
			t.Errorf("%s was given under token %d: found %+v, %v", name, number, l, err)
		}
	}
}

// A system call fails under a server that works: it ends, says in which step,
// and what it acknowledged is there at the next start.
func TestSystemCallFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fault, below, says string }{
		{"fdatasync:error=EIO:when=3", "wal", "input/output error"},
		{"write:error=ENOSPC:when=4", "wal", "no space left on device"},
		{"write:error=EIO:when=2", "wal", "input/output error"},
		{"pwrite64:error=EIO:when=5", "mark", "input/output error"},
		// What a disk says once, it need not say again: the page cache then
		// reads well what the disk never got.
		{"fdatasync:error=ENOSPC:when=1", "wal", "no space left on device"},
	} {
		t.Run(strings.ReplaceAll(c.fault, ":", " "), func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			s := startService(t, "serve", "--data", data, "--listen", "127.0.0.1:0", "--log-level", "warn")
			client, err := cluster.Dial(t.Context(), s.addr, &cluster.Options{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close(context.Background()) // the next server hears it
			p := &promise{grants: map[string]uint64{}}
			p.take(t, client, "before", 5)
			path := filepath.Join(data, "group-0000000000000001", c.below)
			if c.below == "wal" {
				path = onlySegment(t, path)
			}
			f := fail(t, s.cmd.Process.Pid, path, c.fault)
			p.take(t, client, "after", 100)
			if code := s.wait(); code == 0 {
				t.Errorf("it ended with code 0: %s", s.stderr)
			}
			s.says("store failed in append", c.says)
			if !strings.Contains(f.stderr.String(), "(INJECTED)") {
				t.Errorf("nothing was made to fail: %s", f.stderr)
			}
			if n := len(p.grants); n < 5 || n > 104 {
				t.Errorf("%d grants were acknowledged", n)
			}
			again := startService(t, "serve", "--data", data, "--listen", s.addr, "--log-level", "warn")
			p.kept(t, again)
		})
	}
}

func onlySegment(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the segments are %v, %v", found, err)
	}
	return found[0]
}

// A system call fails in a start: it is refused, naming the call, and the next
// start finds all that was acknowledged.
func TestSystemCallFailsInAStart(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	serve := []string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--log-level", "warn"}
	s := startService(t, serve...)
	client, err := cluster.Dial(t.Context(), s.addr, &cluster.Options{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background()) // the last server hears it
	p := &promise{grants: map[string]uint64{}}
	p.take(t, client, "before", 20)
	kill(s.cmd.Process.Pid, unix.SIGKILL) // with its sessions alive
	s.wait()
	serve[4] = s.addr
	group := filepath.Join(data, "group-0000000000000001")
	segment := onlySegment(t, filepath.Join(group, "wal"))
	for _, c := range []struct{ fault, path, says string }{
		{"openat:error=EMFILE:when=1", segment, "too many open files"},
		{"openat:error=EMFILE:when=2", segment, "too many open files"},
		{"openat:error=EMFILE:when=1", filepath.Join(group, "wal", "renew.tmp"), "too many open files"},
		{"openat:error=EIO:when=1", filepath.Join(group, "mark"), "input/output error"},
		{"fsync:error=EIO:when=1", filepath.Join(group, "wal", "renew.tmp"), "input/output error"},
		{"fsync:error=EIO:when=1", filepath.Join(group, "wal"), "input/output error"},
		{"fsync:error=EIO:when=1", filepath.Join(group, "mark.new"), "input/output error"},
		{"renameat:error=EIO:when=1", segment, "input/output error"},
		{"renameat:error=EIO:when=1", filepath.Join(group, "mark"), "input/output error"},
	} {
		call, _, _ := strings.Cut(c.fault, ":")
		out := filepath.Join(t.TempDir(), "strace")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, "strace", append([]string{"-f", "--seccomp-bpf", "-o", out, "-P", c.path, "-e", "trace=" + call, "-e", "inject=" + c.fault, binary(t)}, serve...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // also the server, if it serves
		text, err := cmd.CombinedOutput()
		cancel()
		if !strings.Contains(readFile(out), "(INJECTED)") {
			t.Fatalf("strace did not make %s of %s fail (ptrace must be permitted): %v, %s", c.fault, c.path, err, text)
		}
		if err == nil || !strings.Contains(string(text), c.says) || !strings.Contains(string(text), data) {
			t.Errorf("%s of %s: %v, %s", c.fault, c.path, err, text)
		}
	}
	again := startService(t, serve...)
	p.kept(t, again)
}
