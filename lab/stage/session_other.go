//go:build !unix

package stage

import "syscall"

func sweeperAttr() *syscall.SysProcAttr { return nil }
