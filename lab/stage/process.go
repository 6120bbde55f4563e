package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Process is a [Worker] with a process of its own.
type Process struct {
	name    string
	cmd     *exec.Cmd
	in      *os.File
	out     mouth
	telling sync.Mutex
	said    *sayings
	errs    tail
	killed  atomic.Bool
	ended   chan struct{} // closed once the process was waited for
}

// StartProcess starts the worker's program in a process of its own: exe, with
// the spec as a last argument, must call [RunWorker]. It dies with this
// program, also if that is killed: its parent-death signal is bound to the
// thread that started it, so that thread is kept until the worker has ended.
// It stands in a process group of its own, so that Ctrl-C reaches this program
// alone, which then ends it. It is killed when ctx ends.
//
// Where [Signals] is false it returns an error.
func StartProcess(ctx context.Context, exe []string, spec WorkerSpec) (*Process, error) {
	if !Signals {
		return nil, errNoSignals
	}
	if err := spec.check(); err != nil {
		return nil, err
	}
	p := &Process{name: spec.Name, ended: make(chan struct{})}
	p.cmd = exec.Command(exe[0], append(append([]string(nil), exe[1:]...), spec.Arg())...)
	p.cmd.Stderr = &p.errs
	p.cmd.SysProcAttr = workerAttr()
	theirs, err := p.pipes()
	if err == nil {
		err = p.start(ctx)
		for _, f := range theirs {
			f.Close()
		}
	}
	if err != nil {
		p.in.Close()
		p.out.Close()
		return nil, fmt.Errorf("starting worker %s: %w", spec.Name, err)
	}
	context.AfterFunc(ctx, p.Kill)
	return p, nil
}

// pipes makes the pipes to and from the process, and returns its ends.
func (p *Process) pipes() (theirs []*os.File, err error) {
	read, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.in, p.cmd.Stdin = in, read
	out, write, err := os.Pipe()
	if err != nil {
		read.Close()
		return nil, err
	}
	p.out.File, p.cmd.Stdout = out, write
	return []*os.File{read, write}, nil
}

// start starts the process, and whoever listens to it.
func (p *Process) start(ctx context.Context) error {
	p.said = newSayings(ctx)
	err := startBound(p.cmd, p.listen)
	if err != nil {
		p.said.close()
	}
	return err
}

// listen passes on what the worker says, to its end, and waits for it.
func (p *Process) listen() {
	lines := bufio.NewScanner(&p.out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s Said
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			s = Said{Event: SaidError, Text: clip(fmt.Sprintf("not understood: %q", lines.Text()))}
		}
		p.said.put(s)
	}
	if lines.Err() != nil {
		_ = p.cmd.Process.Kill() // a line without an end: no worker says that
	}
	err := p.cmd.Wait()
	if !p.killed.Load() {
		text := strings.TrimSpace(p.errs.String())
		if text == "" {
			text = "it left no word on standard error"
		}
		p.said.put(Said{Event: SaidEnded, Text: clip(fmt.Sprintf("worker %s ended (%s): %s", p.name, endOf(err), text))})
	}
	p.in.Close()
	p.out.Close()
	p.said.close()
	close(p.ended)
}

func endOf(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// PID implements [Worker].
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Said implements [Worker].
func (p *Process) Said() <-chan Said { return p.said.to }

// maxWord is the longest word. A write of so many bytes to a pipe is done
// whole or not at all.
const maxWord = 4000

// Tell implements [Worker]. The pipe keeps the words while it stands still.
func (p *Process) Tell(words ...string) error {
	p.telling.Lock()
	defer p.telling.Unlock()
	for _, word := range words {
		if err := checkWord(word); err != nil {
			return err
		}
		_ = p.in.SetWriteDeadline(time.Now().Add(time.Second))
		_, err := io.WriteString(p.in, word+"\n")
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("worker %s (pid %d) has more words lying than it can take: %w", p.name, p.PID(), err)
		case err != nil:
			return fmt.Errorf("worker %s (pid %d): %w: %w", p.name, p.PID(), errGone, err)
		}
	}
	return nil
}

func checkWord(word string) error {
	if word == "" || len(word) > maxWord || strings.ContainsAny(word, "\r\n") {
		return fmt.Errorf("a word of %d bytes: want 1–%d, on one line", len(word), maxWord)
	}
	return nil
}

// Freeze implements [Worker] with SIGSTOP, and returns once the kernel says
// that every thread stands still.
func (p *Process) Freeze(ctx context.Context) error {
	if err := stop(p.cmd.Process); err != nil {
		return fmt.Errorf("stopping worker %s: %w", p.name, err)
	}
	gone := false
	stands := poll(ctx, func() bool {
		select {
		case <-p.ended:
			gone = true
		default:
		}
		// All that it said must have been taken from the pipe, too.
		return gone || p.StandsStill() && p.out.exhausted()
	})
	switch {
	case gone:
		return fmt.Errorf("stopping worker %s: %w", p.name, errGone)
	case !stands:
		return errors.Join(context.Cause(ctx), p.Thaw())
	}
	p.said.handed(ctx)
	return nil
}

// A mouth is the reading end of the pipe in which a worker says things.
type mouth struct {
	*os.File
	asking atomic.Bool // the reader has dealt with all that it got, and wants more
}

func (m *mouth) Read(b []byte) (int, error) {
	m.asking.Store(true)
	n, err := m.File.Read(b)
	m.asking.Store(false)
	return n, err
}

// exhausted reports whether nothing is in the pipe, nor with its reader.
func (m *mouth) exhausted() bool { return unread(m.File) == 0 && m.asking.Load() }

// StandsStill reports whether every thread of the process is stopped.
func (p *Process) StandsStill() bool { return standsStill(p.PID()) }

// Thaw implements [Worker] with SIGCONT.
func (p *Process) Thaw() error {
	if err := resume(p.cmd.Process); err != nil {
		return fmt.Errorf("waking worker %s: %w", p.name, err)
	}
	return nil
}

// Kill implements [Worker] with SIGKILL, which also ends a stopped process.
func (p *Process) Kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// tail is a writer that keeps the last bytes it was given.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 2048

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.buf), "")
}
