package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// C57: each way to end has its own code.
func TestCasebookC57_ExitCodes(t *testing.T) {
	t.Parallel()
	s := dev(t)
	t.Run("the command's own", func(t *testing.T) {
		t.Parallel()
		run(t, 0, s.on(), "run", "c57", "--", "true")
		run(t, 7, s.on(), "run", "c57", "--", "sh", "-c", "exit 7")
		run(t, 137, s.on(), "run", "c57", "--", "sh", "-c", "kill -9 $$")
		run(t, 255, s.on(), "run", "c57", "--", "sh", "-c", "exit 255")
		if _, ok := s.lock(t, "c57"); ok {
			t.Error("the lock is not free after the runs")
		}
	})
	t.Run("not acquired", func(t *testing.T) {
		t.Parallel()
		end := filepath.Join(t.TempDir(), "end")
		holder := start(t, s.on(), "run", "c57/busy", "--label", "first", "--", "bash", "-c", untilFile, "x", end)
		h := s.holds(t, "c57/busy")
		busy := run(t, exitConflict, s.on(), "run", "c57/busy", "--no-wait", "--", "touch", end)
		busy.says("c57/busy", `"first"`, "grant "+h.Grant)
		run(t, exitConflict, s.on(), "run", "c57/busy", "--wait", "100ms", "--", "touch", end).
			says("not granted within 100ms", `"first"`, "grant "+h.Grant)
		run(t, 3, s.on(), "run", "c57/busy", "--no-wait", "--conflict-exit-code", "3", "--", "touch", end)
		run(t, exitConflict, s.on(), "run", "c57/busy", "--limit", "2", "--no-wait", "--", "touch", end)
		if readFile(end) != "" || holder.ended() {
			t.Error("a command ran without the lock")
		}
		create(t, end)
		holder.expect(0)
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		p := start(t, s.on(), "run", "c57/lost", "--ttl", "5s", "--grace", "200ms", "--", "sleep", "1000")
		h := s.holds(t, "c57/lost")
		run(t, 0, s.on(), "lock", "revoke", "c57/lost", "--token", h.Grant)
		p.expect(exitLost).says("c57/lost", "revoked")
	})
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		run(t, exitMissing, s.on(), "lock", "get", "none").says("none")
		run(t, exitMissing, s.on(), "lock", "revoke", "none", "--token", "1")
		run(t, exitMissing, s.on(), "session", "end", "123")
	})
}

func TestCasebookC57_Unreachable(t *testing.T) {
	t.Parallel()
	nobody := []string{serverVariable + "=127.0.0.1:1"}
	for _, args := range [][]string{
		{"run", "a", "--wait", "300ms", "--", "true"}, {"run", "a", "--no-wait", "--", "true"},
		{"lock", "get", "a"}, {"lock", "list"}, {"lock", "revoke", "a", "--token", "1"}, {"lock", "watch"},
		{"session", "list"}, {"session", "end", "1"},
	} {
		p := start(t, nobody, args...)
		t.Cleanup(func() { p.expect(exitUnreachable).says("127.0.0.1:1", "holdfast serve") })
	}
}

// What is wrong with a command line is said before anything is sent, so no
// server is needed.
func TestRunUsage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 600)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"a", "true"}, exitUsage, "must stand after '--': holdfast run a -- true"},
		{[]string{"a"}, exitUsage, "no command"},
		{[]string{"a", "--"}, exitUsage, "no command"},
		{[]string{"--", "true"}, exitUsage, "no lock name"},
		{[]string{"a", "b", "--", "true"}, exitUsage, "2 arguments before '--'"},
		{[]string{"", "--", "true"}, exitUsage, "empty"},
		{[]string{long, "--", "true"}, exitUsage, "600 bytes"},
		{[]string{"a\x1b[2J", "--", "true"}, exitUsage, "control character"},
		{[]string{"a", "--wait", "1s", "--no-wait", "--", "true"}, exitUsage, "exclude each other"},
		{[]string{"a", "--wait", "0", "--", "true"}, exitUsage, "at least 1ms"},
		{[]string{"a", "--wait", "soon", "--", "true"}, exitUsage, "want a number with its unit"},
		{[]string{"a", "--wait", "-1s", "--", "true"}, exitUsage, "at least 1ms"},
		{[]string{"a", "--ttl", "10ms", "--", "true"}, exitUsage, "want 1s to 24h0m0s"},
		{[]string{"a", "--ttl", "25h", "--", "true"}, exitUsage, "want 1s to 24h0m0s"},
		{[]string{"a", "--ttl", "10s", "--grace", "6s", "--", "true"}, exitUsage, "grace ≤ TTL ÷ 2"},
		{[]string{"a", "--grace", "20s", "--", "true"}, exitUsage, "grace ≤ TTL ÷ 2"},
		{[]string{"a", "--limit", "0", "--", "true"}, exitUsage, "whole number from 1"},
		{[]string{"a", "--shared", "--limit", "2", "--", "true"}, exitUsage, "exclude each other"},
		{[]string{"a", "--retry-failed", "--", "true"}, exitUsage, "needs --once-per"},
		{[]string{"a", "--conflict-exit-code", "256", "--", "true"}, exitUsage, "from 0 to 255"},
		{[]string{"a", "--value", strings.Repeat("v", 4097), "--", "true"}, exitUsage, "at most 4096"},
		{[]string{"a", "--label", strings.Repeat("l", 257), "--", "true"}, exitUsage, "at most 256"},
		{[]string{"a", "--label", "x\ny", "--", "true"}, exitUsage, "control characters"},
		{[]string{"a", "--frob", "--", "true"}, exitUsage, "unknown flag"},
		{[]string{"a", "--server", "x", "--", "true"}, exitUsage, "want host:port"},
	} {
		code, stdout, stderr := cli(append([]string{"run"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("run %.80q: code %d, stderr %q; want code %d and %q", c.args, code, stderr, c.code, c.want)
		}
	}
}

// The command is looked for before the lock is: no server is asked.
func TestRunChecksTheCommandFirst(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv(serverVariable, "127.0.0.1:1")
	write("plain", "#!/bin/sh\n", 0o600)
	for _, c := range []struct {
		command string
		code    int
		want    string
	}{
		{"no-such-command", exitNotFound, `"no-such-command" not found`},
		{"", exitNotFound, "name is empty"},
		{dir + "/none", exitNotFound, "not found"},
		{"/etc/passwd/x", exitNotFound, "not found"},
		{"plain", exitNotExec, "no execute permission"},
		{dir, exitNotExec, "is a directory"},
		{write("empty", "", 0o700), exitNotExec, "is empty"},
		{write("interpreter", "#!/no/such/interpreter\n", 0o700), exitNotFound, `interpreter "/no/such/interpreter"`},
		{write("bare", "#!\n", 0o700), exitNotExec, "names no interpreter"},
	} {
		code, _, stderr := cli("run", "a", "--", c.command)
		if code != c.code || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, "nothing was acquired") && c.command != "" {
			t.Errorf("%q: code %d, stderr %q; want %d and %q", c.command, code, stderr, c.code, c.want)
		}
	}
}

// C59: argv, standard input and output, and the environment pass through.
func TestCasebookC59_ArgvPassesByteForByte(t *testing.T) {
	t.Parallel()
	s := dev(t)
	argv := []string{"-v", "--help", "--", "-o", "json", "a b", `"quoted"`, `'`, "", "line\nbreak", "\xff\xfe", "$HOME", "*", "\\", "--wait=1s"}
	p := run(t, 0, s.on(), append([]string{"run", "c59", "--", "printf", `%s\0`}, argv...)...)
	if got, want := p.stdout.String(), strings.Join(argv, "\x00")+"\x00"; got != want {
		t.Errorf("the command printed %q, want %q", got, want)
	}

	// Flags on both sides of the name, and none of the command's are eaten.
	p = run(t, 0, s.on(), "run", "--ttl", "10s", "c59", "--no-wait", "--", "cat", "-v", "/dev/null")
	if p.stdout.String() != "" {
		t.Errorf("cat -v printed %q", p.stdout)
	}

	q := newProgram(t, append(s.on(), "HOLDFAST_LOCK=old", "HOLDFAST_TOKEN=old"), "run", "c59/env", "--", "sh", "-c",
		`cat; echo "$HOLDFAST_LOCK"; echo "$HOLDFAST_TOKEN"; echo "$HOLDFAST_TOKEN_NUMBER"; echo problem >&2`)
	q.cmd.Stdin = strings.NewReader("in\x00put\n")
	q.start().expect(0).says("problem\n")
	lines := strings.Split(q.stdout.String(), "\n")
	if len(lines) != 5 || lines[0] != "in\x00put" || lines[1] != "c59/env" || !strings.HasPrefix(lines[2], lines[3]+"@") || !strings.HasSuffix(lines[2], ".x0.c59/env") {
		t.Errorf("the command printed %q", lines)
	}
}

// C55: all of the group is ended, also what the shell started; what left the
// group is reported.
func TestCasebookC55_WholeGroupEnds(t *testing.T) {
	t.Parallel()
	s := dev(t)
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "shell"), filepath.Join(dir, "worker"), filepath.Join(dir, "left"), filepath.Join(dir, "term")}
	script := `echo $$ >"$1"
		setsid sh -c 'echo $$ >"$1"; exec sleep 1055' x "$3" &
		sh -c 'trap "date +%s%N >\"$2\"" TERM; echo $$ >"$1"; while :; do sleep 0.02; done' x "$2" "$4" &
		wait; wait; wait`
	p := start(t, s.on(), "run", "c55", "--ttl", "6s", "--grace", "700ms", "--", "sh", "-c", script, "x", files[0], files[1], files[2], files[3])
	shell, worker, left := pidFrom(t, files[0]), pidFrom(t, files[1]), pidFrom(t, files[2])
	t.Cleanup(func() { kill(left, unix.SIGKILL) })
	h := s.holds(t, "c55")
	run(t, 0, s.on(), "session", "end", h.Session)
	p.expect(exitLost).says("c55", "session", fmt.Sprintf("%d (sleep 1055)", left))
	ended := time.Now()
	if alive(shell) || alive(worker) {
		t.Error("processes of the group are alive after the wrapper ended")
	}
	if !alive(left) {
		t.Error("the process that left the group was killed")
	}
	// The worker ignores SIGTERM in effect, so it had the whole grace.
	if grace := ended.Sub(stamp(t, files[3])); grace < 600*time.Millisecond || grace > 3*time.Second {
		t.Errorf("from SIGTERM to the end it took %v, want the grace of 700ms", grace)
	}
}

// C56: a node that is cut off ends its command before the next one starts.
func TestCasebookC56_EndsBeforeTheNextBegins(t *testing.T) {
	t.Parallel()
	s := dev(t)
	for _, c := range []struct {
		name       string
		ttl, grace time.Duration
		ends       bool // at SIGTERM
	}{
		{"ends at SIGTERM", 3 * time.Second, time.Second, true},
		{"ignores SIGTERM", 3 * time.Second, time.Second, false},
		{"short grace", 2 * time.Second, 100 * time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			term, last, second := filepath.Join(dir, "term"), filepath.Join(dir, "last"), filepath.Join(dir, "second")
			line := newCable(t, s.addr)
			name := "c56/" + strings.ReplaceAll(c.name, " ", "-")
			exit := ""
			if c.ends {
				exit = "; exit 0"
			}
			first := start(t, line.on(), "run", name, "--ttl", c.ttl.String(), "--grace", c.grace.String(), "--",
				"bash", "-c", `trap 'date +%s%N >"$1"`+exit+`' TERM; while :; do date +%s%N >"$2.new"; mv "$2.new" "$2"; read -t 0.01 _ <>/dev/null || :; done`, "x", term, last)
			s.holds(t, name)
			eventually(t, "the first command", func() bool { return readFile(last) != "" })
			next := start(t, s.on(), "run", name, "--ttl", "15s", "--", "sh", "-c", `date +%s%N >"$1"`, "x", second)
			eventually(t, "the second in the queue", func() bool { l, _ := s.lock(t, name); return l.Waiters == 1 })
			cut := time.Now()
			line.cut()
			first.expect(exitLost).says(name)
			next.expect(0)
			// What was renewed last before the cut is not known to the test,
			// only that it was at most one keepalive before.
			margin := c.ttl / 10
			keepalive := (c.ttl - margin - c.grace) / 3
			deadline := cut.Add(c.ttl - margin)
			if at := stamp(t, term); at.Before(deadline.Add(-c.grace-keepalive-200*time.Millisecond)) || at.After(deadline.Add(-c.grace+200*time.Millisecond)) {
				t.Errorf("SIGTERM came %v after the cut, want up to %v before %v", at.Sub(cut), keepalive, c.ttl-margin-c.grace)
			}
			if at := stamp(t, last); at.After(deadline.Add(50 * time.Millisecond)) {
				t.Errorf("the first command was alive %v after the cut, want at most %v", at.Sub(cut), c.ttl-margin)
			}
			if a, b := stamp(t, last), stamp(t, second); !a.Before(b) {
				t.Errorf("the second command began %v before the first one's last breath", a.Sub(b))
			}
		})
	}
}

// C58: whatever kills holdfast run kills its command, and the lock is free
// within the TTL.
func TestCasebookC58_KilledWrapper(t *testing.T) {
	t.Parallel()
	s := dev(t)
	for _, victim := range []string{"wrapper", "guardian", "both"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			name := "c58/" + victim
			p, pids := family(t, func(argv ...string) *program {
				return start(t, s.on(), append([]string{"run", name, "--ttl", "2s", "--"}, argv...)...)
			})
			s.holds(t, name)
			guard := guardOf(t, p.cmd.Process.Pid)
			began := time.Now()
			if victim != "guardian" {
				kill(p.cmd.Process.Pid, unix.SIGKILL)
			}
			if victim != "wrapper" {
				kill(guard, unix.SIGKILL)
			}
			gone(t, pids...)
			s.free(t, name)
			if took := time.Since(began); took > 2*time.Second+1500*time.Millisecond {
				t.Errorf("the lock was free after %v, want within the TTL of 2s", took)
			}
			if victim == "guardian" {
				p.expect(137).says("guardian")
			}
		})
	}
}

// C58: signals that ask to end are forwarded, and the lock is free at once
// after the command ended.
func TestCasebookC58_ForwardedSignals(t *testing.T) {
	t.Parallel()
	s := dev(t)
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			name := "c58/" + unix.SignalName(sig)
			ready := filepath.Join(t.TempDir(), "ready")
			p := start(t, s.on(), "run", name, "--ttl", "24h", "--", "sh", "-c", `echo $$ >"$1"; sleep 1000; exit 1`, "x", ready)
			pid := pidFrom(t, ready)
			p.signal(sig)
			p.expect(128 + int(sig))
			if alive(pid) {
				t.Error("the command lives on")
			}
			if _, ok := s.lock(t, name); ok {
				t.Error("the lock is not free")
			}
		})
	}
}

// A signal that comes while holdfast waits for the lock ends it, and leaves
// the queue.
func TestRunInterruptedWhileWaiting(t *testing.T) {
	t.Parallel()
	s := dev(t)
	end := filepath.Join(t.TempDir(), "end")
	holder := start(t, s.on(), "run", "wait", "--", "bash", "-c", untilFile, "x", end)
	s.holds(t, "wait")
	p := start(t, s.on(), "run", "wait", "--", "touch", end)
	eventually(t, "the waiter", func() bool { l, _ := s.lock(t, "wait"); return l.Waiters == 1 })
	p.signal(unix.SIGINT)
	p.expect(130).says("before the command started")
	if l, _ := s.lock(t, "wait"); l.Waiters != 0 {
		t.Error("the waiter is still in the queue")
	}
	create(t, end)
	holder.expect(0)
}

// C80: equal labels on one host make no owner: the second one waits.
func TestCasebookC80_EqualLabelsDoNotShare(t *testing.T) {
	t.Parallel()
	s := dev(t)
	end := filepath.Join(t.TempDir(), "end")
	args := []string{"run", "c80", "--label", "same", "--", "bash", "-c", untilFile + `echo done`, "x", end}
	first := start(t, s.on(), args...)
	h := s.holds(t, "c80")
	second := start(t, s.on(), args...)
	eventually(t, "the second in the queue", func() bool { l, _ := s.lock(t, "c80"); return l.Waiters == 1 })
	l, _ := s.lock(t, "c80")
	if len(l.Holders) != 1 || l.Holders[0].Grant != h.Grant || l.Queue[0].Label != "same" || l.Queue[0].Session == h.Session {
		t.Errorf("got %+v, want one holder, and the second waiting in a session of its own", l)
	}
	run(t, exitConflict, s.on(), "run", "c80", "--label", "same", "--no-wait", "--", "true").says(`"same"`)
	create(t, end)
	first.expect(0)
	second.expect(0)
}

// C20: whichever way run ends, its session ends with it: at once if it can say
// so, else by its TTL.
func TestCasebookC20_SessionEndsWithTheRun(t *testing.T) {
	t.Parallel()
	s := dev(t)
	sessions := func() string { return run(t, 0, s.on(), "session", "list", "-o", "json").stdout.String() }
	run(t, 0, s.on(), "run", "c20", "--", "true")
	run(t, 9, s.on(), "run", "c20", "--", "sh", "-c", "exit 9")
	if got := sessions(); got != "" {
		t.Errorf("sessions after the runs ended: %s", got)
	}
	p := start(t, s.on(), "run", "c20", "--ttl", "1s", "--", "sleep", "1000")
	s.holds(t, "c20")
	kill(p.cmd.Process.Pid, unix.SIGKILL)
	eventually(t, "the session's end", func() bool { return sessions() == "" })
	s.free(t, "c20")
}

// C34: a maximum hold ends a command that is stuck; without one, the time that
// a lock is held is shown.
func TestCasebookC34_MaximumHold(t *testing.T) {
	t.Parallel()
	s := dev(t)
	p := start(t, s.on(), "run", "c34", "--ttl", "5s", "--grace", "300ms", "--max-hold", "1s", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
	h := s.holds(t, "c34")
	eventually(t, "the time held", func() bool {
		l, ok := s.lock(t, "c34")
		return ok && len(l.Holders) == 1 && l.Holders[0].HeldMS > h.HeldMS
	})
	p.expect(exitLost).says("c34", "maximum hold")
	if _, ok := s.lock(t, "c34"); ok {
		t.Error("the lock is not free")
	}
}

// --shared, --limit and --value reach the service.
func TestRunOptionsReachTheService(t *testing.T) {
	t.Parallel()
	s := dev(t)
	dir := t.TempDir()
	end := filepath.Join(dir, "end")
	wait := []string{"--", "bash", "-c", untilFile, "x", end}
	readers := []*program{
		start(t, s.on(), append([]string{"run", "opt/shared", "--shared", "--value", "v1"}, wait...)...),
		start(t, s.on(), append([]string{"run", "opt/shared", "--shared"}, wait...)...),
		start(t, s.on(), append([]string{"run", "opt/permits", "--limit", "2"}, wait...)...),
		start(t, s.on(), append([]string{"run", "opt/permits", "--limit", "2"}, wait...)...),
	}
	for _, name := range []string{"opt/shared", "opt/permits"} {
		eventually(t, "two holders of "+name, func() bool { l, _ := s.lock(t, name); return len(l.Holders) == 2 })
	}
	l, _ := s.lock(t, "opt/shared")
	if l.Value == nil || string(*l.Value) != "v1" || !l.Holders[0].Shared || l.Holders[0].TokenNumber != l.Holders[1].TokenNumber {
		t.Errorf("got %+v, want value v1 and one token for both", l)
	}
	l, _ = s.lock(t, "opt/permits")
	if l.Limit != 2 || l.Holders[0].Slot == l.Holders[1].Slot {
		t.Errorf("got %+v, want two slots", l)
	}
	run(t, exitConflict, s.on(), "run", "opt/permits", "--limit", "2", "--no-wait", "--", "true")
	create(t, end)
	for _, p := range readers {
		p.expect(0)
	}
}
