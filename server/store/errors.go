package store

import (
	"errors"
	"fmt"
)

// Errors of [Open].
var (
	// ErrInUse: another process, or another Store, has the directory open.
	ErrInUse = errors.New("data directory is in use")
	// ErrNotOurs: the directory has files that Holdfast did not write.
	ErrNotOurs = errors.New("not a Holdfast data directory")
	// ErrNewerFormat: a newer release of Holdfast wrote the directory.
	ErrNewerFormat = errors.New("data directory has a newer format")
	// ErrCorrupt is wrapped by every [*CorruptError].
	ErrCorrupt = errors.New("data is damaged")
	// ErrUnusable: the directory cannot be created, read or written.
	ErrUnusable = errors.New("data directory cannot be used")
)

// ErrPoisoned is wrapped by every error of a store that has failed: no further
// call reaches the disk, and the process must end (D3).
var ErrPoisoned = errors.New("store failed and takes no further call")

// CorruptError names the file that is damaged.
type CorruptError struct {
	File string
	What string // what is wrong, and what to do if there is something
	Err  error  // may be nil
}

// Error implements error.
func (e *CorruptError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s is damaged: %s", e.File, e.What)
	}
	return fmt.Sprintf("%s is damaged: %s: %v", e.File, e.What, e.Err)
}

// Is makes errors.Is(e, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the cause below.
func (e *CorruptError) Unwrap() error { return e.Err }

// PoisonError says which call of the store failed first.
type PoisonError struct {
	Op  string // for example "append"
	Err error
}

// Error implements error.
func (e *PoisonError) Error() string {
	return fmt.Sprintf("store failed in %s, and takes no further call until it is opened anew: %v", e.Op, e.Err)
}

// Is makes errors.Is(e, ErrPoisoned) true.
func (e *PoisonError) Is(target error) bool { return target == ErrPoisoned }

// Unwrap returns the cause below.
func (e *PoisonError) Unwrap() error { return e.Err }
