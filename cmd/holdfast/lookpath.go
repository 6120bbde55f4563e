package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// searchPath is where commands are looked for: in PATH, else where execvp(3)
// looks when there is no PATH, as under env -i.
func searchPath() string {
	if path, ok := os.LookupEnv("PATH"); ok {
		return path
	}
	return "/bin:/usr/bin"
}

// findCommand looks a command up as execvp(3) would, and checks that it can be
// executed, before a lock is asked for: with --once-per, a run that fails to
// start would close the lock for the whole period.
func findCommand(name, pathVar string) (string, error) {
	if name == "" {
		return "", withCode(exitNotFound, errors.New("the command's name is empty: want a program after --"))
	}
	if strings.ContainsRune(name, '/') {
		return name, checkCommand(name, name)
	}
	var denied error
	for dir := range strings.SplitSeq(pathVar, ":") {
		if dir == "" {
			dir = "."
		}
		path := dir + "/" + name
		err := checkCommand(name, path)
		if err == nil {
			return path, nil
		}
		if exitCode(err) == exitNotExec && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", withCode(exitNotFound, fmt.Errorf("command %q not found in PATH; nothing was acquired", name))
}

// checkCommand says whether path can be executed.
func checkCommand(name, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return withCode(exitNotFound, fmt.Errorf("command %q not found; nothing was acquired", name))
	case err != nil:
		return withCode(exitNotExec, fmt.Errorf("command %q cannot be executed: %w; nothing was acquired", name, err))
	case info.IsDir():
		return withCode(exitNotExec, fmt.Errorf("command %q cannot be executed: %s is a directory; nothing was acquired", name, path))
	case unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) != nil || info.Mode()&0o111 == 0:
		return withCode(exitNotExec, fmt.Errorf("command %q cannot be executed: no execute permission on %s; nothing was acquired", name, path))
	case !info.Mode().IsRegular():
		return withCode(exitNotExec, fmt.Errorf("command %q cannot be executed: %s is not a regular file; nothing was acquired", name, path))
	}
	return checkInterpreter(name, path)
}

// checkInterpreter follows the first line of a script, which execve(2) would.
// A file that cannot be read may still be a program.
func checkInterpreter(name, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	first, err := bufio.NewReaderSize(file, 256).ReadSlice('\n')
	if err != nil && len(first) == 0 {
		return withCode(exitNotExec, fmt.Errorf("command %q cannot be executed: %s is empty; nothing was acquired", name, path))
	}
	rest, isScript := strings.CutPrefix(string(first), "#!")
	if !isScript {
		return nil
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return withCode(exitNotExec, fmt.Errorf("command %q cannot be executed: the first line of %s names no interpreter; nothing was acquired", name, path))
	}
	if info, err := os.Stat(fields[0]); err != nil || info.IsDir() {
		return withCode(exitNotFound, fmt.Errorf("command %q cannot be executed: its interpreter %q is not found; nothing was acquired", name, fields[0]))
	}
	return nil
}

// startError names the command for an error of starting the processes around
// it that is the command line's own fault.
func startError(path string, errno int, err error) error {
	if syscall.Errno(errno) == unix.E2BIG {
		return &execError{path: path, errno: unix.E2BIG}
	}
	return err
}

// An execError says why a command could not be executed.
type execError struct {
	path  string
	errno syscall.Errno
}

func (e *execError) Error() string {
	switch e.errno {
	case unix.ENOEXEC:
		return fmt.Sprintf("%s is not executable: it is neither a program nor a script that names its interpreter (#!); run it as: sh %s", e.path, e.path)
	case unix.E2BIG:
		return fmt.Sprintf("%s: the arguments and the environment are too long for the system", e.path)
	}
	return fmt.Sprintf("%s cannot be executed: %v", e.path, e.errno)
}

func (e *execError) exitCode() int {
	if e.errno == unix.ENOENT {
		return exitNotFound
	}
	return exitNotExec
}
