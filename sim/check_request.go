package sim

import (
	"bytes"

	"holdfast/server/core"
)

// A laneBook is the last request of a lane, and what came of it.
type laneBook struct {
	n      uint64
	asked  core.Acquire // what it was, without its name
	status core.Status
	number uint64 // Granted: the grant's
}

// acquire checks an acquire's result against all that was said to copies of it
// before (7, C1).
func (a *audit) acquire(c core.Acquire, r core.Result) {
	x := a.sessions[c.Session]
	if x == nil {
		if r.Status != core.Refused {
			a.j.object(OneRequest, "an acquire of session %d, which has ended, has the result %d", a.j.short(c.Session), r.Status)
		}
		return
	}
	old, at := x.lanes[c.Request.Lane], place{c.Session, c.Request}
	switch {
	case old != nil && c.Request.N < old.n:
		a.j.meet(SettledCopy)
		if r.Status != core.Settled {
			a.j.object(OneRequest, "request %v of session %d is an old one, and has the result %d", c.Request, a.j.short(c.Session), r.Status)
		}
	case old != nil && c.Request.N > old.n && old.status == core.Waiting &&
		// Of a notice it is not known which command of the entry led to it.
		(r.Status == core.Refused || !a.entry.settled[place{c.Session, core.Request{Lane: c.Request.Lane, N: old.n}}]):
		if r.Status != core.Refused {
			a.j.object(OneRequest, "request %v of session %d has the result %d, and number %d of its lane waits", c.Request, a.j.short(c.Session), r.Status, old.n)
		}
	case old != nil && c.Request.N == old.n && !same(old.asked, c):
		a.j.meet(FalseRetry)
		cancelled := r.Status == core.Cancelled && (old.status == core.Cancelled || old.status == core.Waiting)
		if r.Status != core.Refused && !cancelled {
			a.j.object(OneRequest, "request %v of session %d was another request before, and has the result %d", c.Request, a.j.short(c.Session), r.Status)
		}
	case old != nil && c.Request.N == old.n:
		a.again(at, old, r)
	default:
		old = &laneBook{n: c.Request.N, asked: c, status: r.Status}
		x.lanes[c.Request.Lane] = old
		switch r.Status {
		case core.Waiting:
			a.entry.joined = append(a.entry.joined, at)
		case core.Granted:
			old.number = r.Grant.Number
			a.entry.asker[old.number], a.entry.direct[old.number] = at, true
		}
	}
}

// same reports whether two acquires under one name are one request. A name that
// was cancelled before anything came under it stands for all.
func same(a, b core.Acquire) bool {
	published := bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
	return a.Lock == "" || a.Lock == b.Lock && a.Shared == b.Shared && a.Limit == b.Limit && a.LockDelay == b.LockDelay && published &&
		a.OncePer == b.OncePer && a.RetryFailed == b.RetryFailed && a.MaxHold == b.MaxHold
}

// again checks the answer to one more copy of a request.
func (a *audit) again(at place, old *laneBook, r core.Result) {
	switch old.status {
	case core.Waiting: // the others by a command before it in this entry
		old.status = r.Status
		if r.Status == core.Granted {
			old.number = r.Grant.Number
			a.entry.asker[old.number] = at
		}
		return
	case core.Cancelled:
		a.j.meet(CopyAfterCancel)
	case core.Granted:
		a.j.meet(FromTheLane)
	}
	if r.Status != old.status || r.Status == core.Granted && r.Grant.Number != old.number {
		a.j.object(OneRequest, "request %v of session %d had the outcome %d (grant %d), and a copy has %d", at.request, a.j.short(at.session), old.status, old.number, r.Status)
	}
}

// cancel checks that a cancelled request stays one (C2).
func (a *audit) cancel(c core.Cancel, r core.Result) {
	x := a.sessions[c.Session]
	if x == nil {
		return
	}
	old := x.lanes[c.Request.Lane]
	switch {
	case old != nil && c.Request.N < old.n:
		if r.Status != core.Settled {
			a.j.object(OneRequest, "a cancel of the old request %v of session %d has the result %d", c.Request, a.j.short(c.Session), r.Status)
		}
		return
	case r.Status != core.Cancelled:
		return
	case old == nil || c.Request.N > old.n:
		a.j.meet(CancelFirst)
	case old.status == core.Granted:
		a.entry.dropped[old.number] = true
	case old.status == core.Refused:
		return // it stays one
	case old.status == core.Waiting: // it may have been granted or refused in this entry
		a.entry.cancels[place{c.Session, c.Request}] = true
	}
	was := core.Acquire{}
	if old != nil && c.Request.N == old.n {
		was = old.asked
	}
	x.lanes[c.Request.Lane] = &laneBook{n: c.Request.N, asked: was, status: core.Cancelled}
}

// notice checks what a request that waited became.
func (a *audit) notice(n core.Notice) {
	at := place{n.Session, n.Request}
	if n.Result.Status != core.Granted {
		a.entry.left = append(a.entry.left, n)
	} else {
		a.entry.asker[n.Result.Grant.Number] = at
		a.entry.granted[n.Session] = true
		if a.entry.cancels[at] {
			a.j.meet(GrantedAndCancelled)
			a.entry.dropped[n.Result.Grant.Number] = true
		}
	}
	x := a.sessions[n.Session]
	if x == nil || a.entry.ended[n.Session] { // perhaps opened anew, by a late copy
		return
	}
	old := x.lanes[n.Request.Lane]
	switch {
	case old == nil || old.n < n.Request.N:
		a.j.object(OneRequest, "a notice of request %v of session %d, which nobody made", n.Request, a.j.short(n.Session))
	case old.n > n.Request.N: // settled, and the lane has gone on, in this entry
	case old.status == core.Waiting:
		old.status = n.Result.Status
		if n.Result.Status == core.Granted {
			old.number = n.Result.Grant.Number
		}
	case old.status == core.Cancelled && a.entry.cancels[at]:
		if n.Result.Status == core.Refused {
			old.status = core.Refused // before the cancel came
		}
	case old.status != n.Result.Status || n.Result.Status == core.Granted && old.number != n.Result.Grant.Number:
		a.j.object(OneRequest, "request %v of session %d had the outcome %d (grant %d), and then %d", n.Request, a.j.short(n.Session), old.status, old.number, n.Result.Status)
	}
}
