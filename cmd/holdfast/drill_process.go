package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A process is one worker process as the drill sees it.
type process struct {
	name  string
	value string
	cmd   *exec.Cmd
	in    io.WriteCloser
	errs  bytes.Buffer
	quit  chan struct{} // closed when nobody listens any more
	ended chan struct{} // closed once the process was waited for
	stop  func()        // ends the process, however it stands; idempotent
}

// A heard is one line that a worker said, or its end.
type heard struct {
	from *process
	said said
	end  bool
}

// startProcess starts a worker. It dies with the drill, also if the drill is
// killed: its parent-death signal is bound to the thread that started it, so
// that thread is kept until the worker has ended. It stands in a process group
// of its own, so that Ctrl-C reaches the drill alone, which then ends it.
func startProcess(name, value string, args []string, tell chan<- heard) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, value: value, quit: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = exec.Command(exe, args...)
	p.cmd.Stderr = &p.errs
	p.cmd.SysProcAttr = workerAttr()
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.listen(out, tell)
		_ = p.cmd.Wait()
		close(p.ended)
		p.pass(tell, heard{from: p, end: true})
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting worker %s: %w", name, err)
	}
	p.stop = sync.OnceFunc(func() {
		close(p.quit)
		p.in.Close()
		_ = p.cmd.Process.Kill() // SIGKILL also ends a stopped process
		<-p.ended
	})
	return p, nil
}

func (p *process) listen(out io.Reader, tell chan<- heard) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var s said
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			s = said{Event: saidError, Text: fmt.Sprintf("not understood: %q", lines.Text())}
		}
		p.pass(tell, heard{from: p, said: s})
	}
}

func (p *process) pass(tell chan<- heard, h heard) {
	select {
	case tell <- h:
	case <-p.quit:
	}
}

// tell hands the worker a word. It is buffered by the pipe, so it may be told
// while it is stopped.
func (p *process) tell(words ...string) error {
	for _, word := range words {
		if _, err := io.WriteString(p.in, word+"\n"); err != nil {
			return fmt.Errorf("worker %s (pid %d) is gone: %w", p.name, p.cmd.Process.Pid, err)
		}
	}
	return nil
}

// freeze stops the process with SIGSTOP and returns once the kernel says that
// it stands still.
func (p *process) freeze(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stopping worker %s: %w", p.name, err)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !standsStill(p.cmd.Process.Pid) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.ended:
			return fmt.Errorf("worker %s ended: %s", p.name, p.errs.String())
		case <-tick.C:
		}
	}
	return nil
}

// thaw lets the process go on.
func (p *process) thaw() error {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("waking worker %s: %w", p.name, err)
	}
	return nil
}
