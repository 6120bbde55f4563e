package main

import (
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A topTerminal is a terminal that is drawn on. Between start and stop it shows
// another screen than the one with the shell's lines, without echo, and keys
// come one by one; Ctrl-C and Ctrl-Z stay signals. Its methods are for one
// goroutine; two more, of its own, write and read.
type topTerminal struct {
	in, out *os.File
	ownIn   bool // in was opened here
	before  unix.Termios
	on      bool
	frames  chan string   // what is to be written, together
	keys    chan topKey   // what was typed
	gone    chan error    // why nothing more can be written or read
	quit    chan struct{} // closed by stop
	wake    *os.File      // likewise, for who waits for a key
	workers *sync.WaitGroup
	guard   func(fn func()) // runs a worker
	close   func()
}

// What is sent at the start and at the end: the other screen, no cursor, no
// wrapping of long lines.
const (
	screenOn  = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	screenOff = "\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// openTopTerminal prepares out, and finds where keys come from; nil if there is
// no such place.
func openTopTerminal(out *os.File) *topTerminal {
	t := &topTerminal{in: os.Stdin, out: out, keys: make(chan topKey), gone: make(chan error, 2), guard: func(fn func()) { fn() }}
	if !isTerminal(int(os.Stdin.Fd())) {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return nil
		}
		t.in, t.ownIn = tty, true
	}
	before, err := unix.IoctlGetTermios(t.fd(), unix.TCGETS)
	if err != nil {
		return nil
	}
	t.before = *before
	t.close = sync.OnceFunc(func() {
		t.stop()
		if t.ownIn {
			_ = t.in.Close()
		}
	})
	return t
}

func (t *topTerminal) fd() int { return int(t.out.Fd()) }

// start takes the terminal over. In a background process it waits, as the kernel
// stops such a process, until that is in the foreground.
func (t *topTerminal) start() error {
	raw := t.before
	raw.Lflag &^= unix.ICANON | unix.ECHO | unix.ECHONL | unix.IEXTEN
	raw.Iflag &^= unix.IXON | unix.ICRNL | unix.INLCR | unix.IGNCR
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 0 // what is there, if anything
	if err := unix.IoctlSetTermios(t.fd(), unix.TCSETS, &raw); err != nil {
		return os.NewSyscallError("tcsetattr", err)
	}
	if !t.on {
		t.on = true
		if err := t.work(); err != nil {
			return err
		}
	}
	t.write(screenOn)
	return nil
}

// work starts who writes and who reads.
func (t *topTerminal) work() error {
	t.frames, t.quit, t.workers = make(chan string, 1), make(chan struct{}), new(sync.WaitGroup)
	woken, wake, err := os.Pipe()
	if err != nil {
		return err
	}
	t.wake = wake
	frames, quit := t.frames, t.quit
	t.workers.Go(func() { t.guard(func() { t.writeFrames(frames) }) })
	t.workers.Go(func() {
		defer woken.Close()
		t.guard(func() { t.tell(t.readKeys(int(woken.Fd()), quit)) })
	})
	return nil
}

// stop gives the terminal back as it was. If the terminal takes no more output,
// it does not wait for that. Nothing that is typed from now on is taken.
func (t *topTerminal) stop() {
	if !t.on {
		return
	}
	t.on = false
	close(t.frames)
	close(t.quit)
	t.wake.Close()
	idle, workers := make(chan struct{}), t.workers
	go func() {
		workers.Wait()
		close(idle)
	}()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
	if t.inForeground() { // else its modes are somebody else's by now
		withoutTTOU(func() { _ = unix.IoctlSetTermios(t.fd(), unix.TCSETS, &t.before) })
	}
}

// tell says, once, why the terminal is of no use any more.
func (t *topTerminal) tell(err error) {
	if err == nil {
		return
	}
	select {
	case t.gone <- err:
	default:
	}
}

// suspend gives the terminal back and stops this process, as Ctrl-Z does any
// other, until it is continued.
func (t *topTerminal) suspend() error {
	t.stop()
	stopSelf()
	if now, err := unix.IoctlGetTermios(t.fd(), unix.TCGETS); err == nil {
		t.before = *now
	}
	return t.start()
}

// inForeground reports whether the terminal is this process's to change.
func (t *topTerminal) inForeground() bool {
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// size is how many columns and rows the terminal has.
func (t *topTerminal) size() (w, h int) {
	ws, err := unix.IoctlGetWinsize(t.fd(), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return 80, 24
	}
	return int(ws.Col), int(ws.Row)
}

// write hands output over, and never waits for the terminal. What was handed
// over before, and is not written yet, comes first.
func (t *topTerminal) write(s string) {
	select {
	case old := <-t.frames:
		s = old + s
	default:
	}
	select {
	case t.frames <- s:
	default: // not reached: this is the only one who puts anything in
	}
}

// behind reports whether the terminal has not taken the last frame yet.
func (t *topTerminal) behind() bool { return len(t.frames) > 0 }

func (t *topTerminal) writeFrames(frames <-chan string) {
	for s := range frames {
		if _, err := t.out.WriteString(s); err != nil {
			t.tell(err)
			return
		}
	}
	withoutTTOU(func() { _, _ = t.out.WriteString(screenOff) })
}

// readKeys sends what is typed, until woken can be read.
func (t *topTerminal) readKeys(woken int, quit <-chan struct{}) error {
	var buf [256]byte
	var rest []byte
	fds := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}, {Fd: int32(woken), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
		if fds[1].Revents != 0 {
			return nil
		}
		n, err := unix.Read(int(t.in.Fd()), buf[:])
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0:
			return io.EOF
		}
		var typed []topKey
		typed, rest = parseKeys(append(rest, buf[:n]...))
		for _, k := range typed {
			select {
			case t.keys <- k:
			case <-quit:
				return nil
			}
		}
	}
}

// A topKey is one key: a character, or the name of another key.
type topKey struct {
	r    rune
	name string
}

var keySequences = map[string]string{
	"A": "up", "B": "down", "H": "home", "F": "end", "Z": "backtab",
	"1~": "home", "7~": "home", "4~": "end", "8~": "end", "5~": "pageup", "6~": "pagedown",
}

var controlKeys = map[byte]string{'\r': "enter", '\n': "enter", '\t': "tab", 0x7f: "erase", 0x08: "erase", 0x15: "kill", 0x0c: "redraw", 0x03: "quit", 0x04: "quit"}

// parseKeys takes keys from what was read, and returns what is the start of a
// character only. Sequences that mean nothing here are swallowed whole. An
// escape at the end is the key of that name.
func parseKeys(b []byte) (keys []topKey, rest []byte) {
	for len(b) > 0 {
		c := b[0]
		switch {
		case c == 0x1b && len(b) > 1 && (b[1] == '[' || b[1] == 'O'):
			end := 2
			for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
				end++
			}
			if name := keySequences[string(b[2:min(end+1, len(b))])]; name != "" {
				keys = append(keys, topKey{name: name})
			}
			b = b[min(end+1, len(b)):]
		case c == 0x1b:
			keys = append(keys, topKey{name: "escape"})
			b = b[1:]
		case c < 0x20 || c == 0x7f:
			if name := controlKeys[c]; name != "" {
				keys = append(keys, topKey{name: name})
			}
			b = b[1:]
		case c < 0x80:
			keys = append(keys, topKey{r: rune(c)})
			b = b[1:]
		case !utf8.FullRune(b):
			return keys, b // the rest of it is still to come
		default:
			r, n := utf8.DecodeRune(b)
			if r != utf8.RuneError {
				keys = append(keys, topKey{r: r})
			}
			b = b[n:]
		}
	}
	return keys, nil
}
