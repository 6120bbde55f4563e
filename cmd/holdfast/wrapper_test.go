package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeRunCommand runs a wrapper under a lease that needs no service:
// TTL GRACE RENEWALS CMD ARG…; the lease is renewed all the time for the
// duration RENEWALS, and then no more. Its deadline is printed to stderr.
const fakeRunCommand = "__fakerun"

func fakeRun(args []string) int {
	var d [3]time.Duration
	for i := range d {
		var err error
		if d[i], err = time.ParseDuration(args[i]); err != nil {
			panic(err)
		}
	}
	path, err := findCommand(args[3], os.Getenv("PATH"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitCode(err)
	}
	l := &fakeLease{start: bootNow(), ttl: d[0], renewals: d[2]}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	time.AfterFunc(l.Deadline(), l.expire)
	tell := newSayer(os.Stderr)
	w := &wrapper{
		cmd:   command{path: path, argv: args[3:], env: os.Environ(), grace: d[1]},
		lease: l, say: tell.say,
	}
	w.catch()
	end := w.run()
	tell.say("survivors: %s", listed(end.survivors))
	if end.lost != nil {
		tell.say("lost: %v", end.lost)
		end.code = exitLost
	}
	if end.err != nil {
		tell.say("error: %v", end.err)
		end.code = exitFailure
		if e, ok := errors.AsType[*execError](end.err); ok {
			end.code = e.exitCode()
		}
	}
	tell.close()
	return end.code
}

type fakeLease struct {
	ctx           context.Context
	cancel        context.CancelCauseFunc
	start         instant
	ttl, renewals time.Duration
}

func (l *fakeLease) Deadline() time.Duration {
	now := bootNow()
	renewed := min(now, l.start+l.renewals)
	return max(0, renewed+l.ttl-now)
}

func (l *fakeLease) Context() context.Context { return l.ctx }

func (l *fakeLease) expire() {
	if left := l.Deadline(); left > 0 {
		time.AfterFunc(left, l.expire)
		return
	}
	l.cancel(errors.New("the lease ran out"))
}

// fake starts a wrapper whose lease is renewed for ever.
func fake(t *testing.T, argv ...string) *program {
	t.Helper()
	return start(t, nil, append([]string{fakeRunCommand, "30s", "2s", "24h"}, argv...)...)
}

func TestWrapperExitCodes(t *testing.T) {
	t.Parallel()
	fake(t, "true").expect(0)
	fake(t, "sh", "-c", "exit 7").expect(7)
	fake(t, "sh", "-c", "kill -9 $$").expect(137)
	fake(t, "sh", "-c", "kill -TERM $$").expect(143)
}

// guardOf finds the guardian of a wrapper.
func guardOf(t *testing.T, wrapper int) int {
	t.Helper()
	guard := 0
	eventually(t, "a guardian", func() bool {
		all, err := processes()
		if err != nil {
			return false
		}
		for _, p := range all {
			if p.ppid == wrapper && p.Command == "holdfast-guard" {
				guard = p.PID
			}
		}
		return guard != 0
	})
	return guard
}

// family starts a command with a child and a grandchild in its group, and
// returns the processes' IDs.
func family(t *testing.T, startIt func(argv ...string) *program) (p *program, pids []int) {
	t.Helper()
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	p = startIt("sh", "-c", `echo $$ >"$1"; sh -c 'echo $$ >"$1"; sleep 1000 & echo $! >"$2"; wait' x "$2" "$3" & wait`, "x", a, b, c)
	return p, []int{pidFrom(t, a), pidFrom(t, b), pidFrom(t, c)}
}

// Whoever is killed, the whole group ends (F2), also if the other is stopped
// and can do nothing.
func TestGroupDiesWithWrapperOrGuardian(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(wrapper, guard int){
		"wrapper":                   func(w, g int) { unix.Kill(w, unix.SIGKILL) },
		"guardian":                  func(w, g int) { unix.Kill(g, unix.SIGKILL) },
		"wrapper, guardian stopped": func(w, g int) { unix.Kill(g, unix.SIGSTOP); unix.Kill(w, unix.SIGKILL) },
		"guardian, wrapper stopped": func(w, g int) { unix.Kill(w, unix.SIGSTOP); unix.Kill(g, unix.SIGKILL) },
		"both, wrapper first":       func(w, g int) { unix.Kill(w, unix.SIGKILL); unix.Kill(g, unix.SIGKILL) },
		"both, guardian first":      func(w, g int) { unix.Kill(g, unix.SIGKILL); unix.Kill(w, unix.SIGKILL) },
		"both, stopped before": func(w, g int) {
			unix.Kill(g, unix.SIGSTOP)
			unix.Kill(w, unix.SIGSTOP)
			unix.Kill(g, unix.SIGKILL)
			unix.Kill(w, unix.SIGKILL)
		},
		"wrapper, by a segmentation": func(w, g int) { unix.Kill(w, unix.SIGSEGV) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, pids := family(t, func(argv ...string) *program { return fake(t, argv...) })
			guard := guardOf(t, p.cmd.Process.Pid)
			t.Cleanup(func() { unix.Kill(guard, unix.SIGKILL) })
			kill(p.cmd.Process.Pid, guard)
			gone(t, pids...)
			if name == "guardian" {
				p.expect(137).says("guardian process", "was killed by SIGKILL; killing the command")
			}
		})
	}
}

// Of two holders that die at once the first to close its write end must be
// heard, and the kernel closes from the highest number down.
func TestTieClosesWriteEndsFirst(t *testing.T) {
	t.Parallel()
	tie, err := newTie()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, fd := range []int{tie.wrapperRead, tie.wrapperWrite, tie.guardianRead, tie.guardianWrite} {
			unix.Close(fd)
		}
	}()
	if tie.wrapperWrite < tie.wrapperRead || tie.guardianWrite < tie.guardianRead {
		t.Errorf("%+v: a write end lies below a read end", tie)
	}
}

// Arguments that only just fit are refused by name, not by a process's.
func TestArgumentsTooLong(t *testing.T) {
	t.Parallel()
	// With a stack of 512 KiB the kernel takes 128 KiB of arguments and
	// environment. The guardian's arguments have the command's path beside
	// the command line, so there is a length that fits the wrapper only.
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 250))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/true", filepath.Join(dir, "truth")); err != nil {
		t.Fatal(err)
	}
	refused := false
	for n := 130 << 10; n > 100<<10 && !refused; n -= 50 {
		p := newProgram(t, nil)
		p.cmd = exec.Command("sh", "-c", `ulimit -s 512; exec "$0" "$@"`, binary(t),
			fakeRunCommand, "30s", "2s", "24h", "truth", strings.Repeat("x", n/2), strings.Repeat("x", n/2))
		p.cmd.Env = []string{binaryVariable + "=1", "PATH=" + dir}
		p.cmd.Stderr = p.stderr
		if code := p.start().wait(); code == exitNotExec && strings.Contains(p.stderr.String(), "holdfast:") {
			p.says("too long for the system")
			refused = true
		} else if code == 0 {
			break
		}
	}
	if !refused {
		t.Error("no length of arguments was refused")
	}
}

// The schedule is kept by the guardian, and by the wrapper if the guardian is
// stopped.
func TestScheduleIsKeptByEither(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]string{"both": "", "guardian stopped": "guardian", "wrapper stopped": "wrapper"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			p, pids := family(t, func(argv ...string) *program {
				// None of the family heeds SIGTERM.
				return start(t, nil, append([]string{fakeRunCommand, "2s", "500ms", "1ms", "sh", "-c", `trap '' TERM; exec "$@"`, "x"}, argv...)...)
			})
			guard := guardOf(t, p.cmd.Process.Pid)
			switch stopped {
			case "guardian":
				unix.Kill(guard, unix.SIGSTOP)
				t.Cleanup(func() { unix.Kill(guard, unix.SIGKILL) })
			case "wrapper":
				unix.Kill(p.cmd.Process.Pid, unix.SIGSTOP)
			}
			gone(t, pids...)
			// A wrapper that relied on the guardian alone would take two more
			// seconds to find that it does not answer.
			if took := time.Since(began); took > 2*time.Second+1500*time.Millisecond {
				t.Errorf("the group ended after %v, want at the deadline of 2s", took)
			}
			if stopped == "wrapper" {
				unix.Kill(p.cmd.Process.Pid, unix.SIGCONT)
			}
			p.expect(exitLost).says("lost:")
		})
	}
}

// A command that ignores SIGTERM is killed at the deadline, and one that is
// stopped gets to act on SIGTERM.
func TestTermThenKill(t *testing.T) {
	t.Parallel()
	t.Run("ignored", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		start(t, nil, fakeRunCommand, "1500ms", "500ms", "1ms", "sh", "-c", `trap '' TERM; while :; do sleep 0.05; done`).
			expect(exitLost).says("SIGTERM")
		if took := time.Since(began); took < 1400*time.Millisecond {
			t.Errorf("killed after %v, want not before the deadline of 1.5s", took)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		mark := filepath.Join(t.TempDir(), "mark")
		start(t, nil, fakeRunCommand, "1500ms", "700ms", "1ms", "sh", "-c", `trap 'echo bye >"$1"; exit 3' TERM; kill -STOP $$; while :; do sleep 0.05; done`, "x", mark).
			expect(exitLost)
		if readFile(mark) != "bye\n" {
			t.Error("the stopped command could not act on SIGTERM")
		}
	})
}

// C55: a process that left the group is reported, with its ID and command.
func TestSurvivorsAreReported(t *testing.T) {
	t.Parallel()
	pidFile := filepath.Join(t.TempDir(), "pid")
	p := fake(t, "sh", "-c", `setsid sh -c 'echo $$ >"$1"; exec sleep 1003' x "$1" & while ! [ -s "$1" ]; do sleep 0.01; done`, "x", pidFile)
	pid := pidFrom(t, pidFile)
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	p.expect(0).says(fmt.Sprintf("survivors: %d (sleep 1003)", pid))
	if !alive(pid) {
		t.Error("the process that left the group was killed")
	}
}

// Those that outlive the command in its group are waited for, then ended.
func TestLingeringGroup(t *testing.T) {
	t.Parallel()
	t.Run("ends by itself", func(t *testing.T) {
		t.Parallel()
		out := filepath.Join(t.TempDir(), "out")
		fake(t, "sh", "-c", `(sleep 0.5; echo late >"$1") & exit 4`, "x", out).expect(4)
		if readFile(out) != "late\n" {
			t.Error("the wrapper did not wait for the rest of the group")
		}
	})
	t.Run("is ended", func(t *testing.T) {
		t.Parallel()
		pidFile := filepath.Join(t.TempDir(), "pid")
		p := start(t, nil, fakeRunCommand, "30s", "300ms", "24h", "sh", "-c", `sleep 1004 & echo $! >"$1"; exit 5`, "x", pidFile)
		pid := pidFrom(t, pidFile)
		p.expect(5).says("live on", "sleep 1004")
		gone(t, pid)
	})
}

// Signals are forwarded once, to the whole group.
func TestSignalsAreForwardedOnce(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH} {
		t.Run(unix.SignalName(s), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, end := filepath.Join(dir, "out"), filepath.Join(dir, "end")
			script := `trap 'echo got >>"$1"' ` + fmt.Sprint(int(s)) + `; echo ready >>"$1"; while ! [ -e "$2" ]; do read -t 0.05 _ </dev/zero || :; done; exit 9`
			p := fake(t, "bash", "-c", script, "x", out, end)
			eventually(t, "the trap", func() bool { return readFile(out) == "ready\n" })
			p.signal(s)
			eventually(t, "the signal", func() bool { return strings.Contains(readFile(out), "got") })
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.expect(9)
			if got := readFile(out); got != "ready\ngot\n" {
				t.Errorf("the command saw %q, want the signal once", got)
			}
		})
	}
}

// Descriptors above 2 that the user lets the command inherit reach it under
// their numbers, and holdfast's own do not.
func TestDescriptorsPass(t *testing.T) {
	t.Parallel()
	file, err := os.CreateTemp(t.TempDir(), "three")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const script = `echo hello >&3; ls -l /proc/self/fd | sed 's/.* \([0-9]*\) -> .*/\1/'`
	alone := exec.Command("sh", "-c", script)
	alone.ExtraFiles = []*os.File{file}
	want, err := alone.Output()
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(t, nil, fakeRunCommand, "30s", "2s", "24h", "sh", "-c", script)
	p.cmd.ExtraFiles = []*os.File{file}
	p.start().expect(0)
	if readFile(file.Name()) != "hello\nhello\n" {
		t.Error("descriptor 3 did not reach the command")
	}
	if got := p.stdout.String(); got != string(want) {
		t.Errorf("the command has the descriptors %q, alone it has %q", got, want)
	}
}

// What is ignored stays ignored, for the command too (nohup).
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ready, end := filepath.Join(dir, "ready"), filepath.Join(dir, "end")
	p := newProgram(t, nil)
	p.cmd = exec.Command("sh", "-c", `trap '' HUP; exec "$@"`, "x", binary(t), fakeRunCommand, "30s", "2s", "24h",
		"bash", "-c", `echo $$ >"$2"; `+untilFile+`exit 3`, "x", end, ready)
	p.start()
	pid := pidFrom(t, ready)
	p.signal(unix.SIGHUP)
	kill(pid, unix.SIGHUP)
	// What the tests themselves were started with is inherited too, so the
	// command is compared with one that runs without holdfast.
	alone, err := exec.Command("sh", "-c", `trap '' HUP; exec bash -c 'echo "$(grep SigIgn /proc/$$/status)"'`).Output()
	if err != nil {
		t.Fatal(err)
	}
	if status := readFile(fmt.Sprintf("/proc/%d/status", pid)); !strings.Contains(status, string(alone)) {
		t.Errorf("the command's ignored signals are not %q, as without holdfast: %s", alone, status)
	}
	create(t, end)
	p.expect(3)
}

func TestExecFailures(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("no program\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	fake(t, bad).expect(exitNotExec).says("not executable", "#!")
}

// The standard output's reader sees its end when the command closes it, not
// only when the wrapper ends.
func TestOutputEndsWithTheCommands(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := newProgram(t, nil, fakeRunCommand, "30s", "2s", "24h", "sh", "-c", `echo all; exec >&-; exec 2>&-; sleep 1000`)
	p.cmd.Stdout = w
	p.start()
	w.Close()
	done := make(chan string, 1)
	go func() {
		var all [16]byte
		n, total := 0, ""
		for err := error(nil); err == nil; {
			n, err = r.Read(all[:])
			total += string(all[:n])
		}
		done <- total
	}()
	select {
	case got := <-done:
		if got != "all\n" {
			t.Errorf("read %q", got)
		}
	case <-time.After(patience):
		t.Fatal("the pipe did not end although the command closed it")
	}
}
