package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deaf is a command that ignores every signal that asks for its end: it writes
// its process and its parent to $1, and ends when $2 is there.
const deaf = `
	trap '' HUP INT QUIT TERM
	echo "$$ $PPID" >>"$1"
	until [ -e "$2" ]; do read -t 0.05 _ <>/dev/null || sleep 0.05; done`

// wasRun waits until deaf runs, and returns its process and its guardian's.
func wasRun(t *testing.T, log string) (pid, guardian int) {
	t.Helper()
	eventually(t, "the command", func() bool { return strings.HasSuffix(readFile(log), "\n") })
	f := strings.Fields(readFile(log))
	pid, err := strconv.Atoi(f[0])
	guardian, err2 := strconv.Atoi(f[1])
	if err != nil || err2 != nil {
		t.Fatalf("the command wrote %q", f)
	}
	return pid, guardian
}

// Whoever asks elect to end waits for --grace at most, also for a command that
// takes no notice, and also if the guardian is stopped; the lock is free then.
func TestElectEndsACommandThatTakesNoNotice(t *testing.T) {
	t.Parallel()
	s := dev(t)
	for _, c := range []struct {
		name  string
		stop  bool
		first unix.Signal
	}{{"term", false, unix.SIGTERM}, {"interrupt", false, unix.SIGINT}, {"no guardian", true, unix.SIGTERM}} {
		log := filepath.Join(t.TempDir(), "log")
		p := start(t, s.on(), "elect", "deaf", "--grace", "700ms", "--", "bash", "-c", deaf, "x", log, log+".end")
		pid, guardian := wasRun(t, log)
		if c.stop {
			kill(guardian, unix.SIGSTOP)
		}
		p.signal(c.first)
		eventually(t, "what it waits for", func() bool {
			return strings.Contains(p.stderr.String(), "forwarded; waiting up to 700ms for the command to end")
		})
		p.expect(0)
		gone(t, pid)
		s.free(t, "deaf")
		if n := strings.Count(p.stderr.String(), "forwarded"); n != 1 {
			t.Errorf("%s: said %d times that it waits: %s", c.name, n, p.stderr.String())
		}
	}
}

// A second signal ends at once what the first one asked to end.
func TestElectSecondSignalKills(t *testing.T) {
	t.Parallel()
	s := dev(t)
	log := filepath.Join(t.TempDir(), "log")
	p := start(t, s.on(), "elect", "deaf", "--ttl", "20m", "--grace", "10m", "--", "bash", "-c", deaf, "x", log, log+".end")
	pid, _ := wasRun(t, log)
	// The terminal's end may be told twice, and means no more than once.
	p.signal(unix.SIGHUP)
	p.signal(unix.SIGHUP)
	eventually(t, "what it waits for", func() bool { return strings.Contains(p.stderr.String(), "waiting up to 10m0s") })
	if unix.Kill(pid, 0) != nil {
		t.Fatal("the command was killed before anybody asked a second time")
	}
	eventually(t, "the end", func() bool {
		if !p.ended() {
			_ = p.cmd.Process.Signal(unix.SIGTERM)
		}
		return p.ended()
	})
	p.expect(0).says("SIGTERM again: killing the command")
	gone(t, pid)
	s.free(t, "deaf")
}

// run waits for its command however long that takes, and says so; the lock
// stays held.
func TestRunSaysThatItWaits(t *testing.T) {
	t.Parallel()
	s := dev(t)
	log := filepath.Join(t.TempDir(), "log")
	p := start(t, s.on(), "run", "deaf", "--grace", "200ms", "--", "bash", "-c", deaf+"; exit 3", "x", log, log+".end")
	wasRun(t, log)
	p.signal(unix.SIGTERM)
	eventually(t, "that it waits", func() bool {
		return strings.Contains(p.stderr.String(), "SIGTERM was forwarded") && strings.Contains(p.stderr.String(), "the lock stays held; to kill it: kill -KILL -- -")
	})
	if l, ok := s.lock(t, "deaf"); !ok || len(l.Holders) != 1 {
		t.Errorf("the lock while the command runs: %+v", l)
	}
	if err := os.WriteFile(log+".end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.expect(3)
	if n := strings.Count(p.stderr.String(), "forwarded"); n != 1 {
		t.Errorf("said %d times that it waits", n)
	}
	s.free(t, "deaf")
}
