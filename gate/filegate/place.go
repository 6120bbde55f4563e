package filegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast/fence"
)

// recordName is the record's file in the gate's folder.
const recordName = "record"

// scratchMark is in the name of all temporary files: what-PID-random.scratch.
const scratchMark = ".scratch"

// A place is the directory of the guarded file and the gate's folder in it,
// opened for one call. All paths are walked from these two, so a directory that
// is moved meanwhile takes its gate along.
type place struct {
	g      *Gate
	parent *os.Root
	room   *os.Root
	door   *os.File // the folder, for its lock
}

func (p *place) roomPath() string { return filepath.Join(p.g.dir, p.g.room) }

// open opens the place; the caller closes it.
func (g *Gate) open() (p *place, err error) {
	p = &place{g: g}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.parent, err = os.OpenRoot(g.dir); err != nil {
		return p, err
	}
	if p.room, err = p.parent.OpenRoot(g.room); err != nil {
		return p, err
	}
	p.door, err = p.room.Open(".")
	return p, err
}

func (p *place) close() {
	if p.door != nil {
		p.door.Close() // and with it the lock
	}
	if p.room != nil {
		p.room.Close()
	}
	if p.parent != nil {
		p.parent.Close()
	}
}

// moved reports whether the directory or the folder is not any more what its
// path leads to.
func (p *place) moved() (bool, error) {
	for _, s := range []struct {
		is  func() (fs.FileInfo, error)
		was func() (fs.FileInfo, error)
	}{
		{func() (fs.FileInfo, error) { return os.Stat(p.g.dir) }, func() (fs.FileInfo, error) { return p.parent.Stat(".") }},
		{func() (fs.FileInfo, error) { return p.parent.Lstat(p.g.room) }, p.door.Stat},
	} {
		is, err := s.is()
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		was, err := s.was()
		if err != nil || !os.SameFile(is, was) {
			return true, err
		}
	}
	return false, nil
}

// How long a gate pauses between two tries for the lock. A raise tries most
// often, so that a crowd of writers cannot starve it (E5); see also announce.
const (
	urgentPause  = 500 * time.Microsecond
	shortPause   = time.Millisecond
	longestPause = 16 * time.Millisecond
)

// step runs do with the folder's lock, which it waits for at most for the
// gate's bound. do finds the place as it was opened, and must be short: what
// takes long is done before and after.
func (g *Gate) step(ctx context.Context, p *place, t fence.Token, urgent bool, do func() error) error {
	waiting, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	pause := shortPause
	if urgent {
		pause = urgentPause
	}
	for {
		g.reached(ctx, pointLock)
		err := lockFile(p.door)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("gate %s: cannot lock %s: %w", g.guard.Gate, p.roomPath(), err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-waiting.Done():
			timer.Stop()
			return g.undrained(ctx, p, t)
		}
		if !urgent {
			pause = min(2*pause, longestPause)
		}
	}
	defer func() {
		g.reached(ctx, pointUnlock)
		_ = unlockFile(p.door) // closing it does so too
	}()
	g.reached(ctx, pointLocked)
	if moved, err := p.moved(); err != nil || moved {
		return fmt.Errorf("gate %s: %w: %s was moved or replaced meanwhile; call again: %w", g.guard.Gate, ErrChanged, p.roomPath(), orNone(err))
	}
	return do()
}

func orNone(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// undrained says who holds the lock, as far as it can be known.
func (g *Gate) undrained(ctx context.Context, p *place, t fence.Token) error {
	by := "another process"
	if who := lockHolder(p.door); who != "" {
		by = who
	}
	if v, err := g.load(p); err == nil {
		defer v.close()
		var marks []string
		for _, m := range v.marks {
			if m.Token.Domain == v.active && len(marks) < 3 {
				marks = append(marks, fmt.Sprintf("token %d (slot %d, armed by %s at %s)", m.Token.Number, m.Token.Slot, m.RaisedBy, m.RaisedAt.Format(time.RFC3339)))
			}
		}
		if len(marks) > 0 {
			by += ", most likely the holder of " + strings.Join(marks, " or ")
		}
	}
	var err error
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &fence.UndrainedError{Gate: g.guard.Gate, Offered: t, By: by, Err: err}
}

// scratch makes a temporary file in the folder, locked for as long as it is
// open: that is how a sweep knows that somebody still works on it.
func (g *Gate) scratch(ctx context.Context, p *place, what string, perm fs.FileMode) (name string, f *os.File, err error) {
	for range 100 {
		name = fmt.Sprintf("%s-%d-%016x%s", what, os.Getpid(), rand.Uint64(), scratchMark)
		g.reached(ctx, pointCreate)
		f, err = p.room.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("gate %s: cannot write to %s: %w", g.guard.Gate, p.roomPath(), err)
		}
		g.reached(ctx, pointCreated)
		if lockFile(f) == nil && p.is(name, f) {
			return name, f, nil
		}
		f.Close() // a sweep took it for one that was left
	}
	return "", nil, fmt.Errorf("gate %s: a temporary file in %s vanishes as soon as it is made", g.guard.Gate, p.roomPath())
}

// is reports whether name in the folder is the file f.
func (p *place) is(name string, f *os.File) bool {
	there, err := p.room.Lstat(name)
	if err != nil {
		return false
	}
	own, err := f.Stat()
	return err == nil && os.SameFile(there, own)
}

// sweep removes temporary files that nobody works on: their makers have died.
func (p *place) sweep() {
	entries, err := fs.ReadDir(p.room.FS(), ".")
	if err != nil {
		return // the next one will
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), scratchMark) {
			continue
		}
		f, err := p.room.Open(e.Name())
		if err != nil {
			continue
		}
		if lockFile(f) == nil && p.is(e.Name(), f) {
			_ = p.room.Remove(e.Name())
		}
		f.Close()
	}
}

// syncDirs has both directories on disk.
func (g *Gate) syncDirs(ctx context.Context, p *place) error {
	g.reached(ctx, pointSyncRoom)
	if err := p.door.Sync(); err != nil {
		return err
	}
	g.reached(ctx, pointSyncParent)
	dir, err := p.parent.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
