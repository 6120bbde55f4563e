//go:build !linux

package gap

import "syscall"

// ownGroup makes a process one that Ctrl-C does not reach, since the bench ends
// it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
