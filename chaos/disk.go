//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// small is the server whose disk can be filled up: the last one. Its data are on
// a file system of their own, of diskSize: with less than some 50 MB left (three
// segments of the log, and two snapshots) a server takes no more entries.
func (r *run) small() *server { return r.servers[len(r.servers)-1] }

const diskSize = 256 << 20

// mount makes the small disk; it needs root.
func (r *run) mount() error {
	if !r.real {
		return nil
	}
	v := r.small()
	if err := unix.Mount("holdfast-chaos", v.data, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		return fmt.Errorf("a small file system at %s: %w", v.data, err)
	}
	return nil
}

// ballast is the file that fills the disk.
func (v *server) ballast() string { return v.data + "/ballast" }

// fill leaves so many bytes on the disk.
func (v *server) fill(leave uint64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(v.data, &st); err != nil {
		return err
	}
	free := st.Bavail * uint64(st.Bsize)
	if free <= leave {
		return nil
	}
	f, err := os.OpenFile(v.ballast(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, int64(free-leave))
	return errors.Join(err, f.Close())
}

// unmountBelow unmounts what is mounted in a directory, and removes it not.
func unmountBelow(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var all error
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			all = errors.Join(all, unix.Unmount(fields[4], unix.MNT_DETACH))
		}
	}
	return all
}
