package holdfast

import (
	"context"
	"time"

	"holdfast/fence"
	"holdfast/internal/watchdog"
)

// A State is what the client knows about a grant, by its own clock.
type State uint8

// The states. They only move forward, but for StateJeopardy, which goes
// back to StateHeld when the service answers in time.
const (
	// StateHeld: the lease is good, and the last keepalive was answered.
	StateHeld = State(watchdog.Held)
	// StateJeopardy: the lease is good, but a keepalive that was due has not been
	// answered.
	StateJeopardy = State(watchdog.Jeopardy)
	// StateLost: see [Grant.Cause]. Final.
	StateLost = State(watchdog.Lost)
	// StateReleasing: Release was called, and the service has not confirmed it.
	StateReleasing = State(watchdog.Releasing)
	// StateReleased: the service confirmed the release. Final.
	StateReleased = State(watchdog.Released)
)

// String returns the state as a word.
func (s State) String() string { return watchdog.State(s).String() }

// A Grant is a held lock with its fencing token. Its methods may be called by
// several goroutines. Release it, always; a grant to which neither it nor its
// context leads any more is given up as if its holder had died.
type Grant struct {
	h   *handle
	ctx leaseContext
}

// A Hold is a held lock of an [EfficiencyLocker]. It is like a [Grant], and
// has no token.
type Hold struct {
	h   *handle
	ctx leaseContext
}

// Lock returns the lock's name.
func (g *Grant) Lock() string { return g.h.lock }

// Token returns the fencing token, to be shown to the gate with every write.
func (g *Grant) Token() fence.Token { return g.h.token }

// Context returns a context that ends when the grant is lost, with the
// [*Lost] as its cause, or released, with [ErrReleased]. It carries the values
// of the context given to Acquire, and does not end with it. It asks the clock
// anew at each Err and Done.
func (g *Grant) Context() context.Context { return &g.ctx }

// State asks the clock and returns the grant's state.
func (g *Grant) State() State { return g.h.state() }

// Cause returns why the grant was lost, or nil if it is not.
func (g *Grant) Cause() *Lost { return g.h.lost() }

// Err returns nil while the grant is good, [ErrReleased] once Release was
// called, and the [*Lost] if it was lost before.
func (g *Grant) Err() error { return g.h.err() }

// Deadline returns how long the lease is good for without another answer of
// the service: until the instant before the last good keepalive left + TTL −
// Margin. It is 0 once the grant is lost or its release was asked for.
func (g *Grant) Deadline() time.Duration { return g.h.left() }

// Contended returns a channel that gets a value when somebody begins to wait
// for the lock, and is closed when the grant ends. A long run can then give
// others a turn. The value is delivered once, to one reader.
func (g *Grant) Contended() <-chan struct{} { return g.h.contended }

// Release gives the lock back. Call it after the guarded work has ended. It
// ignores a cancelled ctx (only ctx's values are used), waits for the service
// at most two call timeouts and never more than 10 s, and is idempotent: nil means that the grant is no longer
// held, also if that was so before. On [ErrReleasePending] the lock is no
// longer renewed, the release goes on in the background, and calling Release
// again tries again.
func (g *Grant) Release(ctx context.Context, opts ...ReleaseOption) error {
	return g.h.release(ctx, opts)
}

// Lock returns the lock's name.
func (h *Hold) Lock() string { return h.h.lock }

// Context returns a context that ends with the hold; see [Grant.Context].
func (h *Hold) Context() context.Context { return &h.ctx }

// State asks the clock and returns the hold's state.
func (h *Hold) State() State { return h.h.state() }

// Cause returns why the hold was lost, or nil if it is not.
func (h *Hold) Cause() *Lost { return h.h.lost() }

// Err is like [Grant.Err].
func (h *Hold) Err() error { return h.h.err() }

// Deadline is like [Grant.Deadline].
func (h *Hold) Deadline() time.Duration { return h.h.left() }

// Contended is like [Grant.Contended].
func (h *Hold) Contended() <-chan struct{} { return h.h.contended }

// Release gives the lock back; see [Grant.Release].
func (h *Hold) Release(ctx context.Context, opts ...ReleaseOption) error {
	return h.h.release(ctx, opts)
}

// A ReleaseOption changes one Release.
type ReleaseOption interface {
	applyRelease(*releaseOptions)
}

type releaseOptions struct{ failed bool }

type failedOption struct{}

func (failedOption) applyRelease(o *releaseOptions) { o.failed = true }

// Failed says that the guarded work did not succeed, so that a lock that is
// acquired once per period may be acquired again at once, if it was asked for
// that way. Others ignore it.
func Failed() ReleaseOption { return failedOption{} }

// A Gate guards one resource for one lock. Arm raises its mark to t, so that
// everything older is refused there. The packages under gate have them; the
// lockers call Arm with a context that ends at the client's deadline.
type Gate interface {
	Arm(ctx context.Context, t fence.Token) error
}
