//go:build !linux

package filegate

import (
	"errors"
	"io/fs"
	"os"
)

var errLinux = errors.New("not on this system")

func supported() error {
	return cannot("the gate needs Linux's flock, rename and sync, which are proven there only")
}

func lockFile(*os.File) error { return errLinux }

func unlockFile(*os.File) error { return errLinux }

func checkFileSystem(string) error { return errLinux }

func keepOwner(*os.File, fs.FileInfo) {}

func lockHolder(*os.File) string { return "" }
