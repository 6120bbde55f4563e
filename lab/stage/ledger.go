package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"holdfast"
	"holdfast/fence"
)

// GateName is the name of a ledger's gate, in errors and reports.
const GateName = "ledger"

// A Ledger is the resource that workers fight for: a table in SQLite or in
// PostgreSQL, or a file, to which each run appends a line, and one invoice that
// each run overwrites. A run reads the last line before it writes; it is whole
// if nobody wrote between.
//
// Any number of processes may open one ledger. Its methods may be called by
// several goroutines.
type Ledger struct{ book book }

// A Gate is a ledger's gate.
type Gate interface {
	holdfast.Gate
	Show(ctx context.Context) (fence.State, error)
}

// A book is one kind of ledger.
type book interface {
	gate() Gate
	last(ctx context.Context) (int64, error)
	lines(ctx context.Context) ([]Line, Invoice, error)
	// through appends a line by the gate; see WriteInside.
	through(ctx context.Context, t fence.Token, n Line, inside func(basis int64) error) (line int64, err error)
	// past appends a line without asking any gate.
	past(ctx context.Context, n Line) (line int64, err error)
	close() error
}

// A switched book has the switch.
type switched interface {
	comparing(ctx context.Context) (bool, error)
	setComparing(ctx context.Context, on bool) error
	// pastIfOff is past, unless the switch is on by now: then it writes
	// nothing and reports false.
	pastIfOff(ctx context.Context, n Line) (line int64, wrote bool, err error)
}

// A Line is one write that was accepted.
type Line struct {
	Seq    int64  `json:"seq"`          // its number: 1, 2, …
	Worker string `json:"worker"`       // who wrote it
	Token  uint64 `json:"token,string"` // the number of the writer's token
	Value  string `json:"value"`        // what it says
	Basis  int64  `json:"basis"`        // the last line that the writer knew
}

// An Invoice is what the ledger says in the end: the value of the last write,
// and who wrote it. It is zero before the first.
type Invoice struct{ Worker, Value string }

// OpenLedger opens the ledger at a place, and makes it if there is none, with
// the switch on where there is one. place is the path of a file for SQLite, or
// what [TextPlace] or [PostgresPlace] returned. lock names the lock whose tokens
// its gate accepts.
func OpenLedger(ctx context.Context, place, lock string) (l *Ledger, err error) {
	l = &Ledger{}
	if path, ok := strings.CutPrefix(place, textPlace); ok {
		l.book, err = openText(ctx, path, lock)
	} else if schema, ok := strings.CutPrefix(place, postgresPlace); ok {
		l.book, err = openPostgres(ctx, schema, lock)
	} else {
		l.book, err = openSQLite(ctx, place, lock)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Close closes what is open. Writes that are under way fail, and leave nothing.
func (l *Ledger) Close() error { return l.book.close() }

// Gate returns the ledger's gate, to be armed at each acquire.
func (l *Ledger) Gate() Gate { return l.book.gate() }

// Mark returns the number of the highest token that the gate has seen, 0 if
// it has seen none.
func (l *Ledger) Mark(ctx context.Context) (uint64, error) {
	state, err := l.Gate().Show(ctx)
	if err != nil {
		return 0, err
	}
	var highest uint64
	for _, m := range state.Marks {
		if m.Token.Domain == state.Active {
			highest = max(highest, m.Token.Number)
		}
	}
	return highest, nil
}

var errNoSwitch = errors.New("this ledger has no switch: only one in SQLite has")

// Comparing reports whether the switch is on: whether a write by [BySwitch] is
// refused if its token is stale.
func (l *Ledger) Comparing(ctx context.Context) (bool, error) {
	s, ok := l.book.(switched)
	if !ok {
		return false, errNoSwitch
	}
	return s.comparing(ctx)
}

// SetComparing turns the switch. Once it has turned it on, no write by
// [BySwitch] lands uncompared.
func (l *Ledger) SetComparing(ctx context.Context, on bool) error {
	s, ok := l.book.(switched)
	if !ok {
		return errNoSwitch
	}
	return s.setComparing(ctx, on)
}

// Last returns the number of the last line, 0 if there is none.
func (l *Ledger) Last(ctx context.Context) (int64, error) {
	seq, err := l.book.last(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the ledger: %w", err)
	}
	return seq, nil
}

// Lines returns the whole ledger in order, and the invoice.
func (l *Ledger) Lines(ctx context.Context) (all []Line, last Invoice, err error) {
	if all, last, err = l.book.lines(ctx); err != nil {
		return nil, last, fmt.Errorf("reading the ledger: %w", err)
	}
	return all, last, nil
}

// A Fencing says how a worker's writes reach the ledger.
type Fencing string

// The ways to the ledger.
const (
	// Always: through the gate, which compares tokens.
	Always Fencing = "always"
	// Never: past the gate. Nobody asks for a token, nothing is armed.
	Never Fencing = "never"
	// BySwitch: the gate is armed always; whether it then compares is what
	// the ledger's switch says at the moment of the write. That one
	// comparison is all that differs.
	BySwitch Fencing = "switch"
)

func (f Fencing) check() error {
	switch f {
	case Always, Never, BySwitch:
		return nil
	}
	return fmt.Errorf("fencing %q: want %s, %s or %s", string(f), Always, Never, BySwitch)
}

// A Written says how a write landed.
type Written struct {
	Line     int64  // its number
	Compared bool   // whether its token was compared
	Mark     uint64 // the gate's mark at that time; 0 past the gate
}

// Write appends a line with the given token, and overwrites the invoice. The
// line's Seq and Token are set by it. A refusal is a [*fence.StaleError] (or
// wraps one), and nothing was written.
func (l *Ledger) Write(ctx context.Context, f Fencing, t fence.Token, n Line) (Written, error) {
	n.Token = t.Number
	switch f {
	case Always:
		return l.through(ctx, t, n, nil)
	case Never:
		seq, err := l.book.past(ctx, n)
		return Written{Line: seq}, err
	case BySwitch:
		return l.bySwitch(ctx, t, n)
	}
	return Written{}, f.check()
}

func (l *Ledger) bySwitch(ctx context.Context, t fence.Token, n Line) (Written, error) {
	s, ok := l.book.(switched)
	if !ok {
		return Written{}, errNoSwitch
	}
	for {
		on, err := s.comparing(ctx)
		switch {
		case err != nil:
			return Written{}, err
		case on:
			return l.through(ctx, t, n, nil)
		}
		mark := t.Number
		if err := l.Gate().Arm(ctx, t); err != nil {
			stale, ok := errors.AsType[*fence.StaleError](err)
			if !ok {
				return Written{}, err
			}
			mark = stale.Seen.Number // known, and ignored: the comparison is off
		}
		seq, still, err := s.pastIfOff(ctx, n)
		if err != nil || still {
			return Written{Line: seq, Mark: mark}, err
		}
	}
}

// WriteInside is Write through the gate, [Always], for a run that reads in the
// guarded step: the line's Basis is the last line that the step sees. inside is
// called then, before anything is judged for the last time, and may take long;
// its error is returned, and nothing is written.
func (l *Ledger) WriteInside(ctx context.Context, t fence.Token, n Line, inside func(basis int64) error) (Written, error) {
	n.Token = t.Number
	return l.through(ctx, t, n, inside)
}

func (l *Ledger) through(ctx context.Context, t fence.Token, n Line, inside func(basis int64) error) (Written, error) {
	seq, err := l.book.through(ctx, t, n, inside)
	if err != nil {
		return Written{}, err
	}
	return Written{Line: seq, Compared: true, Mark: t.Number}, nil
}

// A Finding is one thing that is wrong with a ledger.
type Finding struct {
	Line int64  // the line that broke it
	Text string // for people
}

// Corruption says what is wrong with a ledger: each line whose token is lower
// than one accepted before it, or whose writer knew an older last line than
// the one before it. Nil means that it is whole.
func Corruption(all []Line) []Finding {
	var found []Finding
	var highest Line
	var before int64
	for _, n := range all {
		if n.Token < highest.Token {
			found = append(found, Finding{n.Seq, fmt.Sprintf("line %d was written with token %d after line %d with token %d", n.Seq, n.Token, highest.Seq, highest.Token)})
		}
		if n.Basis != before {
			found = append(found, Finding{n.Seq, fmt.Sprintf("line %d by %s rests on line %d, but line %d had come in between: that update is lost", n.Seq, n.Worker, n.Basis, before)})
		}
		if n.Token > highest.Token {
			highest = n
		}
		before = n.Seq
	}
	return found
}

// Texts joins what findings say for one sentence.
func Texts(found []Finding) string {
	texts := make([]string, len(found))
	for i, f := range found {
		texts[i] = f.Text
	}
	return strings.Join(texts, "; ")
}
