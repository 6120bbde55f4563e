package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The hidden subcommands. They are parsed by hand, before cobra, because what
// follows is the user's argv, byte for byte.
const (
	guardCommand = "__guard" // FDS GRACE PATH ARGV…
	childCommand = "__child" // FD PARENT PATH ARGV…
)

func init() {
	// Parent-death signals are tied to threads: the one that forks must live
	// on, and the one that execs must be the one that was forked. Both are the
	// main thread, and only an init function can pin to it.
	if len(os.Args) > 1 && (os.Args[1] == guardCommand || os.Args[1] == childCommand) {
		runtime.LockOSThread()
	}
}

// hiddenMain runs a hidden subcommand, if args name one.
func hiddenMain(args []string) (int, bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case guardCommand:
		return guardMain(args[1:]), true
	case childCommand:
		return childMain(args[1:]), true
	case simCommand:
		return simMain(args[1:]), true
	}
	return 0, false
}

// spawnSelf starts this very binary, also if its file was replaced meanwhile,
// with the own standard files and the given descriptors under their own
// numbers. It does not use ExtraFiles: these would take the places 3, 4, …,
// which belong to what the user lets the command inherit.
func spawnSelf(argv, env []string, sys *syscall.SysProcAttr, fds ...int) (pid int, err error) {
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return 0, os.NewSyscallError("fcntl", err)
		}
	}
	attr := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, _, err = syscall.StartProcess("/proc/self/exe", append([]string{os.Args[0]}, argv...), attr)
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	return pid, nil
}

// adoptFDs takes over descriptors that the parent passed by number.
func adoptFDs(list string) ([]int, error) {
	var fds []int
	for _, s := range strings.Split(list, ",") {
		fd, err := strconv.Atoi(s)
		if err != nil || fd < 3 {
			return nil, fmt.Errorf("descriptor %q: this subcommand is started by 'holdfast run' only", s)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return nil, fmt.Errorf("descriptor %d is not open: this subcommand is started by 'holdfast run' only", fd)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// raiseAbove moves fd to a number above floor.
func raiseAbove(fd, floor int) (int, error) {
	if fd > floor {
		return fd, nil
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, floor+1)
	if err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	unix.Close(fd)
	return high, nil
}

// A tie is a pair of pipes that nobody ever writes to: each of wrapper and
// guardian holds the read end of one and the write end of the other. The read
// ends are armed with the child's process group (see armTie), so that the
// kernel kills the group when either holder ends, whatever the other is doing:
// it may be stopped, or dying of the same kill -9.
//
// If both die at once, at least one close of a write end must find the other
// holder's read end still open. The kernel closes a dying process's files from
// the highest number down, so each holder keeps its write end above its read
// end: each then notifies before it stops listening, and of two that do so in
// this order the first to notify is heard.
type tie struct {
	wrapperRead, wrapperWrite   int
	guardianRead, guardianWrite int
}

func newTie() (t tie, err error) {
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	var a, b [2]int
	if err := unix.Pipe2(a[:], unix.O_CLOEXEC); err != nil {
		return t, os.NewSyscallError("pipe", err)
	}
	t.wrapperRead, t.guardianWrite = a[0], a[1]
	if err := unix.Pipe2(b[:], unix.O_CLOEXEC); err != nil {
		return t, os.NewSyscallError("pipe", err)
	}
	t.guardianRead, t.wrapperWrite = b[0], b[1]
	high, err := raiseAbove(t.wrapperWrite, t.wrapperRead)
	if err != nil {
		return t, err
	}
	t.wrapperWrite = high
	if high, err = raiseAbove(t.guardianWrite, t.guardianRead); err != nil {
		return t, err
	}
	t.guardianWrite = high
	return t, nil
}

// passed closes the guardian's ends in this process, once the guardian has
// them.
func (t *tie) passed() { closeAll(&t.guardianRead, &t.guardianWrite) }

// close gives up all ends that this process has.
func (t *tie) close() {
	closeAll(&t.wrapperRead, &t.wrapperWrite, &t.guardianRead, &t.guardianWrite)
}

// closeAll closes descriptors and forgets them; 0 is none.
func closeAll(fds ...*int) {
	for _, fd := range fds {
		if *fd != 0 {
			unix.Close(*fd)
			*fd = 0
		}
	}
}

// armTie makes the kernel send SIGKILL to the process group pgid when the last
// write end of the pipe behind fd is closed. The kernel keeps the identity of
// the group, not its number: a later group of the same number is not meant.
func armTie(fd, pgid int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETOWN, -pgid); err != nil {
		return os.NewSyscallError("fcntl F_SETOWN", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(unix.SIGKILL)); err != nil {
		return os.NewSyscallError("fcntl F_SETSIG", err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_ASYNC)
	}
	return os.NewSyscallError("fcntl O_ASYNC", err)
}

// dropStdio points the own standard input and output at /dev/null, so that
// only the child decides when a pipe behind them ends.
func dropStdio() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_ = unix.Dup3(null, 0, 0)
	_ = unix.Dup3(null, 1, 0)
	unix.Close(null)
}

// childMain is the stub that becomes the user's command. It waits for the word
// of the guardian, so that the command's first instruction runs when everything
// that would end it stands.
func childMain(args []string) int {
	if len(args) < 4 {
		fmt.Fprintln(os.Stderr, "holdfast: this subcommand is started by 'holdfast run' only")
		return exitUsage
	}
	fds, err := adoptFDs(args[0])
	parent, err2 := strconv.Atoi(args[1])
	if err != nil || err2 != nil || len(fds) != 1 {
		fmt.Fprintln(os.Stderr, "holdfast: this subcommand is started by 'holdfast run' only")
		return exitUsage
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil || unix.Getppid() != parent {
		return exitFailure
	}
	var word [1]byte
	if n, err := readRetry(fds[0], word[:]); n != 1 || err != nil {
		return exitFailure // the guardian is gone, or thought better of it
	}
	err = syscall.Exec(args[2], args[3:], os.Environ())
	errno, _ := err.(syscall.Errno)
	_, _ = unix.Write(fds[0], []byte{byte(errno)})
	return exitNotExec
}

func readRetry(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if err != unix.EINTR {
			return n, err
		}
	}
}
