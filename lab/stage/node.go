package stage

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
)

// A Node is a process that serves locks: one of a cluster of its own.
type Node struct {
	name   string
	cmd    *exec.Cmd
	errs   tail
	killed atomic.Bool
	err    error         // of the wait; set before ended is closed
	ended  chan struct{} // closed once the process was waited for
}

// StartNode starts a program that serves locks in a process of its own, with
// this environment. It dies with this program, and keeps out of the terminal's
// way, as [StartProcess] says. It is killed when ctx ends.
//
// Where [Signals] is false it returns an error.
func StartNode(ctx context.Context, name string, command, env []string) (*Node, error) {
	if !Signals {
		return nil, errNoSignals
	}
	n := &Node{name: name, cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	n.cmd.Env = env
	n.cmd.Stderr = &n.errs
	n.cmd.SysProcAttr = workerAttr()
	err := startBound(n.cmd, func() {
		n.err = n.cmd.Wait()
		close(n.ended)
	})
	if err != nil {
		return nil, fmt.Errorf("starting node %s: %w", name, err)
	}
	context.AfterFunc(ctx, n.Kill)
	return n, nil
}

// PID is its process ID.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Kill ends it at once with SIGKILL, and waits for its end.
func (n *Node) Kill() {
	n.killed.Store(true)
	_ = n.cmd.Process.Kill()
	<-n.ended
}

// Ended returns nil while the process runs, and after Kill; else an error that
// says how it ended, and what it left on standard error.
func (n *Node) Ended() error {
	select {
	case <-n.ended:
	default:
		return nil
	}
	if n.killed.Load() {
		return nil
	}
	text := strings.TrimSpace(n.errs.String())
	if text == "" {
		text = "it left no word on standard error"
	}
	return fmt.Errorf("node %s ended (%s): %s", n.name, endOf(n.err), text)
}

// startBound starts a command from a thread that lives until tend has returned,
// which it calls once the command runs: the parent-death signal is bound to
// that thread.
func startBound(cmd *exec.Cmd, tend func()) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			tend()
		}
	}()
	return <-started
}
