package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Sweeper is a process that removes a directory once this program has ended,
// also if it was killed. It stands in a session of its own, does not heed the
// signals that end programs, and holds nothing of this program open but the
// end of a pipe, by which it learns of the end.
type Sweeper struct {
	dir  string
	info fs.FileInfo // of dir
	in   io.Closer
	cmd  *exec.Cmd
	errs tail
	once sync.Once
	err  error
}

// StartSweeper starts the sweeper of dir, which must come from [MakeDir]: exe,
// with dir as a last argument, must call [Sweep]. The caller ends it with
// Close.
func StartSweeper(dir string, exe []string) (*Sweeper, error) {
	info, err := recognise(dir)
	if err != nil {
		return nil, fmt.Errorf("starting the sweeper: %w", err)
	}
	s := &Sweeper{dir: dir, info: info}
	s.cmd = exec.Command(exe[0], append(append([]string(nil), exe[1:]...), dir)...)
	s.cmd.Stderr = &s.errs // a pipe of its own; standard output is the null device
	s.cmd.SysProcAttr = sweeperAttr()
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the sweeper: %w", err)
	}
	s.in = in
	if err := s.cmd.Start(); err != nil {
		in.Close()
		return nil, fmt.Errorf("starting the sweeper: %w", err)
	}
	return s, nil
}

// SweptDir makes a directory with [MakeDir], and starts its sweeper.
func SweptDir(kind string, exe []string) (dir string, s *Sweeper, err error) {
	if dir, err = MakeDir(kind); err != nil {
		return "", nil, err
	}
	if s, err = StartSweeper(dir, exe); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, s, nil
}

// PID is the sweeper's process ID.
func (s *Sweeper) PID() int { return s.cmd.Process.Pid }

// Close has the directory removed and waits until it is. Whatever writes there
// must have been stopped. It may be called again, and returns what it returned
// first. If the sweeper was ended by somebody, Close removes the directory.
func (s *Sweeper) Close() error {
	s.once.Do(func() {
		_ = s.in.Close()
		err := s.cmd.Wait()
		now, gone := os.Lstat(s.dir)
		if errors.Is(gone, fs.ErrNotExist) {
			return
		}
		if gone == nil && os.SameFile(s.info, now) {
			if gone = os.RemoveAll(s.dir); gone == nil {
				return
			}
		}
		s.err = fmt.Errorf("removing %s: %w", s.dir, errors.Join(gone, err, said(s.errs.String())))
	})
	return s.err
}

func said(text string) error {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return errors.New(text)
}

// sweepTime is how long Sweep goes on trying: processes that are just dying
// may still make files.
const sweepTime = 10 * time.Second

// Sweep is the program of a sweeper: it waits until in ends, and then removes
// dir. It refuses at once a directory that is not one of [MakeDir], or not in
// the directory for temporary files, and in the end one that is not the same
// any more. From its call on the process ignores the signals that end
// programs, and has closed what it was started with but the standard files.
// It returns when dir is gone, or ctx ends, or nothing helps.
func Sweep(ctx context.Context, dir string, in io.Reader) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	closeInherited()
	known, err := recognise(dir)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in) // an error ends it as well
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && !os.SameFile(known, now):
			return fmt.Errorf("%q will not be removed: it is another one than it was", dir)
		case err == nil:
			if err = os.RemoveAll(filepath.Clean(dir)); err == nil {
				continue // look whether it stays away
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%q is still there: %w", dir, err)
		case <-tick.C:
		}
	}
}
