package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A vt is what a terminal makes of what it is sent: cells, and the modes that
// top changes. It knows what top sends, and notes everything else.
type vt struct {
	mu      sync.Mutex
	w, h    int
	cells   [][]string // "" is the second half of a wide character
	row     int
	col     int
	other   bool // the other screen is shown
	under   *vt  // what the first one shows meanwhile
	hidden  bool // no cursor
	nowrap  bool
	look    string
	strange []string // sequences that it does not know
	pending []byte
	raw     []byte
	paints  int // characters written
}

func newVT(w, h int) *vt {
	v := &vt{w: w, h: h}
	v.clear()
	return v
}

func (v *vt) clear() {
	v.cells = make([][]string, v.h)
	for i := range v.cells {
		v.cells[i] = make([]string, v.w)
		for j := range v.cells[i] {
			v.cells[i][j] = " "
		}
	}
}

// Write implements io.Writer.
func (v *vt) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.raw = append(v.raw, p...)
	b := append(v.pending, p...)
	for len(b) > 0 {
		n := v.step(b)
		if n == 0 {
			break
		}
		b = b[n:]
	}
	v.pending = append([]byte(nil), b...)
	return len(p), nil
}

// step takes one character or sequence, and returns its length; 0 if the rest
// of it is missing.
func (v *vt) step(b []byte) int {
	switch {
	case b[0] == 0x1b:
		if len(b) < 3 {
			return 0
		}
		if b[1] != '[' {
			v.strange = append(v.strange, string(b[:2]))
			return 2
		}
		end := 2
		for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
			end++
		}
		if end == len(b) {
			return 0
		}
		v.sequence(string(b[2:end]), b[end])
		return end + 1
	case b[0] == '\r':
		v.col = 0
		return 1
	case b[0] == '\n':
		v.row = min(v.row+1, v.h-1)
		return 1
	case b[0] < 0x20 || b[0] == 0x7f:
		v.strange = append(v.strange, string(b[:1]))
		return 1
	case !utf8.FullRune(b):
		return 0
	}
	r, n := utf8.DecodeRune(b)
	v.put(r)
	return n
}

func (v *vt) put(r rune) {
	v.paints++
	c := cellsOf(r)
	if c == 0 {
		if v.col > 0 {
			v.cells[v.row][min(v.col, v.w)-1] += string(r)
		}
		return
	}
	if v.col+c > v.w {
		v.col = max(0, v.w-c) // as terminals do that do not wrap
	}
	v.cells[v.row][v.col] = string(r)
	if c == 2 && v.col+1 < v.w {
		v.cells[v.row][v.col+1] = ""
	}
	v.col += c
}

func (v *vt) sequence(args string, final byte) {
	var n []int
	for _, a := range strings.Split(strings.TrimPrefix(args, "?"), ";") {
		x, _ := strconv.Atoi(a)
		n = append(n, x)
	}
	on := final == 'h'
	switch {
	case final == 'H' && len(n) == 2:
		v.row, v.col = min(n[0], v.h)-1, min(n[1], v.w)-1
	case final == 'G':
		v.col = min(n[0], v.w) - 1
	case final == 'K' && (args == "" || args == "2"):
		from := v.col
		if args == "2" {
			from = 0
		}
		for i := from; i < v.w; i++ {
			v.cells[v.row][i] = " "
		}
	case final == 'J' && args == "2":
		v.clear()
	case final == 'm':
		v.look = args
	case (final == 'h' || final == 'l') && args == "?1049":
		v.swap(on)
	case (final == 'h' || final == 'l') && args == "?25":
		v.hidden = !on
	case (final == 'h' || final == 'l') && args == "?7":
		v.nowrap = !on
	case (final == 'h' || final == 'l') && args == "?2026":
	default:
		v.strange = append(v.strange, "\x1b["+args+string(final))
	}
}

// swap goes to the other screen, or back, where everything is as it was.
func (v *vt) swap(other bool) {
	switch {
	case other == v.other:
	case other:
		v.under = &vt{cells: v.cells, row: v.row, col: v.col}
		v.clear()
	default:
		v.cells, v.row, v.col = v.under.cells, v.under.row, v.under.col
	}
	v.other = other
}

func (v *vt) resize(w, h int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.w, v.h = w, h
	v.row, v.col = 0, 0
	v.clear()
}

// lines are the rows of the screen, without blanks at their ends.
func (v *vt) lines() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []string
	for _, row := range v.cells {
		out = append(out, strings.TrimRight(strings.Join(row, ""), " "))
	}
	return out
}

func (v *vt) text() string { return strings.Join(v.lines(), "\n") }

// A topRun is top on a terminal of its own.
type topRun struct {
	t    *testing.T
	pty  *os.File
	tty  *os.File // its other end
	vt   *vt
	cmd  *exec.Cmd
	done chan struct{}
	was  unix.Termios
}

// topOn starts top on a terminal of a size.
func topOn(t *testing.T, w, h int, env []string, args ...string) *topRun {
	t.Helper()
	return programOn(t, w, h, env, append([]string{binary(t), "top"}, args...)...)
}

func programOn(t *testing.T, w, h int, env []string, argv ...string) *topRun {
	t.Helper()
	r := &topRun{t: t, vt: newVT(w, h), cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	r.cmd.Env = append(append(os.Environ(), "TERM=xterm-256color", "PS1=ready> ", "HISTFILE=", "TMPDIR="+t.TempDir()), env...)
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	r.pty, r.tty = closable(t, master), tty
	r.was = r.modes()
	r.size(w, h)
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = tty, tty, tty
	r.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The test keeps the terminal open, so that its modes can be seen after
	// the end.
	t.Cleanup(func() { tty.Close() })
	go func() {
		var buf [4096]byte
		for {
			n, err := r.pty.Read(buf[:])
			_, _ = r.vt.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		r.pty.Close()
	})
	return r
}

// closable is the file in a form that can be closed while it is read.
func closable(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = errors.Join(unix.SetNonblock(fd, true), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "terminal")
}

// size gives the terminal a size.
func (r *topRun) size(w, h int) {
	r.t.Helper()
	r.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(w), Row: uint16(h)})
	})
}

// modes are the terminal's modes now.
func (r *topRun) modes() unix.Termios {
	r.t.Helper()
	var m unix.Termios
	r.control(func(fd int) error {
		now, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			m = *now
		}
		return err
	})
	return m
}

// control does something with the terminal, which stays one that can be closed
// while it is read.
func (r *topRun) control(do func(fd int) error) {
	r.t.Helper()
	c, err := r.pty.SyscallConn()
	if err == nil {
		var failed error
		err = errors.Join(c.Control(func(fd uintptr) { failed = do(int(fd)) }), failed)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *topRun) keys(text string) {
	r.t.Helper()
	if _, err := r.pty.WriteString(text); err != nil {
		r.t.Fatal(err)
	}
}

// shows waits until each text is on the screen.
func (r *topRun) shows(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		ok := false
		defer func() {
			if !ok {
				r.t.Logf("the screen:\n%s", r.vt.text())
			}
		}()
		eventually(r.t, strconv.Quote(text)+" on the screen", func() bool { return strings.Contains(r.vt.text(), text) })
		ok = true
	}
}

func (r *topRun) showsNot(text string) {
	r.t.Helper()
	eventually(r.t, "a screen without "+strconv.Quote(text), func() bool { return !strings.Contains(r.vt.text(), text) })
}

// rowOf is the row of the screen that has the text, -1 if none.
func (r *topRun) rowOf(text string) int {
	for i, line := range r.vt.lines() {
		if strings.Contains(line, text) {
			return i
		}
	}
	return -1
}

// ends waits for the end, and sees that the terminal is as it was.
func (r *topRun) ends(code int) {
	r.t.Helper()
	if got := r.exitCode(); got != code {
		r.t.Errorf("exit code %d, want %d; the screen:\n%s", got, code, r.vt.text())
	}
	r.isRestored()
}

// exitCode waits for the end.
func (r *topRun) exitCode() int {
	r.t.Helper()
	eventually(r.t, "the end of top", func() bool {
		select {
		case <-r.done:
			return true
		default:
			return false
		}
	})
	return r.cmd.ProcessState.ExitCode()
}

// hasShellScreen waits until the shell has the terminal.
func (r *topRun) hasShellScreen() {
	r.t.Helper()
	eventually(r.t, "the shell's screen", func() bool {
		r.vt.mu.Lock()
		defer r.vt.mu.Unlock()
		return !r.vt.other && !r.vt.hidden && !r.vt.nowrap && r.modes().Lflag&unix.ICANON != 0
	})
}

func (r *topRun) isRestored() {
	r.t.Helper()
	eventually(r.t, "the terminal as it was", func() bool {
		r.vt.mu.Lock()
		defer r.vt.mu.Unlock()
		return !r.vt.other && !r.vt.hidden && !r.vt.nowrap && r.vt.look == "" && r.modes() == r.was
	})
	r.vt.mu.Lock()
	defer r.vt.mu.Unlock()
	if len(r.vt.strange) > 0 && r.cmd.ProcessState.ExitCode() != 2 {
		r.t.Errorf("the terminal was sent %q", r.vt.strange)
	}
}
