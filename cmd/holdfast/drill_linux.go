package main

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// workerAttr makes a worker die with the thread that started it, and keeps
// the terminal's signals from it.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// standsStill reports whether every thread of the process is stopped.
func standsStill(pid int) bool {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, task.Name()))
		if err != nil {
			continue // the thread has just ended
		}
		// The state follows the command's name, which is in parentheses
		// and may contain anything.
		after := stat[bytes.LastIndexByte(stat, ')')+1:]
		if state := bytes.TrimLeft(after, " "); len(state) == 0 || state[0] != 'T' {
			return false
		}
	}
	return true
}
