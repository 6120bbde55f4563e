package filegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"holdfast/fence"
)

// The points of a call, each before the system call that its name says; tests
// stop and kill there.
const (
	pointCreate     = "create"      // a temporary file
	pointCreated    = "created"     // it is there, and not locked yet
	pointWrite      = "write"       // its content
	pointSync       = "sync"        // its content, to disk
	pointAnnounce   = "announce"    // rename of an intent
	pointPlanned    = "planned"     // a function has returned, all is prepared, no lock is held
	pointLock       = "lock"        // a try for the lock
	pointLocked     = "locked"      // the lock is held
	pointRaise      = "raise"       // rename of the record
	pointFinal      = "final"       // rename or removal of the file: the last that can be
	pointUnlock     = "unlock"      //
	pointSyncRoom   = "sync-room"   // the gate's folder, to disk
	pointSyncParent = "sync-parent" // the file's directory, to disk
)

// A Gate guards one file for one lock. It keeps its record beside the file, so
// gates of any number of processes of one host agree. Its methods may be
// called by several goroutines at once. It holds nothing open between calls,
// and needs no closing.
type Gate struct {
	dir, base string // of the file
	room      string // the gate's folder in dir
	perm      fs.FileMode
	guard     fence.Guard
	bound     time.Duration
	self      string
	report    fence.Reporter
	tally     fence.Tally
	log       *slog.Logger
	reached   func(ctx context.Context, point string)

	mu     sync.Mutex
	synced string // the text of the record that this gate knows to be on disk
}

// New opens the gate of c.Path, and makes its folder if there is none. It
// probes that locks hold there and returns an error that wraps
// [ErrCannotFence] if they do not, or on any system but Linux;
// [fence.ErrMalformed] if c breaks a rule, or if the file is guarded for
// another lock; [fence.ErrRecord] if what is in the folder makes no sense. A
// file that already serves another domain than c.Domain is refused.
func New(ctx context.Context, c Config) (*Gate, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := &Gate{perm: c.Perm, guard: fence.Guard{Gate: c.Name, Lock: c.Lock, Slots: c.Slots, Shared: c.AllowShared},
		bound: c.Bound, self: self(), log: c.Logger, reached: nowhere}
	g.report = fence.Reporters(&g.tally, fence.Logging(c.Logger.WarnContext), c.Reporter)
	if g.dir, g.base, err = resolve(c.Path); err != nil {
		return nil, err
	}
	g.room = "." + g.base + ".holdfast"
	if err := g.prepare(ctx, c.TrustLocks); err != nil {
		return nil, err
	}
	if c.Domain == (fence.Domain{}) {
		return g, nil
	}
	return g, g.change(ctx, fence.Token{}, func(r record) (record, bool, error) {
		if r.active != (fence.Domain{}) && r.active != c.Domain {
			return r, false, fmt.Errorf("gate %s: the file serves domain %s, not %s: move it first", c.Name, r.active, c.Domain)
		}
		was := r.active
		r.active = c.Domain
		return r, was != c.Domain, nil
	})
}

// nowhere is where a new gate stops; tests set another.
var nowhere = func(context.Context, string) {}

// self names this process for people who look for the one that blocks a gate.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// Name returns the gate's name.
func (g *Gate) Name() string { return g.guard.Gate }

// Lock returns the lock that the gate is for.
func (g *Gate) Lock() string { return g.guard.Lock }

// Refusals returns how many tokens this gate value has refused, by kind.
func (g *Gate) Refusals() map[fence.Kind]uint64 { return g.tally.Counts() }

// Arm raises the mark to t and writes no data. When it returns nil, the mark
// is on disk, and no write with a lower token can still take effect. Arm
// before you read: otherwise a zombie's write can land between your read and
// your write.
//
// A refusal wraps [fence.ErrRefused] or [fence.ErrMalformed]. If another
// process does not leave its step within Config.Bound, or ctx ends before, the
// error wraps [fence.ErrUndrained] and names the process.
func (g *Gate) Arm(ctx context.Context, t fence.Token) error {
	err := g.arm(ctx, t, fence.ToArm)
	g.tell(ctx, fence.ToArm, t, err)
	return err
}

func (g *Gate) arm(ctx context.Context, t fence.Token, use fence.Use) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	return g.change(ctx, t, func(r record) (record, bool, error) {
		verdict, err := fence.Judge(g.guard, r.active, r.mark(t.Domain, t.Slot), t, use)
		if err != nil || verdict == fence.Accept {
			return r, false, err
		}
		return r.with(t, time.Now(), g.self), true, nil
	})
}

// change replaces the record by what next makes of it, if next says that
// something changed, and has it on disk in any case. The new version is
// prepared outside of the lock; if the record was replaced meanwhile, that is
// done again.
func (g *Gate) change(ctx context.Context, t fence.Token, next func(record) (record, bool, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, context.Cause(ctx))
	}
	bounded, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	p, err := g.open()
	if err != nil {
		return g.cannotOpen(err)
	}
	defer p.close()
	for announced := false; ; announced = true {
		done, err := g.tryChange(ctx, bounded, p, t, next, announced)
		if err != nil || done {
			return err
		}
		if bounded.Err() != nil {
			return g.undrained(ctx, p, t)
		}
	}
}

func (g *Gate) cannotOpen(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return g.damaged("the gate's folder is gone: %w", err)
	}
	return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
}

// tryChange is one try of change; it reports false if the record was replaced
// before the try had come to its step.
func (g *Gate) tryChange(ctx, bounded context.Context, p *place, t fence.Token, next func(record) (record, bool, error), announced bool) (done bool, err error) {
	v, err := g.load(p)
	if err != nil {
		return false, err
	}
	defer v.close()
	r, changed, err := next(v.record)
	if err != nil {
		return false, err
	}
	if !changed {
		return true, g.settle(ctx, p, v)
	}
	if !t.IsZero() && !announced {
		if err := g.announce(ctx, p, t); err != nil {
			return false, err
		}
	}
	name, f, err := g.scratch(ctx, p, recordName, 0o666)
	if err != nil {
		return false, err
	}
	defer f.Close()
	defer p.room.Remove(name) // gone already after the rename
	g.reached(ctx, pointWrite)
	if _, err := f.Write(r.encode()); err != nil {
		return false, fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	g.reached(ctx, pointSync)
	if err := f.Sync(); err != nil {
		return false, fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	err = g.step(bounded, p, t, true, func() error {
		now, err := p.room.Lstat(recordName)
		if err != nil || !os.SameFile(now, v.info) {
			return err
		}
		if err := bounded.Err(); err != nil {
			return err
		}
		g.reached(ctx, pointRaise)
		done = true
		return p.room.Rename(name, recordName)
	})
	if err != nil || !done {
		return false, g.late(ctx, err)
	}
	if err := g.syncDirs(ctx, p); err != nil {
		return false, fmt.Errorf("gate %s: the mark may not be on disk: %w", g.guard.Gate, err)
	}
	g.settled(string(r.encode()))
	return true, nil
}

// late says that it was the caller's context that ended.
func (g *Gate) late(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// settle has a version of the record on disk that may have been renamed by a
// process that died before it had synced the folder.
func (g *Gate) settle(ctx context.Context, p *place, v version) error {
	g.mu.Lock()
	known := g.synced
	g.mu.Unlock()
	text := string(v.encode())
	if known == text {
		return nil
	}
	if err := g.syncDirs(ctx, p); err != nil {
		return fmt.Errorf("gate %s: the mark may not be on disk: %w", g.guard.Gate, err)
	}
	g.settled(text)
	return nil
}

func (g *Gate) settled(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.synced = text
}

// announce leaves word that t is being armed, so that no holder of an older
// token of its slot begins a step any more: a crowd of them drains (E5). It is
// for liveness only: it need not be on disk, and a lower one that comes late
// does no harm.
func (g *Gate) announce(ctx context.Context, p *place, t fence.Token) error {
	name, f, err := g.scratch(ctx, p, "intent", 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	defer p.room.Remove(name) // gone already after the rename
	if _, err := f.WriteString(t.String()); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	g.reached(ctx, pointAnnounce)
	if err := p.room.Rename(name, intentName(t.Slot)); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err)
	}
	return nil
}

func intentName(slot uint32) string { return "intent-" + strconv.FormatUint(uint64(slot), 10) }

// intent returns the token that is being armed in t's slot, or was, or none.
func (g *Gate) intent(p *place, t fence.Token) fence.Token {
	text, err := p.room.ReadFile(intentName(t.Slot))
	if err != nil {
		return fence.Token{}
	}
	newer, err := fence.ParseToken(string(text))
	if err != nil || newer.Domain != t.Domain || newer.Lock != t.Lock {
		return fence.Token{}
	}
	return newer
}

// Show returns what the gate remembers: the marks, when each last rose, and
// the active domain.
func (g *Gate) Show(ctx context.Context) (fence.State, error) {
	s := fence.State{Guard: g.guard}
	if err := ctx.Err(); err != nil {
		return s, err
	}
	p, err := g.open()
	if err != nil {
		return s, g.cannotOpen(err)
	}
	defer p.close()
	v, err := g.load(p)
	if err != nil {
		return s, err
	}
	defer v.close()
	s.Active, s.Marks = v.active, v.marks
	return s, nil
}

// Move makes another domain the active one: a compare-and-set for operators
// (see [fence.Move]). It is logged.
func (g *Gate) Move(ctx context.Context, m fence.Move) error {
	err := g.change(ctx, fence.Token{}, func(r record) (record, bool, error) {
		if err := fence.JudgeMove(fence.State{Guard: g.guard, Active: r.active, Marks: r.marks}, m); err != nil {
			return r, false, err
		}
		return r.with(m.Token, time.Now(), g.self), true, nil
	})
	g.tell(ctx, fence.ToMove, m.Token, err)
	if err == nil {
		g.log.WarnContext(ctx, "gate moved to another domain", "gate", g.guard.Gate, "lock", g.guard.Lock,
			"from", m.From.String(), "to", m.To.String(), "token", m.Token.String())
	}
	return err
}

func (g *Gate) tell(ctx context.Context, use fence.Use, t fence.Token, err error) {
	if r, ok := fence.NewRefusal(g.guard, use, t, err); ok {
		g.report.Report(context.WithoutCancel(ctx), r)
	}
}
