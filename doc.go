// Package holdfast keeps locks and leases for programs that run in more than
// one place, and makes a lost lease harmless.
//
// There are two species, and the import list shows which one a program uses.
// An [EfficiencyLocker] gives a [*Hold]: doing the work twice costs only work.
// A [FencedLocker] gives a [*Grant] with a fencing token: a number that only
// rises, which a gate at the resource (packages gate/…) checks, so that a
// holder that lost its lease without noticing is refused. Nothing leads from a
// Hold to a token.
//
// A locker stands on an engine: engine/cluster for the Holdfast lock service,
// engine/memlock within one process. It opens a session when a lock is first
// asked for, keeps its lease alive while something is held or waited for, and
// leaves no goroutine behind when nothing is. A grant's state is held, then
// perhaps jeopardy, then perhaps lost; lost is final, it comes by the local
// clock alone, and it cancels [Grant.Context] with the cause.
//
// The package imports fence, driver and internal/watchdog, which decides; the
// files here only move calls and time. Start reading at [FencedLocker.Run] and
// [Grant]; then client.go and session.go.
package holdfast
