package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/store"
)

var (
	// ErrNotEmpty: the directory to make holds something already.
	ErrNotEmpty = errors.New("directory is not empty")
	// ErrPlace: the directory cannot be made there.
	ErrPlace = errors.New("cannot make the directory there")
)

// unfinished is the end of the name of a directory that is being made.
const unfinished = ".restoring"

// A directory is a data directory in the making: beside its place, until one
// rename puts it there.
type directory struct {
	place, beside string
	step          func(name string) error
	store         *store.Store
	lock          *os.File // of beside
	done          bool     // it is at its place
}

// newDirectory checks the place and begins a directory beside it. What an
// earlier attempt left beside it is removed.
func newDirectory(o Options) (*directory, error) {
	d := &directory{step: o.Step}
	if d.step == nil {
		d.step = func(string) error { return nil }
	}
	if err := d.choose(o.Dir); err != nil {
		return nil, err
	}
	if err := d.claim(); err != nil {
		return nil, err
	}
	err := d.step("open")
	if err == nil {
		d.store, err = store.Open(store.Options{Dir: d.beside, Logger: o.Logger, Fault: d.step})
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// choose finds out where the directory goes, and refuses a place that holds
// anything.
func (d *directory) choose(dir string) error {
	if dir == "" {
		return fmt.Errorf("%w: its name is empty", ErrPlace)
	}
	place, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPlace, err)
	}
	if real, err := filepath.EvalSymlinks(place); err == nil {
		place = real
	} else if _, err := os.Lstat(place); err == nil {
		return fmt.Errorf("%w: %s is a link to nowhere", ErrPlace, place)
	}
	d.place, d.beside = place, place+unfinished
	if node, inside := insideNode(place); inside {
		return fmt.Errorf("%w: %s lies inside %s, which is a node's data directory, and stays as it is: choose a place of its own", ErrPlace, place, node)
	}
	names, err := os.ReadDir(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			return fmt.Errorf("%w: %w", ErrPlace, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrPlace, err)
	case len(names) > 0:
		return fmt.Errorf("%w: %s holds %s: nothing in it was touched; stop the server that uses it, move it away (mv %s %s.before), and try again; or choose another directory",
			ErrNotEmpty, place, names[0].Name(), place, place)
	}
	return nil
}

// insideNode finds out whether place, which may not exist, lies inside a node's
// data directory.
func insideNode(place string) (node string, inside bool) {
	up := filepath.Dir(place)
	for up != filepath.Dir(up) {
		real, err := filepath.EvalSymlinks(up)
		if err == nil {
			up = real
			break
		}
		up = filepath.Dir(up)
	}
	for ; ; up = filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(up, "META")); err == nil {
			if _, err := os.Stat(filepath.Join(up, "LOCK")); err == nil {
				return up, true
			}
		}
		if up == filepath.Dir(up) {
			return "", false
		}
	}
}

// claim makes the directory beside the place, locked until close. One that an
// earlier attempt left is removed, unless that attempt is still at work.
func (d *directory) claim() error {
	for range 2 {
		if err := d.step("make"); err != nil {
			return err
		}
		err := os.Mkdir(d.beside, 0o700)
		isNew := err == nil
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: %w", ErrPlace, err)
		}
		if d.lock, err = lockDir(d.beside); err != nil {
			return err
		}
		if isNew {
			return nil
		}
		err = d.sweep()
		d.lock.Close()
		d.lock = nil
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: another attempt began at %s at this moment: try again", ErrPlace, d.beside)
}

// lockDir locks a directory for this process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlace, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		// It may have been removed by who had the lock before.
		var is, was os.FileInfo
		if was, err = f.Stat(); err == nil {
			is, err = os.Stat(dir)
		}
		if err == nil && !os.SameFile(is, was) {
			err = syscall.EWOULDBLOCK
		}
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: another process is at work at %s: wait for its end", ErrPlace, dir)
	}
	return nil, fmt.Errorf("%w: locking %s: %w", ErrPlace, dir, err)
}

// sweep removes what an attempt that was cut short left.
func (d *directory) sweep() error {
	names, err := os.ReadDir(d.beside)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPlace, err)
	}
	for _, e := range names {
		switch name := e.Name(); {
		case name == "LOCK", name == "META", name == "META.new", strings.HasPrefix(name, "group-"):
		default:
			return fmt.Errorf("%w: %s is in the way, and holds %s, which no earlier attempt left there: move it away", ErrPlace, d.beside, name)
		}
	}
	if err := d.step("sweep"); err != nil {
		return err
	}
	if err := os.RemoveAll(d.beside); err != nil {
		return fmt.Errorf("%w: %w", ErrPlace, err)
	}
	return nil
}

// finish writes the service's first snapshot, and puts the directory into its
// place: before the rename nothing is there, after it everything.
func (d *directory) finish(incarnation uint64, first *raftpb.Snapshot) error {
	if err := d.store.Bootstrap(incarnation, first); err != nil {
		return err
	}
	if err := d.store.Close(); err != nil {
		return err
	}
	if err := d.adopt(); err != nil {
		return err
	}
	if err := d.step("rename"); err != nil {
		return err
	}
	// Not os.Rename, which refuses a directory that exists: an empty one is
	// replaced, and one that is not is left alone, by the system.
	switch err := syscall.Rename(d.beside, d.place); {
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("%w: %s was filled meanwhile", ErrNotEmpty, d.place)
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EXDEV):
		return fmt.Errorf("%w: %s is the root of a file system: choose a directory inside it, such as %s", ErrPlace, d.place, filepath.Join(d.place, "data"))
	case err != nil:
		return fmt.Errorf("%w: renaming %s to %s: %w", ErrPlace, d.beside, d.place, err)
	}
	d.done = true
	err := d.step("sync")
	if err == nil {
		err = syncDir(filepath.Dir(d.place))
	}
	if err != nil {
		return fmt.Errorf("%s is complete, but may not outlast a loss of power: %w", d.place, err)
	}
	return nil
}

// adopt gives the directory the owner and the mode of the empty one that it
// replaces, so that the server's user can read what root restored.
func (d *directory) adopt() error {
	info, err := os.Stat(d.place)
	if err != nil {
		return nil // there is none
	}
	if err := d.step("adopt"); err != nil {
		return err
	}
	if err := os.Chmod(d.beside, info.Mode().Perm()); err != nil {
		return fmt.Errorf("%w: %w", ErrPlace, err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(d.beside, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
}

// close lets go of the directory, and removes it unless it is at its place.
func (d *directory) close() {
	if d.store != nil {
		_ = d.store.Close()
	}
	if d.lock == nil {
		return
	}
	if !d.done {
		_ = os.RemoveAll(d.beside)
	}
	d.lock.Close()
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
