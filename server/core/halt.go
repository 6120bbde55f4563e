package core

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// The reasons for which a replica halts; each *[HaltError] wraps one. None is
// an operating error: a replica that went on would differ from the others.
var (
	// ErrUnknownCommand: the log holds a command that this binary does not
	// know. Start a newer binary on the same data.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrNewerFormat: an entry, a snapshot or a cluster version is newer
	// than this binary. Start a newer binary on the same data.
	ErrNewerFormat = errors.New("newer format")
	// ErrCorrupt: bytes are not what any binary ever wrote.
	ErrCorrupt = errors.New("corrupt")
	// ErrOutOfOrder: an entry came twice or in the wrong order.
	ErrOutOfOrder = errors.New("entry out of order")
	// ErrInvariant: a rule of the state is broken; a defect of this program.
	ErrInvariant = errors.New("broken invariant")
)

// HaltError says why a replica must stop (invariant 9). The state that
// returned it must not be used any more.
type HaltError struct {
	Index uint64 // of the entry; 0 if it was none
	Kind  error  // one of the sentinels above
	Msg   string
	Stack []byte // of a panic, else nil
}

// Error implements error.
func (e *HaltError) Error() string {
	if e.Index == 0 {
		return fmt.Sprintf("%v: %s", e.Kind, e.Msg)
	}
	return fmt.Sprintf("entry %d: %v: %s", e.Index, e.Kind, e.Msg)
}

// Unwrap returns the kind, for errors.Is.
func (e *HaltError) Unwrap() error { return e.Kind }

// broken stops the command: it panics with an invariant's HaltError, which
// Apply returns.
func broken(format string, args ...any) {
	panic(&HaltError{Kind: ErrInvariant, Msg: fmt.Sprintf(format, args...)})
}

// haltFrom makes the error of what a command panicked with.
func haltFrom(r any, index uint64) *HaltError {
	if h, ok := r.(*HaltError); ok {
		h.Index = index
		return h
	}
	return &HaltError{Index: index, Kind: ErrInvariant, Msg: fmt.Sprintf("panic: %v", r), Stack: debug.Stack()}
}
