package stage

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeInherited closes every file but the standard ones that this process was
// started with: a pipe that a shell passed on would not end while the sweeper
// holds it. What Go itself has opened since is marked to be closed at exec, and
// what was inherited cannot be.
func closeInherited() {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
