package gap

import "syscall"

// ownGroup makes a process one that Ctrl-C does not reach, since the bench ends
// it, and that dies when the bench is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
