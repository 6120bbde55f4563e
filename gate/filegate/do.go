package filegate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"holdfast/fence"
)

// Do replaces the guarded file if t is not stale. It
//
//  1. arms the gate with t if it is not armed yet;
//  2. calls fn with an Update, which holds the old content and takes the new;
//  3. has the new content on disk, and then, in one short step that no other
//     gate on the file interrupts, judges t again and renames.
//
// fn may take long, and may be stopped: it holds nobody up. Another holder may
// then raise the mark, and step 3 refuses t with a [*fence.StaleError].
//
// If fn asked for the old content, and the file was replaced before step 3
// (with the same token: by another goroutine, a child process, another shared
// holder), Do returns an error that wraps [ErrChanged], so that no update is
// lost; the caller may call Do again. If fn writes nothing, the file is left
// as it is.
//
// After an error the file is as it was, except after [ErrOutcomeUnknown]. The
// error of fn is returned as it is. A refusal wraps [fence.ErrRefused] or
// [fence.ErrMalformed]; the error of a process that is in the way wraps
// [fence.ErrUndrained], as for Arm.
func (g *Gate) Do(ctx context.Context, t fence.Token, fn func(context.Context, *Update) error) error {
	if fn == nil {
		return errors.New("filegate: Do needs a function that writes")
	}
	err, theirs := g.do(ctx, t, fn)
	if theirs != nil {
		return theirs
	}
	g.tell(ctx, fence.ToWrite, t, err)
	return err
}

func (g *Gate) do(ctx context.Context, t fence.Token, fn func(context.Context, *Update) error) (err, theirs error) {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err), nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, context.Cause(ctx)), nil
	}
	p, err := g.open()
	if err != nil {
		return g.cannotOpen(err), nil
	}
	defer p.close()
	if err := g.admit(ctx, p, t); err != nil {
		if !errors.Is(err, errNotArmed) {
			return err, nil
		}
		if err := g.arm(ctx, t, fence.ToWrite); err != nil {
			return err, nil
		}
		if err := g.admit(ctx, p, t); err != nil {
			if errors.Is(err, errNotArmed) {
				err = g.damaged("the mark fell below %d right after it was raised", t.Number)
			}
			return err, nil
		}
	}
	u := &Update{g: g, p: p, ctx: ctx}
	defer u.discard() // also when fn panics
	theirs = fn(ctx, u)
	if theirs == nil && !u.close() {
		return nil, nil
	}
	if theirs != nil {
		return nil, theirs
	}
	if u.failed != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, u.failed), nil
	}
	return g.finish(ctx, p, t, u), nil
}

var errNotArmed = errors.New("the gate is not armed with this token yet")

// admit lets t in if it is the mark, and no newer one is on its way.
func (g *Gate) admit(ctx context.Context, p *place, t fence.Token) error {
	v, err := g.load(p)
	if err != nil {
		return err
	}
	defer v.close()
	verdict, err := fence.Judge(g.guard, v.active, v.mark(t.Domain, t.Slot), t, fence.ToWrite)
	if err != nil {
		return err
	}
	if newer := g.intent(p, t); newer.Number > t.Number {
		return &fence.StaleError{Gate: g.guard.Gate, Offered: t, Seen: newer}
	}
	if verdict == fence.Raise {
		return errNotArmed
	}
	return g.settle(ctx, p, v)
}

// finish has what u prepared on disk, and does the step.
func (g *Gate) finish(ctx context.Context, p *place, t fence.Token, u *Update) error {
	if err := u.prepare(); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	g.reached(ctx, pointPlanned)
	err := g.step(ctx, p, t, false, func() error {
		if err := g.admitLast(p, t); err != nil {
			return err
		}
		if err := p.checkTarget(); err != nil {
			return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
		}
		if !u.unchanged() {
			return fmt.Errorf("gate %s: %w, by another holder of token %d; call Do again", g.guard.Gate, ErrChanged, t.Number)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("gate %s: nothing was written: %w", g.guard.Gate, context.Cause(ctx))
		}
		g.reached(ctx, pointFinal)
		return u.commit()
	})
	if err != nil {
		return g.late(ctx, err)
	}
	if err := g.syncDirs(ctx, p); err != nil {
		return fmt.Errorf("gate %s: %w: %w", g.guard.Gate, ErrOutcomeUnknown, err)
	}
	return nil
}

// admitLast judges t for the last time; the caller holds the lock.
func (g *Gate) admitLast(p *place, t fence.Token) error {
	v, err := g.load(p)
	if err != nil {
		return err
	}
	defer v.close()
	verdict, err := fence.Judge(g.guard, v.active, v.mark(t.Domain, t.Slot), t, fence.ToWrite)
	if err == nil && verdict != fence.Accept {
		err = g.damaged("the mark fell below %d, from which this write began: was the directory restored?", t.Number)
	}
	return err
}

// An Update is a new version of the guarded file in the making. It is valid
// until the function that it was given to returns, and must not be used by
// several goroutines at once.
type Update struct {
	g      *Gate
	p      *place
	ctx    context.Context
	mu     sync.Mutex // against use after the function has returned
	closed bool

	name   string   // the new version, in the gate's folder
	file   *os.File // nil: nothing was written
	remove bool
	failed error // the first failed write

	asked bool     // Old was called
	old   *os.File // nil: there was none
}

// Old returns the content that the file has now. If there is no file, the
// error wraps [fs.ErrNotExist]. Each call returns the same version.
func (u *Update) Old() (*io.SectionReader, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, ErrUpdateClosed
	}
	if !u.asked {
		f, err := u.p.parent.Open(u.g.base)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		u.asked = true
		if err == nil {
			u.old = f
		}
	}
	if u.old == nil {
		return nil, fmt.Errorf("%s: %w", u.g.base, fs.ErrNotExist)
	}
	info, err := u.old.Stat()
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(u.old, 0, info.Size()), nil
}

// Write appends to the new content. The first call decides that there will be
// some: call it with no bytes for an empty file.
func (u *Update) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return 0, ErrUpdateClosed
	}
	u.remove = false
	if u.failed != nil {
		return 0, u.failed
	}
	if u.file == nil {
		if u.name, u.file, u.failed = u.g.scratch(u.ctx, u.p, "data", u.g.perm); u.failed != nil {
			return 0, u.failed
		}
	}
	u.g.reached(u.ctx, pointWrite)
	n, err := u.file.Write(b)
	u.failed = err
	return n, err
}

// Remove has the file removed instead of replaced, unless something is written
// after it. That there is none is no error.
func (u *Update) Remove() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remove = true
}

// close ends the use of u and reports whether there is anything to do.
func (u *Update) close() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	return u.remove || u.file != nil || u.failed != nil
}

// prepare gives the new version the mode and, where that is allowed, the owner
// of the one that it will replace, and has it on disk.
func (u *Update) prepare() error {
	if u.remove {
		return nil
	}
	if info, err := u.p.parent.Lstat(u.g.base); err == nil {
		if err := u.file.Chmod(info.Mode().Perm()); err != nil {
			return err
		}
		keepOwner(u.file, info)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	u.g.reached(u.ctx, pointSync)
	return u.file.Sync()
}

// unchanged reports whether the file is still the one that Old gave.
func (u *Update) unchanged() bool {
	if !u.asked {
		return true
	}
	now, err := u.p.parent.Lstat(u.g.base)
	if err != nil || u.old == nil {
		return u.old == nil && errors.Is(err, fs.ErrNotExist)
	}
	was, err := u.old.Stat()
	return err == nil && os.SameFile(now, was)
}

// commit is the one system call that makes the update take effect.
func (u *Update) commit() error {
	if !u.remove {
		return u.p.parent.Rename(u.g.room+"/"+u.name, u.g.base)
	}
	if err := u.p.parent.Remove(u.g.base); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// discard closes what is open and removes what was not renamed.
func (u *Update) discard() {
	u.close()
	if u.file != nil {
		u.file.Close()
		_ = u.p.room.Remove(u.name)
	}
	if u.old != nil {
		u.old.Close()
	}
}
