//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// now is the machine's time since boot, in nanoseconds. All processes share it.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // there is such a clock
	}
	return ts.Nano()
}

// clock is now for the client library.
func clock() time.Duration { return time.Duration(now()) }

// pause waits; false says that ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A process is one child.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it was waited for
	said  string        // file with what it printed
}

// start starts a program in a namespace ("": this one's), with what it prints
// appended to a file. The kernel kills it when this program dies.
func start(ns, said string, argv ...string) (*process, error) {
	if ns != "" {
		argv = append([]string{"ip", "netns", "exec", ns}, argv...)
	}
	out, err := os.OpenFile(said, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{}), said: said}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The parent-death signal comes when this thread ends, so it stays.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.ended)
		}
	}()
	return p, <-started
}

// signal sends a signal.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // it may have ended

// running reports whether it has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end signals it and waits; after so long, it is killed.
func (p *process) end(sig syscall.Signal, patience time.Duration) error {
	p.signal(sig)
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-p.ended:
		return nil
	case <-t.C:
		p.signal(syscall.SIGKILL)
		<-p.ended
		return fmt.Errorf("process %d did not end within %v of %v", p.cmd.Process.Pid, patience, sig)
	}
}
