package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A simProcess is a process in which worlds happen, one after the other.
type simProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr *lastWords
}

// simWorldTime is how long a world may take, with its shrinking. One that takes
// longer is as bad as one that violates a property.
const simWorldTime = 5 * time.Minute

// startSimProcess starts this very binary. It ends when its input does, so also
// when this process dies.
func startSimProcess(transcript *os.File) (*simProcess, error) {
	p := &simProcess{cmd: exec.Command("/proc/self/exe", simCommand, strconv.Itoa(os.Getpid())), stderr: &lastWords{}}
	p.cmd.Stderr = p.stderr
	if transcript != nil {
		p.cmd.ExtraFiles = []*os.File{transcript}
	}
	p.cmd.WaitDelay = time.Second
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, json.NewDecoder(out)
	return p, p.cmd.Start()
}

// run lets one world happen. If the process ends over it, the error says how.
func (p *simProcess) run(o simOrder) (r simReport, err error) {
	// The stacks of all goroutines are its last words.
	late := time.AfterFunc(simWorldTime, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	if err = json.NewEncoder(p.in).Encode(o); err == nil {
		err = p.out.Decode(&r)
	}
	if err != nil {
		p.in.Close()
		return r, errors.Join(fmt.Errorf("its process ended: %w", p.cmd.Wait()), p.stderr.error())
	}
	return r, nil
}

// end ends the process, whatever it does.
func (p *simProcess) end() {
	p.in.Close()
	hurry := time.AfterFunc(2*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer hurry.Stop()
	_ = p.cmd.Wait()
}

// lastWords keeps the beginning of what a process says on standard error.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 16 << 10
	l.text = append(l.text, b[:min(len(b), most-len(l.text))]...)
	return len(b), nil
}

func (l *lastWords) error() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.text) == 0 {
		return nil
	}
	return errors.New(string(l.text))
}

// A simOutcome is what became of the world of a seed.
type simOutcome struct {
	seed   uint64
	report simReport
	err    error // its process did not survive it
}

// A simFleet runs many worlds, one process a core.
type simFleet struct {
	next     func() (simOrder, bool) // the next world
	shrink   func() bool             // whether one more failure is to be shrunk
	outcomes chan simOutcome
	mu       sync.Mutex // of next and shrink
}

// start starts the processes; outcomes is closed when all have ended.
func (f *simFleet) start(ctx context.Context, processes int) {
	var all sync.WaitGroup
	for range processes {
		all.Go(func() { f.work(ctx) })
	}
	go func() {
		all.Wait()
		close(f.outcomes)
	}()
}

// work runs worlds in one process, and in another one should that not survive.
func (f *simFleet) work(ctx context.Context) {
	for ctx.Err() == nil {
		p, err := startSimProcess(nil)
		if err != nil {
			f.outcomes <- simOutcome{err: &simStartError{err}}
			return
		}
		stop := context.AfterFunc(ctx, func() { p.in.Close() })
		more := f.workIn(ctx, p)
		stop()
		p.end()
		if !more {
			return
		}
	}
}

// workIn runs worlds until there is none left (false), or the process ended.
func (f *simFleet) workIn(ctx context.Context, p *simProcess) bool {
	for {
		order, ok := f.take()
		if !ok {
			return false
		}
		r, err := p.run(order)
		if ctx.Err() != nil {
			return false
		}
		if err == nil && len(r.Result.Violations) > 0 && f.mayShrink() {
			order.Shrink = true
			if again, err := p.run(order); err == nil {
				r = again
			}
		}
		if ctx.Err() != nil {
			return false
		}
		f.outcomes <- simOutcome{order.Setup.Seed, r, err}
		if err != nil {
			return true
		}
	}
}

func (f *simFleet) take() (simOrder, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next()
}

func (f *simFleet) mayShrink() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shrink()
}

// A simStartError says that no process could be started.
type simStartError struct{ error }
