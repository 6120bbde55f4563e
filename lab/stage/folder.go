package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The names by which a directory of [MakeDir] is known again.
const (
	dirPrefix = "holdfast-"
	markFile  = ".holdfast-temporary"
)

// MakeDir makes an empty directory holdfast-KIND-… in the directory for
// temporary files, with a file in it that says that it may be removed. A
// [Sweeper] removes only such.
func MakeDir(kind string) (string, error) {
	made, err := os.MkdirTemp("", dirPrefix+kind+"-")
	if err != nil {
		return "", fmt.Errorf("no temporary directory: %w", err)
	}
	dir, err := filepath.Abs(made)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, markFile), []byte(dir+"\n"), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("no temporary directory: %w", errors.Join(err, os.RemoveAll(made)))
	}
	return dir, nil
}

// recognise returns what dir is on disk if it is one of [MakeDir], where
// MakeDir put it, and an error otherwise.
func recognise(dir string) (fs.FileInfo, error) {
	refuse := func(why string) error {
		return fmt.Errorf("%q will not be removed: %s", dir, why)
	}
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return nil, refuse("it is no plain absolute path")
	}
	if !strings.HasPrefix(filepath.Base(dir), dirPrefix) {
		return nil, refuse("its name does not begin with " + dirPrefix)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, refuse(err.Error())
	}
	if !info.IsDir() {
		return nil, refuse("it is no directory")
	}
	temp, err := filepath.Abs(os.TempDir())
	if err == nil {
		temp, err = filepath.EvalSymlinks(temp)
	}
	if err != nil {
		return nil, refuse(err.Error())
	}
	if filepath.Dir(dir) != temp {
		return nil, refuse("it is not in the directory for temporary files, " + temp)
	}
	mark := filepath.Join(dir, markFile)
	kind, err := os.Lstat(mark)
	if err != nil {
		return nil, refuse(err.Error())
	}
	if !kind.Mode().IsRegular() || kind.Size() > 1<<16 {
		return nil, refuse("its file " + markFile + " is none of ours")
	}
	text, err := os.ReadFile(mark)
	if err != nil {
		return nil, refuse(err.Error())
	}
	if string(text) != dir+"\n" {
		return nil, refuse("its file " + markFile + " names another directory")
	}
	return info, nil
}
