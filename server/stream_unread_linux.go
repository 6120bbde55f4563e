package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread is how many bytes the kernel holds for a connection; 0 also if that
// cannot be asked.
func unread(c net.Conn) (n int) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if v, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			n = v
		}
	})
	return n
}
