package stage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signals reports whether processes can be made to stand still by a signal
// here, and die with the program that started them. Where it is false, only
// [StartInProcess] works.
const Signals = true

var errNoSignals = errors.New("this system has no such signals")

// Self is the path of this very program, also if its file was replaced.
func Self() (string, error) { return "/proc/self/exe", nil }

// workerAttr makes a worker die with the thread that started it, and keeps
// the terminal's signals from it.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func stop(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// standsStill reports whether every thread of the process is stopped.
func standsStill(pid int) bool {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, task.Name()))
		if err != nil {
			continue // the thread has just ended
		}
		// The state follows the command's name, which is in parentheses
		// and may contain anything.
		after := stat[bytes.LastIndexByte(stat, ')')+1:]
		if state := bytes.TrimLeft(after, " "); len(state) == 0 || state[0] != 'T' {
			return false
		}
	}
	return true
}

// unread is how many bytes lie in the pipe; -1 if that is not known.
func unread(pipe *os.File) int {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return -1
	}
	n := -1
	err = conn.Control(func(fd uintptr) {
		if have, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			n = have
		}
	})
	if err != nil {
		return -1
	}
	return n
}
