package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// bootNow reads the boot-time clock, which counts suspend.
func bootNow() instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("holdfast: no boot-time clock: " + err.Error()) // part of every Linux since 2.6.39
	}
	return time.Duration(ts.Nano())
}

// A bootTimer fires at an instant of the boot-time clock. A timer of package
// time would stand still while the machine is suspended, and a group would
// outlive its lease by that long after the machine wakes up.
type bootTimer struct {
	C    <-chan struct{}
	file *os.File
}

func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	c := make(chan struct{}, 1)
	t := &bootTimer{C: c, file: os.NewFile(uintptr(fd), "boot-time timer")}
	go func() {
		var buf [8]byte
		for {
			if _, err := t.file.Read(buf[:]); err != nil {
				return // closed
			}
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}()
	return t, nil
}

// set makes the timer fire at the instant; 0 stops it. An instant that has
// passed fires at once.
func (t *bootTimer) set(at instant) {
	var spec unix.ItimerSpec
	if at > 0 {
		spec.Value = unix.NsecToTimespec(int64(at))
	}
	conn, err := t.file.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
}

func (t *bootTimer) close() { t.file.Close() }
