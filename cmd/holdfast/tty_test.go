package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A screen is a program on a terminal of its own.
type screen struct {
	t    *testing.T
	pty  *os.File
	out  *safeBuffer
	cmd  *exec.Cmd
	done chan struct{}
}

func onTerminal(t *testing.T, argv ...string) *screen {
	t.Helper()
	s := &screen{t: t, out: &safeBuffer{}, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), "PS1=ready> ", "TERM=dumb", "HISTFILE=", "TMPDIR="+t.TempDir())
	f, err := pty.Start(s.cmd)
	if err != nil {
		t.Fatal(err)
	}
	s.pty = f
	go func() {
		var buf [4096]byte
		for {
			n, err := f.Read(buf[:])
			_, _ = s.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
		f.Close()
	})
	return s
}

func (s *screen) keys(text string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) shows(text string) {
	s.t.Helper()
	s.showsTimes(text, 1)
}

func (s *screen) showsTimes(text string, n int) {
	s.t.Helper()
	ok := false
	defer func() {
		if !ok {
			s.t.Logf("the screen: %q", s.out)
		}
	}()
	eventually(s.t, fmt.Sprintf("%q, %d times, on the screen", text, n), func() bool { return strings.Count(s.out.String(), text) >= n })
	ok = true
}

func (s *screen) exits(code int) {
	s.t.Helper()
	eventually(s.t, "the end of the program", func() bool {
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	})
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Fatalf("exit code %d, want %d; the screen: %q", got, code, s.out)
	}
}

func fakeArgs(t *testing.T, argv ...string) []string {
	return append([]string{binary(t), fakeRunCommand, "30s", "2s", "24h"}, argv...)
}

// C59: the terminal passes through: the command is its foreground group.
func TestTerminalReadsAndSize(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, fakeArgs(t, "sh", "-c", `test -t 0 -a -t 1 -a -t 2 && echo all three; read -r line </dev/tty; echo "got <$line>"; exit 6`)...)
	s.shows("all three")
	s.keys("hello\n")
	s.shows("got <hello>")
	s.exits(6)
}

// Ctrl-C reaches the command's group once, and holdfast waits for its end.
func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, fakeArgs(t, "sleep", "1000")...)
	eventually(t, "the command", func() bool { return len(groupOf(t, s.cmd.Process.Pid, "sleep")) == 1 })
	s.keys("\x03")
	s.exits(130)

	count := filepath.Join(t.TempDir(), "count")
	s = onTerminal(t, fakeArgs(t, "bash", "-c", `trap 'echo INT >>"$1"' INT; echo armed; until [ -s "$1" ]; do read -t 0.05 _ <>/dev/null || :; done; for i in 1 2 3 4; do read -t 0.05 _ <>/dev/null || :; done; exit 4`, "x", count)...)
	s.shows("armed")
	s.keys("\x03")
	s.exits(4)
	if got := readFile(count); got != "INT\n" {
		t.Errorf("the command saw %q, want one interrupt", got)
	}
}

// groupOf lists the processes of a name below pid.
func groupOf(t *testing.T, pid int, name string) []procEntry {
	t.Helper()
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	var found []procEntry
	for _, p := range descendants(all, pid) {
		if p.Command == name {
			found = append(found, p)
		}
	}
	return found
}

// Ctrl-Z without anybody who could continue the job does not strand it, as it
// would not without holdfast.
func TestTerminalStopWithoutShell(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, fakeArgs(t, "sh", "-c", `echo begun; read -r line; echo "got <$line>"`)...)
	s.shows("begun")
	s.keys("\x1a")
	s.keys("on\n")
	s.shows("got <on>")
	s.exits(0)
}

// Ctrl-Z in a shell stops the job, fg continues it with the terminal.
func TestTerminalJobControl(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "bash", "--norc", "--noprofile", "--noediting", "-i")
	s.shows("ready> ")
	line := shellQuote(binary(t)) + " " + fakeRunCommand + " 30s 2s 24h "
	s.keys(line + "sh -c 'echo be''gun; read -r line; echo \"g''ot <$line>\"'\n")
	s.shows("begun")
	s.keys("\x1a")
	s.shows("Stopped")
	s.showsTimes("ready> ", 2)
	s.keys("echo shell has $((40+2))\n")
	s.shows("shell has 42")
	s.keys("fg\n")
	s.keys("back\n")
	s.shows("got <back>")
	// A command in a pipe gets the terminal when it asks for it.
	s.keys(line + "sh -c 'read -r line </dev/tty; echo \"pip''ed <$line>\"' | cat\n")
	eventually(t, "the command in the pipe", func() bool { return len(groupOf(t, s.cmd.Process.Pid, "sh")) == 1 })
	s.keys("more\n")
	s.shows("piped <more>")
	s.keys("exit 3\n")
	s.exits(3)
}

// A job that is stopped for longer than its lease is killed, not continued.
func TestTerminalStoppedPastTheLease(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	s := onTerminal(t, "bash", "--norc", "--noprofile", "--noediting", "-i")
	s.shows("ready> ")
	s.keys(shellQuote(binary(t)) + " " + fakeRunCommand + " 1s 100ms 1ms bash -c 'trap \"\" TERM; echo be''gun; read -r line; echo late >" + mark + "'\n")
	s.shows("begun")
	shell := groupOf(t, s.cmd.Process.Pid, "bash")
	if len(shell) != 1 {
		t.Fatalf("%d commands, want 1", len(shell))
	}
	s.keys("\x1a")
	s.shows("Stopped")
	gone(t, shell[0].PID)
	s.keys("fg\n")
	s.shows("lost:")
	s.keys("echo code $?; exit\n")
	s.shows(fmt.Sprintf("code %d", exitLost))
	if readFile(mark) != "" {
		t.Error("the command went on after its lease")
	}
}

// The terminal does not stop a wrapper that prints in the background (tostop).
func TestTerminalToStop(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "bash", "--norc", "--noprofile", "--noediting", "-i")
	s.shows("ready> ")
	s.keys("stty tostop\n")
	s.keys(shellQuote(binary(t)) + " " + fakeRunCommand + " 1s 300ms 1ms sleep 1000\n")
	s.shows("SIGTERM")
	s.shows("lost:")
	s.keys("exit\n")
	s.exits(exitLost)
}

func TestStopSelfIsContinued(t *testing.T) {
	t.Parallel()
	p := fake(t, "sh", "-c", `kill -TSTP $$; exit 8`)
	// The wrapper stops with its command, if somebody can continue it.
	eventually(t, "a stop or the end", func() bool {
		select {
		case <-p.done:
			return true
		default:
			_ = unix.Kill(p.cmd.Process.Pid, unix.SIGCONT)
			return false
		}
	})
	p.expect(8)
}
