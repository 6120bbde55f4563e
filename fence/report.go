package fence

import (
	"context"
	"errors"
	"maps"
	"sync"
)

// A Kind is the class of a refusal, for counters and logs.
type Kind string

// The kinds of refusals.
const (
	KindMalformed  Kind = "malformed"   // no token, or not a valid one
	KindDomain     Kind = "domain"      // [WrongDomainError]
	KindLock       Kind = "lock"        // [WrongLockError]
	KindSlot       Kind = "slot"        // [WrongSlotError]
	KindStale      Kind = "stale"       // [StaleError]
	KindFork       Kind = "fork"        // [ForkError]
	KindShared     Kind = "shared"      // [SharedError]
	KindRevocation Kind = "revocation"  // [RevocationError]
	KindMove       Kind = "move"        // [MoveError]
	KindRecord     Kind = "bad-record"  // [ErrRecord]
	KindNone       Kind = "not-refused" // any other error, and nil
)

// KindOf returns the kind of a gate's error; [KindNone] if it does not refuse
// a token.
func KindOf(err error) Kind {
	var (
		domain     *WrongDomainError
		lock       *WrongLockError
		slot       *WrongSlotError
		stale      *StaleError
		fork       *ForkError
		shared     *SharedError
		revocation *RevocationError
		move       *MoveError
	)
	switch {
	case err == nil:
		return KindNone
	case errors.As(err, &domain):
		return KindDomain
	case errors.As(err, &lock):
		return KindLock
	case errors.As(err, &slot):
		return KindSlot
	case errors.As(err, &stale):
		return KindStale
	case errors.As(err, &fork):
		return KindFork
	case errors.As(err, &shared):
		return KindShared
	case errors.As(err, &revocation):
		return KindRevocation
	case errors.As(err, &move):
		return KindMove
	case errors.Is(err, ErrRecord):
		return KindRecord
	case errors.Is(err, ErrMalformed):
		return KindMalformed
	}
	return KindNone
}

// A Refusal is what a gate tells about one refused token.
type Refusal struct {
	Gate    string // the gate's name
	Lock    string // the lock that the gate is for
	Use     Use
	Kind    Kind
	Offered Token // may be the zero Token
	Seen    Token // the mark it was held against; zero if it did not come to that
	Err     error // what the caller got
}

// NewRefusal describes a refusal by its error; ok is false if err does not
// refuse a token.
func NewRefusal(g Guard, use Use, offered Token, err error) (r Refusal, ok bool) {
	r = Refusal{Gate: g.Gate, Lock: g.Lock, Use: use, Kind: KindOf(err), Offered: offered, Err: err}
	var (
		stale *StaleError
		fork  *ForkError
	)
	if errors.As(err, &stale) {
		r.Seen = stale.Seen
	} else if errors.As(err, &fork) {
		r.Seen = fork.Seen
	}
	return r, r.Kind != KindNone
}

// A Reporter is told of every refusal, so that an operator sees which zombie
// was stopped, where, with which token. A gate calls Report once a refusal, on
// the goroutine of the caller that was refused, after the guarded step ended
// and with nothing locked; the context is not cancelled with the caller's.
// Report should return soon, must not panic, and may be called by several
// goroutines at once.
type Reporter interface {
	Report(ctx context.Context, r Refusal)
}

// A ReporterFunc is a function as a [Reporter].
type ReporterFunc func(ctx context.Context, r Refusal)

// Report calls f.
func (f ReporterFunc) Report(ctx context.Context, r Refusal) { f(ctx, r) }

// Reporters makes one [Reporter] of several, called in order; nil ones are
// left out.
func Reporters(rs ...Reporter) Reporter {
	return ReporterFunc(func(ctx context.Context, r Refusal) {
		for _, to := range rs {
			if to != nil {
				to.Report(ctx, r)
			}
		}
	})
}

// Logging makes a [Reporter] of a structured logger's method, for example
// slog.Default().WarnContext.
func Logging(log func(ctx context.Context, msg string, args ...any)) Reporter {
	return ReporterFunc(func(ctx context.Context, r Refusal) {
		args := []any{"gate", r.Gate, "lock", r.Lock, "use", r.Use.String(), "kind", string(r.Kind)}
		if !r.Offered.IsZero() {
			args = append(args, "offered", r.Offered.String())
		}
		if !r.Seen.IsZero() {
			args = append(args, "seen", r.Seen.String())
		}
		log(ctx, "gate refused a token", append(args, "error", r.Err.Error())...)
	})
}

// A Tally counts refusals by kind; it is a [Reporter]. The zero Tally is
// ready. It must not be copied.
type Tally struct {
	mu struct {
		sync.Mutex
		counts map[Kind]uint64
	}
}

// Report counts r.
func (t *Tally) Report(_ context.Context, r Refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.counts == nil {
		t.mu.counts = make(map[Kind]uint64)
	}
	t.mu.counts[r.Kind]++
}

// Count returns how many refusals of kind were reported.
func (t *Tally) Count(kind Kind) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.counts[kind]
}

// Counts returns a copy of all counts.
func (t *Tally) Counts() map[Kind]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.mu.counts)
}

// A Verifier turns what a caller offered as text into a token, or refuses it.
// A gate that is offered text (a header, a setting) uses one. [Unsigned]
// believes any well-formed text; package sequencer checks a signature.
type Verifier interface {
	// Verify returns the token that offered stands for. The error says why
	// offered is not to be believed.
	Verify(ctx context.Context, offered string) (Token, error)
}

// Unsigned is the [Verifier] that accepts the plain text form of a token and
// asks for no proof: a gate that uses it protects against zombies, not against
// liars.
type Unsigned struct{}

// Verify is [ParseToken].
func (Unsigned) Verify(_ context.Context, offered string) (Token, error) {
	return ParseToken(offered)
}
