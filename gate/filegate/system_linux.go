package filegate

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func supported() error { return nil }

// lockFile takes the flock of f's file for f, or fails at once with
// EWOULDBLOCK if another has it. It ends with f, whatever ends the process.
func lockFile(f *os.File) error { return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) }

func unlockFile(f *os.File) error { return flock(f, syscall.LOCK_UN) }

func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			if failed = syscall.Flock(int(fd), how); failed != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// weak names the file systems, by the number that statfs gives, on which a
// flock is known not to keep all others out, or not always.
var weak = map[uint32]string{
	0x6969:     "NFS",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x517b:     "SMB",
	0x564c:     "NCP",
	0x5346414f: "AFS",
	0x73757245: "Coda",
	0x01021997: "9P",
	0x65735546: "FUSE",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x786f4256: "VirtualBox's shared folders",
	0xbacbacbc: "VMware's shared folders",
	0x4d44:     "FAT",
	0x2011bab0: "exFAT",
}

// checkFileSystem refuses the file systems of which that is known.
func checkFileSystem(dir string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return err
	}
	return checkMagic(uint32(s.Type))
}

func checkMagic(magic uint32) error {
	if name, ok := weak[magic]; ok {
		return cannot("it lies on %s (%#x), where a lock need not hold against everybody who reaches the file: use a local disk, or set TrustLocks if you know better", name, magic)
	}
	return nil
}

// keepOwner gives f the owner of info if it has another and that is allowed.
func keepOwner(f *os.File, info fs.FileInfo) {
	want, ok := info.Sys().(*syscall.Stat_t)
	own, err := f.Stat()
	if !ok || err != nil {
		return
	}
	if have, ok := own.Sys().(*syscall.Stat_t); ok && (have.Uid != want.Uid || have.Gid != want.Gid) {
		_ = f.Chown(int(want.Uid), int(want.Gid)) // only root may
	}
}

// lockHolder names the process that has the lock of f's file, or "".
func lockHolder(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	list, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer list.Close()
	// 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
	suffix := ":" + strconv.FormatUint(s.Ino, 10)
	for lines := bufio.NewScanner(list); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], suffix) {
			continue
		}
		pid, err := strconv.Atoi(fields[4])
		if err != nil {
			continue
		}
		return describe(pid)
	}
	return ""
}

// describe names a process and says whether it is stopped.
func describe(pid int) string {
	if pid <= 0 {
		return "a process of another container"
	}
	text := fmt.Sprintf("process %d", pid)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return text
	}
	// 1234 (name) T …; the name may have brackets of its own.
	open, shut := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
	if open < 0 || shut < open || shut+2 >= len(stat) {
		return text
	}
	text += " (" + string(stat[open+1:shut])
	if stat[shut+2] == 'T' {
		text += ", stopped"
	}
	return text + ")"
}
