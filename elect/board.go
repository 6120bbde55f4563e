package elect

import (
	"context"
	"fmt"
	"iter"
	"time"

	"holdfast"
	"holdfast/fence"
)

// A Board is where a primary's value is published, and where anybody sees who
// is primary. Clients of engines with values have one; engine/cluster's is
// what its Client.Board returns.
type Board interface {
	// Value is the option that publishes a value with a grant, and removes it
	// with the grant's end. It refuses what the engine cannot carry.
	Value(value []byte) (holdfast.AcquireOption, error)
	// Put changes the value that was published with the grant of this token,
	// and refuses if that is not the lock's current one (A6).
	Put(ctx context.Context, lock string, token fence.Token, value []byte) error
	// Observe calls see with who holds the lock and with its value, once for
	// the present state and again after each change; the zero Token says
	// that nobody does. It goes on over reconnects without missing the last
	// state, until see returns false (then it returns nil), ctx ends, or
	// trying again cannot help.
	Observe(ctx context.Context, lock string, see func(token fence.Token, label, host string, value []byte) bool) error
}

// A Primary is who is in office, as a [Board] shows it. What it says may be
// old when it is read: it tells where to turn, and permits nothing. What must
// not happen twice is for a gate to refuse, by the token.
type Primary struct {
	// Token is the primary's fencing token; the zero Token says that nobody
	// is in office.
	Token fence.Token
	// Label and Host are the primary's own words for people.
	Label string
	Host  string
	// Value is what it publishes; nil if nothing.
	Value []byte
}

// None reports whether nobody is in office.
func (p Primary) None() bool { return p.Token.IsZero() }

// Observe goes through the primaries of an election: the present one, and each
// change from then on, until ctx ends or the loop is left. Who only observes
// needs no Elector. An error ends it, as its last element: that of ctx, or one
// that trying again cannot mend.
func Observe(ctx context.Context, b Board, name string) iter.Seq2[Primary, error] {
	return func(yield func(Primary, error) bool) {
		left := false
		err := b.Observe(ctx, name, func(token fence.Token, label, host string, value []byte) bool {
			left = !yield(Primary{Token: token, Label: label, Host: host, Value: value}, nil)
			return !left
		})
		if err != nil && !left {
			yield(Primary{}, fmt.Errorf("elect %q: observe: %w", name, err))
		}
	}
}

// Observe is [Observe] for this election; it needs [Options].Board.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[Primary, error] {
	if e.o.Board == nil {
		return func(yield func(Primary, error) bool) { yield(Primary{}, e.fail(errNoBoard)) }
	}
	return Observe(ctx, e.o.Board, e.name)
}

// errNoBoard refuses what only a board can do.
var errNoBoard = fmt.Errorf("%w: values, observers and preference need Options.Board, which engines with values have", holdfast.ErrUnsupported)

// lookTimeout bounds what a candidate that was granted the lock waits for the
// board before it takes office all the same.
const lookTimeout = time.Second
