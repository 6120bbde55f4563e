//go:build !linux

package stage

import (
	"errors"
	"os"
	"syscall"
)

// Signals reports whether processes can be made to stand still by a signal
// here, and die with the program that started them. Where it is false, only
// [StartInProcess] works.
const Signals = false

var errNoSignals = errors.New("workers with processes of their own need Linux: they must die with the program that started them")

// Self is the path of this very program.
func Self() (string, error) { return os.Executable() }

func workerAttr() *syscall.SysProcAttr { return nil }
func stop(*os.Process) error           { return errNoSignals }
func resume(*os.Process) error         { return errNoSignals }
func standsStill(int) bool             { return false }
func unread(*os.File) int              { return -1 }
