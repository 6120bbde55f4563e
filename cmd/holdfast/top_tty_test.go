package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	// The tests' binary fails in this way on demand.
	if os.Getenv("HOLDFAST_TEST_TOP_PANICS") != "" {
		topHook = func(m *topModel) {
			if m.view == viewMembers {
				panic("on purpose")
			}
		}
	}
}

func TestTopEndsAndRestores(t *testing.T) {
	t.Parallel()
	s := dev(t)
	for name, end := range map[string]func(r *topRun){
		"q":       func(r *topRun) { r.keys("q") },
		"Ctrl-C":  func(r *topRun) { r.keys("\x03") },
		"SIGTERM": func(r *topRun) { _ = r.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGHUP":  func(r *topRun) { _ = r.cmd.Process.Signal(syscall.SIGHUP) },
		"SIGQUIT": func(r *topRun) { r.keys("\x1c") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := topOn(t, 100, 30, s.on())
			r.shows("[1 locks]", "connected", s.addr, "leader", "term", "revision")
			r.vt.mu.Lock()
			if !r.vt.other || !r.vt.hidden || r.modes() == r.was {
				t.Error("top does not have the terminal")
			}
			r.vt.mu.Unlock()
			end(r)
			r.ends(0)
			if text := r.vt.text(); strings.Contains(text, "goroutine") {
				t.Errorf("the screen:\n%s", text)
			}
		})
	}
}

func TestTopPanicRestores(t *testing.T) {
	t.Parallel()
	s := dev(t)
	r := topOn(t, 100, 30, append(s.on(), "HOLDFAST_TEST_TOP_PANICS=1"))
	r.shows("[1 locks]")
	r.keys("3")
	if code := r.exitCode(); code != 2 {
		t.Errorf("exit code %d", code)
	}
	var raw string
	eventually(t, "the reason", func() bool {
		r.vt.mu.Lock()
		defer r.vt.mu.Unlock()
		r.vt.strange = nil // what the runtime prints has tabs
		raw = string(r.vt.raw)
		return strings.Contains(raw, "panic: on purpose")
	})
	r.isRestored()
	if strings.Index(raw, "panic: on purpose") < strings.LastIndex(raw, "\x1b[?1049l") {
		t.Error("the reason was printed on the screen that is gone")
	}
}

// A terminal that goes away ends top.
func TestTopHangup(t *testing.T) {
	t.Parallel()
	s := dev(t)
	r := topOn(t, 100, 30, s.on())
	r.shows("[1 locks]")
	_ = r.pty.Close()
	if code := r.exitCode(); code != 0 && code != exitSignal+int(syscall.SIGHUP) {
		t.Errorf("exit code %d", code)
	}
}

// A terminal that takes no more output does not keep top from ending.
func TestTopEndsOnAStuckTerminal(t *testing.T) {
	t.Parallel()
	s := dev(t)
	r := topOn(t, 100, 30, s.on())
	r.shows("[1 locks]")
	if err := unix.IoctlSetInt(int(r.tty.Fd()), unix.TCXONC, unix.TCOOFF); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		r.keys("12")
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.exitCode()
	if r.modes() != r.was {
		t.Error("the terminal's modes are not as they were")
	}
}

// Ctrl-Z gives the terminal to the shell, fg gives it back.
func TestTopJobControl(t *testing.T) {
	t.Parallel()
	s := dev(t)
	r := programOn(t, 100, 30, s.on(), "bash", "--norc", "--noprofile", "--noediting", "-i")
	r.shows("ready>")
	r.keys(shellQuote(binary(t)) + " top\n")
	r.shows("[1 locks]", "connected")
	r.keys("\x1a")
	r.shows("Stopped")
	r.hasShellScreen()
	r.keys("echo shell has $((40+2))\n")
	r.shows("shell has 42")
	r.keys("fg\n")
	r.shows("[1 locks]", "connected")
	r.keys("2")
	r.shows("[2 sessions]")
	top := groupOf(t, r.cmd.Process.Pid, "holdfast.test")
	if len(top) != 1 {
		t.Fatalf("%d processes of top", len(top))
	}
	// Stopped and continued from elsewhere, while nobody else had the
	// terminal.
	kill(top[0].PID, unix.SIGSTOP)
	r.shows("Stopped")
	r.keys("fg\n")
	r.shows("[2 sessions]")
	r.keys("q")
	r.hasShellScreen()
	r.keys("echo code $?; exit 3\n")
	r.shows("code 0")
	r.exitCode()
}

// Without anybody who could continue it, Ctrl-Z does not strand top.
func TestTopStopWithoutShell(t *testing.T) {
	t.Parallel()
	s := dev(t)
	r := topOn(t, 100, 30, s.on())
	r.shows("[1 locks]")
	r.keys("\x1a")
	eventually(t, "top on the screen again", func() bool {
		r.vt.mu.Lock()
		defer r.vt.mu.Unlock()
		return strings.Count(string(r.vt.raw), "\x1b[?1049h") > 1
	})
	r.keys("2")
	r.shows("[2 sessions]")
	r.keys("q")
	r.ends(0)
}
