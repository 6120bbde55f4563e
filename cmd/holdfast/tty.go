package main

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A terminal is the controlling terminal of the wrapper's session. Its
// foreground process group may read it and gets its signals (Ctrl-C, Ctrl-Z);
// as the child has a process group of its own, the wrapper must hand the
// terminal over and take it back, as a shell does.
//
// The zero terminal stands for none: every method does nothing.
type terminal struct {
	fd    int
	own   int // the wrapper's process group
	given int // the group that the terminal was given to, or 0
}

// openTerminal finds the controlling terminal, if there is one.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return &terminal{fd: -1}
	}
	return &terminal{fd: fd, own: unix.Getpgrp()}
}

func (t *terminal) close() {
	if t.fd >= 0 {
		unix.Close(t.fd)
		t.fd = -1
	}
}

// ours reports whether the wrapper's group is in the foreground.
func (t *terminal) ours() bool { return t.fd >= 0 && t.foreground() == t.own }

// has reports whether pgid is the foreground group.
func (t *terminal) has(pgid int) bool { return t.fd >= 0 && t.foreground() == pgid }

func (t *terminal) foreground() int {
	pgid, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return pgid
}

// give makes pgid the foreground group, if the wrapper's group is it now.
func (t *terminal) give(pgid int) bool {
	if !t.ours() {
		return false
	}
	if t.set(pgid) != nil {
		return false
	}
	t.given = pgid
	return true
}

// takeBack makes the wrapper's group the foreground group again, if what it
// gave the terminal to still is. It reports whether that was so.
func (t *terminal) takeBack() bool {
	if t.fd < 0 || t.given == 0 || t.foreground() != t.given {
		return false
	}
	t.given = 0
	return t.set(t.own) == nil
}

func (t *terminal) set(pgid int) (err error) {
	withoutTTOU(func() { err = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgid) })
	return err
}

// withoutTTOU runs fn with SIGTTOU blocked on its thread: a process of a
// background group that touches the terminal would be stopped otherwise.
func withoutTTOU(fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, before unix.Sigset_t
	sig := uint(unix.SIGTTOU) - 1
	block.Val[sig/64] |= 1 << (sig % 64)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before) == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	}
	fn()
}

// stopSelf stops this process as the terminal's Ctrl-Z would, and returns when
// it is continued. In an orphaned process group (nobody could continue it) the
// kernel discards the signal, and stopSelf returns at once.
//
// Once a program has asked os/signal for SIGTSTP, nothing in that package
// brings its default action back, so the system call does.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before sigaction
	if sigactionFor(unix.SIGTSTP, &sigaction{}, &before) != nil {
		return
	}
	// To this very thread, so that it is delivered before the call returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
	_ = sigactionFor(unix.SIGTSTP, &before, nil)
}

// sigaction is the kernel's struct of that name; the zero one is the default
// action. It is only ever handed back as the kernel gave it.
type sigaction struct{ handler, flags, restorer, mask uint64 }

func sigactionFor(s unix.Signal, set, before *sigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(before)), 8, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("rt_sigaction", errno)
	}
	return nil
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}
