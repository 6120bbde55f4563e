package fence

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is, grouped by the moment at which they occur.
// [ErrMalformed] comes first: what was offered is no token at all.
var (
	// ErrRefused is wrapped by every refusal of a well-formed token, so that
	// a caller can tell "the gate said no" from "the resource failed".
	// Whatever was to be written was not written, and will not be.
	ErrRefused = errors.New("refused by the gate")

	// ErrUndrained is wrapped by an Arm that could not make sure that no
	// write below the new mark can still take effect (E1). The gate is not
	// armed for the caller; trying again later is right.
	ErrUndrained = errors.New("not drained")

	// ErrRecord is wrapped when what a gate keeps at its resource makes no
	// sense. The gate refuses everything until a person has looked.
	ErrRecord = errors.New("damaged gate record")
)

// A StaleError says that a newer token has been seen: whoever offered this one
// is no longer the holder.
type StaleError struct {
	Gate    string // the gate's name
	Offered Token  // what was offered
	Seen    Token  // the mark: the highest token the gate accepted
}

// Error names both numbers and says what to do.
func (e *StaleError) Error() string {
	return fmt.Sprintf("gate %s: stale token: offered %d, already seen %d (lock %q): the grant was lost and another holder has been here; stop, and acquire the lock again",
		e.Gate, e.Offered.Number, e.Seen.Number, clip(e.Offered.Lock))
}

// Unwrap returns [ErrRefused].
func (e *StaleError) Unwrap() error { return ErrRefused }

// A ForkError says that two services minted one number of one domain: a
// backup was restored without raising the epoch, or a domain was copied. It is
// never normal; an operator must find out which lineage is the true one.
type ForkError struct {
	Gate    string
	Offered Token
	Seen    Token // same domain and number, other incarnation
}

// Error names both tokens and says what to do.
func (e *ForkError) Error() string {
	return fmt.Sprintf("gate %s: forked domain: token %d was minted twice, by incarnation %s (seen) and by incarnation %s (offered): two lock services continue domain %s; stop one of them, and restore the other with a raised epoch",
		e.Gate, e.Offered.Number, e.Seen.Incarnation, e.Offered.Incarnation, e.Offered.Domain)
}

// Unwrap returns [ErrRefused].
func (e *ForkError) Unwrap() error { return ErrRefused }

// A WrongDomainError says that the token comes from another fence domain than
// the active one, so that its number has no order with the mark.
type WrongDomainError struct {
	Gate    string
	Offered Token
	Active  Domain // the domain whose tokens the gate accepts
}

// Error names both domains and says what to do.
func (e *WrongDomainError) Error() string {
	return fmt.Sprintf("gate %s: token %d is of domain %s, but this gate serves domain %s: connect to the lock service of that domain, or have an operator move the gate",
		e.Gate, e.Offered.Number, e.Offered.Domain, e.Active)
}

// Unwrap returns [ErrRefused].
func (e *WrongDomainError) Unwrap() error { return ErrRefused }

// A WrongLockError says that the token was issued for another lock than the
// one whose resource this gate guards.
type WrongLockError struct {
	Gate    string
	Offered Token
	Lock    string // the lock that the gate is for
}

// Error names both locks and says what to do.
func (e *WrongLockError) Error() string {
	return fmt.Sprintf("gate %s: token %d is for lock %q, but this gate is for lock %q: acquire that lock",
		e.Gate, e.Offered.Number, clip(e.Offered.Lock), clip(e.Lock))
}

// Unwrap returns [ErrRefused].
func (e *WrongLockError) Unwrap() error { return ErrRefused }

// A WrongSlotError says that the token is for a permit that the gate was not
// built for.
type WrongSlotError struct {
	Gate    string
	Offered Token
	Slots   uint32 // how many slots the gate has: 0 … Slots-1 are allowed
}

// Error names the slot, what is allowed, and what to do.
func (e *WrongSlotError) Error() string {
	return fmt.Sprintf("gate %s: token %d is for slot %d of lock %q, but this gate allows slots 0 … %d: build it with as many slots as the lock has permits",
		e.Gate, e.Offered.Number, e.Offered.Slot, clip(e.Offered.Lock), e.Slots-1)
}

// Unwrap returns [ErrRefused].
func (e *WrongSlotError) Unwrap() error { return ErrRefused }

// A SharedError says that a shared token was offered to a gate that was not
// built to accept shared tokens.
type SharedError struct {
	Gate    string
	Offered Token
}

// Error says what to do.
func (e *SharedError) Error() string {
	return fmt.Sprintf("gate %s: token %d is shared, and this gate accepts exclusive tokens only: acquire lock %q exclusively, or build the gate to allow shared tokens",
		e.Gate, e.Offered.Number, clip(e.Offered.Lock))
}

// Unwrap returns [ErrRefused].
func (e *SharedError) Unwrap() error { return ErrRefused }

// A RevocationError says that a revocation token was used to write. It can
// only arm (B11).
type RevocationError struct {
	Gate    string
	Offered Token
}

// Error says what to do.
func (e *RevocationError) Error() string {
	return fmt.Sprintf("gate %s: token %d is a revocation token: it can arm a gate, and never write; acquire lock %q to write",
		e.Gate, e.Offered.Number, clip(e.Offered.Lock))
}

// Unwrap returns [ErrRefused].
func (e *RevocationError) Unwrap() error { return ErrRefused }

// An UndrainedError says that a gate could not admit a token in time, because
// something admitted earlier may still take effect, and who that is. Nothing
// was written, and the gate is not armed for the token.
type UndrainedError struct {
	Gate    string
	Offered Token
	By      string // who blocks the gate, as far as the gate can tell
	Err     error  // what the resource said, may be nil
}

// Error names who blocks the gate, and says what to do.
func (e *UndrainedError) Error() string {
	s := fmt.Sprintf("gate %s: cannot admit token %d yet: blocked by %s; try again, or end what blocks it",
		e.Gate, e.Offered.Number, e.By)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns [ErrUndrained] and the error of the resource.
func (e *UndrainedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrUndrained}
	}
	return []error{ErrUndrained, e.Err}
}

// A MoveError says that a gate was not moved to another domain; nothing was
// changed.
type MoveError struct {
	Gate   string
	Move   Move
	Reason string // what did not match, and what to do
}

// Error says what did not match.
func (e *MoveError) Error() string {
	return fmt.Sprintf("gate %s: not moved from domain %s to %s: %s", e.Gate, e.Move.From, e.Move.To, e.Reason)
}

// Unwrap returns [ErrRefused].
func (e *MoveError) Unwrap() error { return ErrRefused }
