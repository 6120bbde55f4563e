package memgate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdfast/fence"
)

// DefaultBound is how long a gate waits for a step that does not end.
const DefaultBound = 5 * time.Second

// Config says what a gate is for. Only Lock is required.
type Config struct {
	// Lock is the lock whose tokens the gate accepts.
	Lock string
	// Name names the gate in errors, logs and reports. Default "memgate".
	Name string
	// Slots is the number of permits of the lock, each with a mark of its
	// own. Default 1.
	Slots uint32
	// AllowShared accepts shared tokens: the resource bears several writers
	// of one generation.
	AllowShared bool
	// Domain is the fence domain to serve. Default: the first accepted token
	// pins it.
	Domain fence.Domain
	// Bound is how long Arm, Do and Move wait for another step to end.
	// Default DefaultBound.
	Bound time.Duration
	// Memory is the resource's memory, shared by several gates on it.
	// Default: one of its own.
	Memory *Memory
	// Reporter is told of every refusal. Default: nobody.
	Reporter fence.Reporter
	// Logger gets a warning a refusal. Default slog.Default().
	Logger *slog.Logger
	// Now gives the wall time that Show prints. Default time.Now.
	Now func() time.Time
}

// A Gate guards one resource in memory for one lock. Its methods may be called
// by several goroutines at once, but not from inside the function given to Do
// on the same Memory: that would wait for itself until Bound has passed.
type Gate struct {
	guard  fence.Guard
	bound  time.Duration
	memory *Memory
	report fence.Reporter
	tally  fence.Tally
	log    *slog.Logger
	now    func() time.Time
}

// New builds a gate. The error wraps [fence.ErrMalformed] if the configuration
// breaks a rule; a Memory that already serves another domain than
// Config.Domain is refused too.
func New(c Config) (*Gate, error) {
	if c.Bound < 0 {
		return nil, fmt.Errorf("%w: memgate: bound %v: want more than 0, or 0 for %v", fence.ErrMalformed, c.Bound, DefaultBound)
	}
	g := &Gate{
		guard:  fence.Guard{Gate: c.Name, Lock: c.Lock, Slots: max(c.Slots, 1), Shared: c.AllowShared},
		bound:  c.Bound,
		memory: c.Memory,
		log:    c.Logger,
		now:    c.Now,
	}
	if g.guard.Gate == "" {
		g.guard.Gate = "memgate"
	}
	if g.bound == 0 {
		g.bound = DefaultBound
	}
	if g.memory == nil {
		g.memory = NewMemory()
	}
	if g.log == nil {
		g.log = slog.Default()
	}
	if g.now == nil {
		g.now = time.Now
	}
	if err := g.guard.Validate(); err != nil {
		return nil, fmt.Errorf("memgate: %w", err)
	}
	g.report = fence.Reporters(&g.tally, fence.Logging(g.log.WarnContext), c.Reporter)
	if err := g.pin(c.Domain); err != nil {
		return nil, err
	}
	return g, nil
}

// pin makes d the active domain of a Memory that has none.
func (g *Gate) pin(d fence.Domain) error {
	if d == (fence.Domain{}) {
		return nil
	}
	if err := g.memory.enter(context.Background(), g.bound, g.guard, fence.Token{}, fence.ToArm); err != nil {
		return err
	}
	defer g.memory.leave()
	r := g.memory.record(g.guard.Lock)
	if r.active != (fence.Domain{}) && r.active != d {
		return fmt.Errorf("memgate %s: the memory serves domain %s, not %s: move it first", g.guard.Gate, r.active, d)
	}
	r.active = d
	return nil
}

// Name returns the gate's name.
func (g *Gate) Name() string { return g.guard.Gate }

// Lock returns the lock that the gate is for.
func (g *Gate) Lock() string { return g.guard.Lock }

// Arm raises the mark to t and writes nothing. When it returns nil, no write
// with a lower token can still take effect. Arm before you read: otherwise a
// zombie's write can land between your read and your write.
//
// A refusal wraps [fence.ErrRefused] or [fence.ErrMalformed]; if the step is
// not free in time the error wraps [fence.ErrUndrained] and names who is in it.
func (g *Gate) Arm(ctx context.Context, t fence.Token) error {
	return g.step(ctx, t, fence.ToArm, func() error { return nil })
}

// Do checks t, raises the mark to it, and calls write, in one step: no other
// step on the same Memory runs meanwhile. It returns write's error as it is.
// The mark stays raised when write fails.
//
// What write does must not outlive it. Prepare whatever takes long before Do,
// since write holds the door while it runs: another's Arm then fails after
// Bound, naming t.
func (g *Gate) Do(ctx context.Context, t fence.Token, write func() error) error {
	if write == nil {
		return errors.New("memgate: Do needs a function that writes")
	}
	return g.step(ctx, t, fence.ToWrite, write)
}

func (g *Gate) step(ctx context.Context, t fence.Token, use fence.Use, write func() error) error {
	refused, err := g.stepOnce(ctx, t, use, write)
	if refused != nil {
		g.tell(ctx, use, t, refused)
		return refused
	}
	return err
}

// stepOnce keeps the gate's refusal and the writer's error apart, so that a
// writer that returns another gate's refusal is not counted here.
func (g *Gate) stepOnce(ctx context.Context, t fence.Token, use fence.Use, write func() error) (refused, err error) {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("gate %s: %w", g.guard.Gate, err), nil
	}
	if err := g.memory.enter(ctx, g.bound, g.guard, t, use); err != nil {
		return nil, err
	}
	defer g.memory.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := g.memory.record(g.guard.Lock)
	verdict, err := fence.Judge(g.guard, r.active, r.marks[markKey{t.Domain, t.Slot}].Token, t, use)
	if err != nil {
		return err, nil
	}
	if verdict == fence.Raise {
		r.raise(t, g.now())
	}
	return nil, write()
}

// Move makes another domain the active one: a compare-and-set for operators
// (see [fence.Move]). It is logged.
func (g *Gate) Move(ctx context.Context, m fence.Move) error {
	if err := g.memory.enter(ctx, g.bound, g.guard, m.Token, fence.ToMove); err != nil {
		return err
	}
	err := func() error {
		defer g.memory.leave()
		r := g.memory.record(g.guard.Lock)
		if err := fence.JudgeMove(r.state(g.guard), m); err != nil {
			return err
		}
		r.raise(m.Token, g.now())
		return nil
	}()
	if err != nil {
		g.tell(ctx, fence.ToMove, m.Token, err)
		return err
	}
	g.log.WarnContext(ctx, "gate moved to another domain", "gate", g.guard.Gate, "lock", g.guard.Lock,
		"from", m.From.String(), "to", m.To.String(), "token", m.Token.String())
	return nil
}

// Show returns what the gate remembers.
func (g *Gate) Show(ctx context.Context) (fence.State, error) {
	if err := g.memory.enter(ctx, g.bound, g.guard, fence.Token{}, 0); err != nil {
		return fence.State{}, err
	}
	defer g.memory.leave()
	return g.memory.record(g.guard.Lock).state(g.guard), nil
}

// Refusals returns how many tokens this gate value has refused, by kind.
func (g *Gate) Refusals() map[fence.Kind]uint64 { return g.tally.Counts() }

func (g *Gate) tell(ctx context.Context, use fence.Use, t fence.Token, err error) {
	if r, ok := fence.NewRefusal(g.guard, use, t, err); ok {
		g.report.Report(context.WithoutCancel(ctx), r)
	}
}
