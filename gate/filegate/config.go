package filegate

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"holdfast/fence"
)

// Defaults and limits of a [Config].
const (
	// DefaultBound is how long a gate waits for a step that does not end.
	DefaultBound = 3 * time.Second
	// MaxBound is the longest Bound.
	MaxBound = time.Hour
	// MaxName is the longest name of a guarded file, in bytes: the gate's
	// folder and what it keeps there have longer ones.
	MaxName = 200
)

// Errors of a gate, beside the refusals of package fence. After any error of
// Do the file is as it was, except after ErrOutcomeUnknown.
var (
	// ErrCannotFence is wrapped by New when files cannot be fenced there.
	// The text says why.
	ErrCannotFence = errors.New("this file cannot be fenced")
	// ErrChanged is wrapped when the file was replaced, with the same token,
	// since the function of Do asked for the old one. Call Do again.
	ErrChanged = errors.New("the file changed since it was read")
	// ErrUpdateClosed is returned by an Update after its function ended.
	ErrUpdateClosed = errors.New("update used after its function returned")
	// ErrOutcomeUnknown is wrapped when the file was replaced, and the disk
	// then failed: after a crash it may be the old one again.
	ErrOutcomeUnknown = errors.New("replaced, but not known to be on disk")
)

// Config says what a gate is for. Path and Lock are required.
type Config struct {
	// Path is the file to guard. It need not exist; its directory must. If
	// it is a symbolic link, what it leads to is guarded.
	Path string
	// Lock is the lock whose tokens the gate accepts. A file is guarded for
	// one lock only.
	Lock string
	// Name names the gate in errors, logs and reports. Default "filegate".
	Name string
	// Slots is the number of permits of the lock, each with a mark of its
	// own. Default 1.
	Slots uint32
	// AllowShared accepts shared tokens: the file bears several writers of
	// one generation.
	AllowShared bool
	// Domain is the fence domain to serve. Default: the first accepted token
	// pins it.
	Domain fence.Domain
	// Bound is how long Arm, Do and Move wait for another step. Keep it below
	// the time in which a lease must be handed on. Default DefaultBound.
	Bound time.Duration
	// Perm is the mode of the file if there is none yet, before the umask;
	// later ones have the mode of what they replace. Default 0644.
	Perm fs.FileMode
	// TrustLocks is the operator's word that locks hold on this file system
	// between all that reach the file, though the gate does not know it.
	TrustLocks bool
	// Reporter is told of every refusal. Default: nobody.
	Reporter fence.Reporter
	// Logger gets a warning a refusal. Default slog.Default().
	Logger *slog.Logger
}

func (c Config) complete() (Config, error) {
	if c.Name == "" {
		c.Name = "filegate"
	}
	if c.Bound == 0 {
		c.Bound = DefaultBound
	}
	if c.Perm == 0 {
		c.Perm = 0o644
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Slots = max(c.Slots, 1)
	switch {
	case c.Path == "":
		return c, fmt.Errorf("%w: filegate: no Path", fence.ErrMalformed)
	case c.Bound < time.Millisecond || c.Bound > MaxBound:
		return c, fmt.Errorf("%w: filegate: Bound is %v: want 1ms – %v, or 0 for %v", fence.ErrMalformed, c.Bound, MaxBound, DefaultBound)
	case c.Perm&^fs.ModePerm != 0:
		return c, fmt.Errorf("%w: filegate: Perm is %v: want permission bits only", fence.ErrMalformed, c.Perm)
	}
	guard := fence.Guard{Gate: c.Name, Lock: c.Lock, Slots: c.Slots, Shared: c.AllowShared}
	if err := guard.Validate(); err != nil {
		return c, fmt.Errorf("filegate: %w", err)
	}
	return c, nil
}

// resolve returns the directory and the name of the file to guard, so that all
// who mean one file by whatever links agree.
func resolve(path string) (dir, base string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	dir, base = filepath.Split(path)
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		dir, base = filepath.Split(whole)
	} else if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", "", fmt.Errorf("filegate: the directory of the file to guard must exist: %w", err)
	}
	if base == "" || base == "." || len(base) > MaxName {
		return "", "", fmt.Errorf("%w: filegate: the name of the file has %d bytes: want 1–%d", fence.ErrMalformed, len(base), MaxName)
	}
	return filepath.Clean(dir), base, nil
}
