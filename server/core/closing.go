package core

import (
	"time"

	"holdfast/internal/planted"
)

// share is the part of a once-per period for which the lock is closed: the
// rest is for skew and latency (B13).
func share(period time.Duration) time.Duration { return period - period/10 }

// close closes a lock until a clock. A lock has one closing: of two the one
// that ends later stays, because nothing is granted under either.
//
// Closed by once-per, the lock refuses all that wait, and all that come. By
// lock-delay they wait. (B8, B13)
func (t *step) close(name string, cause Cause, opensAt Clock) {
	l := *t.mustLock(name)
	if l.closed() && l.opensAt >= opensAt {
		return
	}
	l.closing, l.cause, l.opensAt = t.rev(), cause, opensAt
	t.putLock(&l)
	t.emit(Event{Kind: EventClosed, Cause: cause, Lock: name, OpensAt: opensAt})
	t.touchLock(name)
	if cause != CauseOncePer || l.waiters == 0 {
		return
	}
	r := t.about(ruleClosed, &l)
	for range l.waiters {
		t.leave(t.head(name), CauseClosed, outcome{status: Refused, refusal: r})
	}
}

// reopen opens a lock if it is this closing that ended (B8); a late one does
// nothing.
func (t *step) reopen(c Reopen) Result {
	l, ok := t.locks.Get(&lock{name: c.Lock})
	if !ok || !l.closed() || l.closing != c.Closing && !planted.On("B8-reopens-any") {
		return Result{Status: Done}
	}
	next := *l
	next.closing, next.cause, next.opensAt = 0, 0, 0
	t.putLock(&next)
	t.emit(Event{Kind: EventReopened, Cause: l.cause, Lock: c.Lock})
	t.touchLock(c.Lock)
	t.settle(c.Lock)
	return Result{Status: Done, Revision: t.rev()}
}
