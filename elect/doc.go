// Package elect keeps one of many processes in office: its primary. An
// [Elector] runs a function while its process holds a lock, and stands again
// after every loss, whatever it was: no lost lease, outage, revoke or error of
// the service makes it stop in silence. What it does is said by
// [Elector.Standing] and [Elector.Check], for a readiness probe.
//
// The lock is one of a [holdfast.FencedLocker], so the function has a fencing
// token, and its context ends by the watchdog of package holdfast: by the local
// clock alone, before anybody else can be in office. The lock is given back
// only after the function has returned, so that each primary begins after the
// one before it has ended. Give the token to a gate at the resource all the
// same: a paused primary does not know that it is one no more.
//
// A [Board], which the client type of an engine may have, adds what needs more
// than a lock: a value that the primary publishes with its grant and removes
// with it, [Observe] for everybody who wants to know who is primary, and a
// preferred candidate, to whom the others hand over (see Options.Prefer).
//
// The package imports holdfast and fence, and no engine. Start reading at
// [Elector.Run], then office.go.
package elect
