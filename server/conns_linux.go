package server

import "golang.org/x/sys/unix"

// fileLimit is how many files this process may have open.
func fileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // what every system grants
	}
	return limit.Cur
}
