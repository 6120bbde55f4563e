package fence

import (
	"fmt"
	"slices"
	"time"
)

// MaxGateName is the longest name of a gate, in bytes.
const MaxGateName = 256

// A Guard says what a gate is for. It is fixed when the gate is built.
type Guard struct {
	// Gate names the gate in errors, logs and reports: 1–256 bytes.
	Gate string
	// Lock is the lock whose tokens the gate accepts.
	Lock string
	// Slots is the number of permits of the lock: slots 0 … Slots-1 are
	// accepted, each with a mark of its own (A5). 0 means 1, a plain lock.
	Slots uint32
	// Shared says that the guarded resource bears several writers of one
	// generation at a time; otherwise shared tokens are refused.
	Shared bool
}

// Validate returns an error that wraps [ErrMalformed] unless g can guard.
func (g Guard) Validate() error {
	if g.Gate == "" || len(g.Gate) > MaxGateName {
		return fmt.Errorf("%w: gate name has %d bytes: want 1–%d", ErrMalformed, len(g.Gate), MaxGateName)
	}
	return ValidateLockName(g.Lock)
}

// A Use is what a token is offered for.
type Use uint8

// The uses. The zero Use is not valid.
const (
	// ToArm raises the mark and writes nothing.
	ToArm Use = iota + 1
	// ToWrite raises the mark and writes, in one step.
	ToWrite
	// ToMove makes another domain the active one, and arms.
	ToMove
)

// String returns the use as a word.
func (u Use) String() string {
	switch u {
	case ToArm:
		return "arm"
	case ToWrite:
		return "write"
	case ToMove:
		return "move"
	}
	return fmt.Sprintf("Use(%d)", uint8(u))
}

// A Verdict is what a gate does with a token. The zero Verdict refuses, so
// that an answer that nobody gave admits nothing.
type Verdict uint8

// The verdicts.
const (
	// Refuse: nothing is written and no mark changes.
	Refuse Verdict = iota
	// Accept: the token equals the mark.
	Accept
	// Raise: accepted, and the token becomes the mark of its slot in the
	// same atomic step; its domain becomes the active one if none was.
	Raise
)

// String returns the verdict as a word.
func (v Verdict) String() string {
	switch v {
	case Accept:
		return "accept"
	case Raise:
		return "raise"
	}
	return "refuse"
}

// Judge is the verdict of a gate on an offered token, the same at every gate
// and pure. The caller makes it part of one atomic step at the resource: read
// active and seen, judge, store the raised mark, write, commit.
//
// active is the gate's active domain, zero if it never had one; seen is the
// mark for the offered token's domain and slot, the zero Token if there is
// none.
//
// The order of verdicts (E2): malformed; wrong domain, lock or slot; lower
// than the mark ([StaleError]); equal and of another incarnation
// ([ForkError]); shared where that is not allowed; a revocation token that
// would write; then equal is accepted, and higher raises. The error is nil
// exactly when the verdict is not [Refuse].
func Judge(g Guard, active Domain, seen, offered Token, use Use) (Verdict, error) {
	if use != ToArm && use != ToWrite {
		return Refuse, fmt.Errorf("%w: gate %s: a token can be judged to arm or to write, not for %s", ErrMalformed, g.Gate, use)
	}
	if err := offered.Validate(); err != nil {
		return Refuse, fmt.Errorf("gate %s: %w", g.Gate, err)
	}
	if active != (Domain{}) && offered.Domain != active {
		return Refuse, &WrongDomainError{Gate: g.Gate, Offered: offered, Active: active}
	}
	if err := g.aims(offered); err != nil {
		return Refuse, err
	}
	if err := g.checkSeen(seen, offered); err != nil {
		return Refuse, err
	}
	switch {
	case offered.Number < seen.Number:
		return Refuse, &StaleError{Gate: g.Gate, Offered: offered, Seen: seen}
	case offered.Number == seen.Number && offered.Incarnation != seen.Incarnation:
		return Refuse, &ForkError{Gate: g.Gate, Offered: offered, Seen: seen}
	case offered.Mode == Shared && !g.Shared:
		return Refuse, &SharedError{Gate: g.Gate, Offered: offered}
	case offered.Mode == Revocation && use == ToWrite:
		return Refuse, &RevocationError{Gate: g.Gate, Offered: offered}
	case offered.Number == seen.Number:
		return Accept, nil
	}
	return Raise, nil
}

// aims refuses a token for another lock, or for a slot that g does not have.
func (g Guard) aims(offered Token) error {
	if offered.Lock != g.Lock {
		return &WrongLockError{Gate: g.Gate, Offered: offered, Lock: g.Lock}
	}
	if slots := max(g.Slots, 1); offered.Slot >= slots {
		return &WrongSlotError{Gate: g.Gate, Offered: offered, Slots: slots}
	}
	return nil
}

// checkSeen refuses everything if the gate kept, or looked up, a mark that
// cannot be the one for the offered token.
func (g Guard) checkSeen(seen, offered Token) error {
	if seen.IsZero() {
		return nil
	}
	if err := seen.Validate(); err != nil {
		return fmt.Errorf("%w: gate %s: mark %s: %w", ErrRecord, g.Gate, seen, err)
	}
	if seen.Domain != offered.Domain || seen.Lock != offered.Lock || seen.Slot != offered.Slot {
		return fmt.Errorf("%w: gate %s: mark %s is not the one for %s", ErrRecord, g.Gate, seen, offered)
	}
	return nil
}

// A Mark is what a gate remembers of one slot in one domain. It never falls.
type Mark struct {
	// Token is the highest token accepted.
	Token Token
	// RaisedAt is when it was first accepted, by the clock of the process
	// that offered it. It is for people; nothing is decided by it.
	RaisedAt time.Time
	// RaisedBy names the process that first offered it ("process 4242 on
	// db7"), for people; it may be empty.
	RaisedBy string
}

// A State is what a gate remembers: a mark for every slot of every domain that
// it ever had, and the one domain whose tokens it accepts (E4).
type State struct {
	Guard  Guard
	Active Domain // zero: no domain yet; the first accepted token pins it
	Marks  []Mark // ordered by domain, then slot
}

// Mark returns the mark of a slot in a domain; the zero Token if it has none.
func (s State) Mark(d Domain, slot uint32) Token {
	for _, m := range s.Marks {
		if m.Token.Domain == d && m.Token.Slot == slot {
			return m.Token
		}
	}
	return Token{}
}

// Tokens returns the marks of one domain, ordered by slot: what [Move.Expected]
// wants.
func (s State) Tokens(d Domain) []Token {
	var ts []Token
	for _, m := range s.Marks {
		if m.Token.Domain == d {
			ts = append(ts, m.Token)
		}
	}
	slices.SortFunc(ts, func(a, b Token) int { return int(int64(a.Slot) - int64(b.Slot)) })
	return ts
}

// A Move asks a gate to make another domain the active one: an operator's
// compare-and-set (E4). Begin it by reading the gate's State; then acquire the
// lock at the service of the new domain, so that the token is minted after
// that; then move.
type Move struct {
	From     Domain  // must be the active domain
	Expected []Token // must be all marks of From, in any order
	To       Domain
	Token    Token // of To; becomes a mark there, above any kept from before
}

// JudgeMove says whether a gate in state s may do m; pure, like [Judge], and
// part of one atomic step at the resource. If it returns nil, the caller makes
// m.To the active domain and m.Token a mark there, and keeps all other marks.
func JudgeMove(s State, m Move) error {
	refuse := func(format string, args ...any) error {
		return &MoveError{Gate: s.Guard.Gate, Move: m, Reason: fmt.Sprintf(format, args...)}
	}
	if err := m.Token.Validate(); err != nil {
		return fmt.Errorf("gate %s: %w", s.Guard.Gate, err)
	}
	switch {
	case s.Active == Domain{}:
		return refuse("the gate has no domain yet; arm it instead")
	case m.To == m.From:
		return refuse("both are the same domain; arm the gate instead")
	case m.From != s.Active:
		return refuse("the active domain is %s; read the gate's state again", s.Active)
	case m.Token.Domain != m.To:
		return refuse("the token is of domain %s; acquire one at the service of the new domain", m.Token.Domain)
	}
	if err := s.Guard.aims(m.Token); err != nil {
		return err
	}
	if m.Token.Mode == Shared && !s.Guard.Shared {
		return &SharedError{Gate: s.Guard.Gate, Offered: m.Token}
	}
	if have := s.Tokens(m.From); !sameTokens(have, m.Expected) {
		return refuse("the marks are %v, expected %v: the gate is still in use; read its state again", have, m.Expected)
	}
	if kept := s.Mark(m.To, m.Token.Slot); m.Token.Number <= kept.Number {
		return refuse("token %d is not above the mark %d kept from an earlier time in that domain; acquire a new one", m.Token.Number, kept.Number)
	}
	return nil
}

// sameTokens reports whether a and b hold the same tokens in any order.
func sameTokens(a, b []Token) bool {
	if len(a) != len(b) {
		return false
	}
	for _, t := range a {
		if !slices.Contains(b, t) {
			return false
		}
	}
	return true
}
