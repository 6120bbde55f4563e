package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A childChange says that the child was stopped, or has ended.
type childChange struct {
	stopped   bool
	signalled bool // ended by a signal
	status    int  // the exit code, or the signal
}

// followChild tells each change of the child's state, the last one its end. It
// leaves the ended child a zombie.
func followChild(pid int, to chan<- childChange) {
	for {
		code, status, err := waitid(pid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT)
		switch {
		case err == unix.EINTR:
		case err != nil:
			// Someone else reaped it. It is gone, and how is not known.
			to <- childChange{signalled: true, status: int(unix.SIGKILL)}
			return
		case code == cldStopped || code == cldTrapped:
			if _, _, err := waitid(pid, unix.WSTOPPED|unix.WNOHANG); err == nil {
				to <- childChange{stopped: true, status: status}
			}
		default:
			to <- childChange{signalled: code != cldExited, status: status}
			return
		}
	}
}

// What si_code says of a child.
const (
	cldExited  = 1
	cldTrapped = 4
	cldStopped = 5
)

// waitid is the system call of that name for one process. It returns si_code
// and si_status.
func waitid(pid, options int) (code, status int, err error) {
	var info [32]int32 // siginfo_t
	_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)), uintptr(options), 0, 0)
	if errno != 0 {
		return 0, 0, errno
	}
	// si_signo, si_errno, si_code, padded to a word; then si_pid, si_uid,
	// si_status.
	const union = (8 + unsafe.Sizeof(uintptr(0))) / 4
	code, status = int(info[2]), int(info[union+2])
	return code, status, nil
}

// ownChildren lists the children of this process, adopted ones included.
func ownChildren() []int {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	var pids []int
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if len(files) > 0 {
		return pids
	}
	all, err := processes() // a kernel without that file
	if err != nil {
		return nil
	}
	for _, p := range all {
		if p.ppid == os.Getpid() {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// setProcessName sets what ps and /proc show as the process's short name.
func setProcessName(name *[16]byte) error {
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
}
