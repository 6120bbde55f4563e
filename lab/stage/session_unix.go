//go:build unix

package stage

import "syscall"

// sweeperAttr puts the sweeper into a session of its own: no terminal and no
// signal to a process group reaches it.
func sweeperAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
