package explore

import (
	"holdfast/server/core"
)

// A Rewrite changes a command just before it is applied to a state: core with
// a rule taken out.
type Rewrite func(*core.State, core.Command) core.Command

// ExpireAny lets an expiry end its session whatever the log says of it
// (against B4).
func ExpireAny(_ *core.State, c core.Command) core.Command {
	if e, ok := c.(core.Expire); ok {
		return core.End{ID: e.ID, Operator: true, By: "no rule B4"}
	}
	return c
}

// ReopenAny lets a reopen open the lock whichever closing it was proposed for
// (against B8).
func ReopenAny(st *core.State, c core.Command) core.Command {
	if r, ok := c.(core.Reopen); ok {
		if v, found := st.Lock(r.Lock, 0); found && v.Closed {
			r.Closing = v.Closing
		}
		return r
	}
	return c
}

// ExpiryConfirms takes the end of a suspected session for an end that its
// client wanted: no lock-delay follows (against B8).
func ExpiryConfirms(st *core.State, c core.Command) core.Command {
	if e, ok := c.(core.Expire); ok {
		if t, live := st.SessionTiming(e.ID); live && t.Suspected && t.Since == e.Since {
			return core.End{ID: e.ID}
		}
	}
	return c
}

// RevokeConfirms takes an operator's revoke at once, and the freeing of a
// marked grant, for a release: no lock-delay follows (against B8).
func RevokeConfirms(st *core.State, c core.Command) core.Command {
	if r, ok := c.(core.Revoke); ok && (r.Now || r.Free) {
		if h, held := st.GrantByNumber(r.Grant); held {
			return core.Release{Session: h.Session, Grant: r.Grant}
		}
	}
	return c
}

// CloseOnSuccess closes by once-per only after a run that succeeded (against
// B13).
func CloseOnSuccess(_ *core.State, c core.Command) core.Command {
	if a, ok := c.(core.Acquire); ok && a.OncePer > 0 {
		a.RetryFailed = true
		return a
	}
	return c
}

// CloseFromEnd counts the period of once-per from the end of the run (against
// B13).
func CloseFromEnd(_ *core.State, c core.Command) core.Command {
	switch c := c.(type) {
	case core.Acquire:
		c.LockDelay, c.OncePer, c.RetryFailed = c.OncePer-c.OncePer/10, 0, false
		return c
	case core.Release:
		return core.Revoke{Lock: "x", Grant: c.Grant, Now: true, Cause: core.ByOperator}
	}
	return c
}

// FailureCloses takes each release for one that reports success (against
// B13's retry-failed).
func FailureCloses(_ *core.State, c core.Command) core.Command {
	if r, ok := c.(core.Release); ok {
		r.Failed = false
		return r
	}
	return c
}

// GrantCloses forgets retry-failed (against B13).
func GrantCloses(_ *core.State, c core.Command) core.Command {
	if a, ok := c.(core.Acquire); ok {
		a.RetryFailed = false
		return a
	}
	return c
}

// OpenAnew lets each open start a session, also one whose secret has a session
// (against B12).
func OpenAnew(_ *core.State, c core.Command) core.Command {
	if o, ok := c.(core.Open); ok {
		o.SecretHash[31] = byte(o.ID)
		return o
	}
	return c
}
