package filegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
)

func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCannotFence}, args...)...)
}

// prepare makes the gate's folder or checks the one that is there, and probes
// that locks hold.
func (g *Gate) prepare(ctx context.Context, trust bool) error {
	wrap := func(err error) error { return fmt.Errorf("gate %s: %s: %w", g.guard.Gate, g.dir, err) }
	if err := supported(); err != nil {
		return wrap(err)
	}
	if !trust {
		if err := checkFileSystem(g.dir); err != nil {
			return wrap(err)
		}
	}
	if err := g.create(ctx); err != nil {
		return wrap(err)
	}
	p, err := g.open()
	if err != nil {
		return wrap(err)
	}
	defer p.close()
	if err := p.checkTarget(); err != nil {
		return wrap(err)
	}
	v, err := g.load(p)
	if err != nil {
		return err
	}
	defer v.close()
	p.sweep()
	return g.probe(ctx, p)
}

// create makes the folder with a record in it, both at once, so that a folder
// without a record is never a beginning.
func (g *Gate) create(ctx context.Context) error {
	parent, err := os.OpenRoot(g.dir)
	if err != nil {
		return err
	}
	defer parent.Close()
	g.sweepRooms(parent)
	for range 10 {
		if info, err := parent.Lstat(g.room); err == nil {
			if !info.IsDir() {
				return cannot("%s is no directory", g.room)
			}
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err = g.createOnce(ctx, parent); err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
		// Another process was first, or took this one for dead: look again.
	}
	return fmt.Errorf("cannot make %s: it comes and goes", g.room)
}

func (g *Gate) createOnce(ctx context.Context, parent *os.Root) (err error) {
	name := fmt.Sprintf("%s-%d-%016x%s", g.room, os.Getpid(), rand.Uint64(), scratchMark)
	g.reached(ctx, pointCreate)
	if err := parent.Mkdir(name, 0o777); err != nil {
		return cannot("the gate's folder cannot be made: %w", err)
	}
	defer func() {
		if err != nil {
			_ = parent.RemoveAll(name)
		}
	}()
	room, err := parent.Open(name)
	if err != nil {
		return err
	}
	defer room.Close()
	if err := lockFile(room); err != nil {
		return fs.ErrNotExist // a sweep has it
	}
	f, err := parent.OpenFile(name+"/"+recordName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(record{lock: g.guard.Lock}.encode()); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), room.Sync()); err != nil {
		return cannot("it cannot be synced to disk: %w", err)
	}
	if err := parent.Rename(name, g.room); err != nil {
		return err
	}
	dir, err := parent.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// sweepRooms removes folders whose makers died before they were done.
func (g *Gate) sweepRooms(parent *os.Root) {
	entries, err := fs.ReadDir(parent.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), g.room+"-") || !strings.HasSuffix(e.Name(), scratchMark) {
			continue
		}
		room, err := parent.Open(e.Name())
		if err != nil {
			continue
		}
		if lockFile(room) == nil {
			_ = parent.RemoveAll(e.Name())
		}
		room.Close()
	}
}

// checkTarget refuses to guard what cannot be replaced by a rename.
func (p *place) checkTarget() error {
	info, err := p.parent.Lstat(p.g.base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.Mode().IsRegular() {
		return cannot("%s is no regular file (%s)", p.g.base, info.Mode().Type())
	}
	return err
}

// probe checks, on a file of its own, that a lock that one has is not given to
// another, and that a file can be replaced.
func (g *Gate) probe(ctx context.Context, p *place) error {
	name, f, err := g.scratch(ctx, p, "probe", 0o666)
	if err != nil {
		return cannot("%w", err)
	}
	defer f.Close()
	defer p.room.Remove(name)
	again, err := p.room.Open(name)
	if err != nil {
		return err
	}
	defer again.Close()
	if err := lockFile(again); !errors.Is(err, syscall.EWOULDBLOCK) {
		return cannot("a lock that one has taken is given to another (%w)", orNone(err))
	}
	if err := p.room.Rename(name, name+scratchMark); err != nil {
		return cannot("a file cannot be renamed: %w", err)
	}
	if err := p.room.Remove(name + scratchMark); err != nil {
		return cannot("a file cannot be removed: %w", err)
	}
	return nil
}
