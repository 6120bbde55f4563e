package sim

import (
	"slices"
	"time"

	"holdfast/server/core"
)

// A lockBook is one lock, as the events tell it.
type lockBook struct {
	name    string
	plan    *lockPlan
	holders []inHand
	queue   []waiting
	sealed  bool
	closed  bool       // by the events
	opens   core.Clock // when it is
	// must is until when it should be closed, by the rules; 0 for not.
	must core.Clock
	// blind: its closing is not known, because the epoch was raised.
	blind bool
	// valueOf is the grant with which its value ends; 0: with none.
	valueOf uint64
}

// inHand is one holder.
type inHand struct {
	number, token uint64
	session       core.SessionID
	request       place
	slot          uint32
	shared        bool
	since         core.Clock
	revoked       bool
	revokedAt     core.Clock
}

// waiting is one place in the queue.
type waiting struct {
	place
	shared bool
}

func (l *lockBook) limit() int {
	if l.plan == nil {
		return 1
	}
	return max(1, int(l.plan.limit))
}

// room reports whether the lock has room for one more, whoever waits.
func (l *lockBook) room(shared bool) bool {
	switch {
	case l.closed:
		return false
	case len(l.holders) == 0:
		return true
	case l.limit() > 1:
		return len(l.holders) < l.limit()
	}
	return shared && l.holders[0].shared && !l.sealed
}

// holder is the place of a grant among the holders, or -1.
func (l *lockBook) holder(number uint64) int {
	return slices.IndexFunc(l.holders, func(h inHand) bool { return h.number == number })
}

// queued follows a request into its queue.
func (a *audit) queued(e core.Event) {
	l := a.lock(e.Lock)
	if len(a.entry.joined) == 0 || a.entry.joined[0].session != e.Session {
		a.j.object(OneRequest, "session %d joins the queue of %s, and no new request says so", a.j.short(e.Session), e.Lock)
		return
	}
	if !a.live[e.Session] {
		a.j.object(OfTheDead, "session %d joins the queue of %s, and has ended (3)", a.j.short(e.Session), e.Lock)
	}
	if e.Shared && l.sealed {
		a.j.meet(BehindTheSeal)
	}
	l.queue = append(l.queue, waiting{a.entry.joined[0], e.Shared})
	a.entry.joined = a.entry.joined[1:]
}

// leaves follows a request out of its queue without a grant.
func (a *audit) leaves(e core.Event) {
	l := a.lock(e.Lock)
	i := slices.IndexFunc(a.entry.left, func(n core.Notice) bool { return n.Session == e.Session })
	if i < 0 {
		a.j.object(OneRequest, "session %d leaves the queue of %s, and no notice says so", a.j.short(e.Session), e.Lock)
		return
	}
	at := place{e.Session, a.entry.left[i].Request}
	a.entry.left = slices.Delete(a.entry.left, i, i+1)
	n := len(l.queue)
	l.queue = slices.DeleteFunc(l.queue, func(w waiting) bool { return w.place == at })
	if len(l.queue) == n {
		a.j.object(OneRequest, "request %v of session %d leaves the queue of %s, and stood in none", at.request, a.j.short(e.Session), e.Lock)
	}
	if e.Cause == core.CauseClosed {
		a.j.meet(RefusedInQueue)
	}
}

// granted checks a grant: to the living (3), in order (5), one holder or readers
// of one generation (2, A1), while the lock is open (B8).
func (a *audit) granted(e core.Event) {
	l, j := a.lock(e.Lock), a.j
	by, asked := a.entry.asker[e.Grant]
	switch {
	case !asked || by.session != e.Session:
		j.object(OneRequest, "grant %d of %s to session %d, which no request asked for", e.Grant, e.Lock, j.short(e.Session))
	case !a.live[e.Session]:
		j.object(OfTheDead, "grant %d of %s to session %d, which has ended (3)", e.Grant, e.Lock, j.short(e.Session))
	case l.closed:
		j.object(Closing, "grant %d of %s, which is closed until %v, at %v", e.Grant, e.Lock, time.Duration(l.opens), time.Duration(e.Clock))
	}
	if a.entry.direct[e.Grant] {
		if len(l.queue) > 0 {
			j.object(QueueOrder, "grant %d of %s to session %d, past %d who wait (5)", e.Grant, e.Lock, j.short(e.Session), len(l.queue))
		}
	} else if len(l.queue) == 0 || l.queue[0].place != by {
		j.object(QueueOrder, "grant %d of %s to session %d, which is not the head of the queue (5)", e.Grant, e.Lock, j.short(e.Session))
	} else {
		l.queue = l.queue[1:]
	}
	if j.w.stopped {
		return
	}
	a.fits(l, e)
	l.blind = false
	j.tale.logged(e, by, l.limit(), j.w.now)
	l.holders = append(l.holders, inHand{
		number: e.Grant, token: e.Token, session: e.Session, request: by, slot: e.Slot, shared: e.Shared, since: e.Clock,
	})
	if e.Shared {
		if a.entry.shared[e.Revision]++; a.entry.shared[e.Revision] == 2 {
			j.meet(RunTaken)
		}
	}
	if p := l.plan; p != nil {
		if p.oncePer > 0 && !p.retryFailed {
			l.close(e.Clock + core.Clock(p.oncePer-p.oncePer/10))
		}
		if p.maxHold > 0 {
			j.due.expect(dueMark, e.Lock, e.Grant, core.Clock(p.maxHold))
		}
	}
}

// fits checks a grant against those who hold (2), and its token (A1).
func (a *audit) fits(l *lockBook, e core.Event) {
	token, other := e.Grant, false
	for _, h := range l.holders {
		switch {
		case l.limit() > 1:
			other = other || h.slot == e.Slot
		case !e.Shared || !h.shared:
			other = true
		default:
			token = h.token
		}
	}
	switch {
	case other || len(l.holders) >= max(l.limit(), 1) && !e.Shared || int(e.Slot) >= l.limit():
		a.j.object(OneHolder, "grant %d of %s, slot %d, beside %d holders (2)", e.Grant, e.Lock, e.Slot, len(l.holders))
	case l.sealed:
		a.j.object(OneHolder, "grant %d of %s joins a generation on which a number was burnt (2, B11)", e.Grant, e.Lock)
	case e.Token != token:
		a.j.object(OneHolder, "grant %d of %s has token %d, and %d is its generation's (A1)", e.Grant, e.Lock, e.Token, token)
	}
}

// close notes that a lock is to be closed, at least until then. Of two closings
// the one that ends later counts.
func (l *lockBook) close(until core.Clock) { l.must = max(l.must, until, 1) }

// grantEnds checks that a grant ends by a command that names it (6), or with its
// session, not before its time, and that its holder knows.
func (a *audit) grantEnds(e core.Event) {
	l, j := a.lock(e.Lock), a.j
	i := l.holder(e.Grant)
	if i < 0 {
		j.object(NamesGrant, "grant %d of %s ends, and is not held", e.Grant, e.Lock)
		return
	}
	h := l.holders[i]
	l.holders = slices.Delete(l.holders, i, i+1)
	rel, released := a.entry.released[e.Grant]
	rev, revoked := a.entry.revoked[e.Grant]
	named := true
	switch e.Cause {
	case core.CauseReleased:
		named = released && rel.Session == h.session
		if h.revoked {
			j.meet(RevokeAcknowledged)
		}
	case core.CauseCancelled:
		named = a.entry.dropped[e.Grant]
	case core.CauseExpired, core.CauseEnded, core.CauseEpoch:
		named = !a.live[h.session]
	case core.CauseOperator, core.CauseMaxHold:
		named = !a.live[h.session] || revoked && rev.Lock == e.Lock && (rev.Now || rev.Free || a.entry.now[e.Grant])
	}
	if !named {
		j.object(NamesGrant, "grant %d of %s ends by cause %d, and no command names it (6)", e.Grant, e.Lock, e.Cause)
	}
	a.freed(l, h, e)
	a.closes(l, h, e, rel.Failed)
	if len(l.holders) == 0 {
		l.sealed = false
	} else if a.entry.now[e.Grant] && h.shared {
		l.sealed = true
	}
	j.due.met(dueMark, e.Lock, e.Grant)
	if h.revoked {
		j.due.met(dueFree, e.Lock, e.Grant)
	}
	j.grantOver(e, a.entry.now[e.Grant])
}

// freed checks that a grant which was asked for politely is freed no earlier
// than a TTL later (B11).
func (a *audit) freed(l *lockBook, h inHand, e core.Event) {
	if e.Cause != core.CauseOperator && e.Cause != core.CauseMaxHold || !a.live[h.session] || a.entry.now[e.Grant] {
		return
	}
	a.j.meet(RevokeForced)
	if !h.revoked || e.Clock-h.revokedAt < core.Clock(a.j.w.TTL) {
		a.j.object(TooEarly, "grant %d of %s is freed %v after it was asked for (B11)", e.Grant, l.name, time.Duration(e.Clock-h.revokedAt))
	}
}

// closes says how the end of a grant closes its lock (B8, B13).
func (a *audit) closes(l *lockBook, h inHand, e core.Event, failed bool) {
	p := l.plan
	if p == nil {
		return
	}
	confirmed := e.Cause == core.CauseReleased || e.Cause == core.CauseCancelled || e.Cause == core.CauseEnded
	switch {
	case !confirmed && p.delay > 0:
		l.close(e.Clock + core.Clock(p.delay))
	case e.Cause == core.CauseReleased && !failed && p.retryFailed:
		l.close(h.since + core.Clock(p.oncePer-p.oncePer/10))
	}
}

// marked checks that a grant is asked for by a command that names it.
func (a *audit) marked(e core.Event) {
	l, j := a.lock(e.Lock), a.j
	i := l.holder(e.Grant)
	r, ok := a.entry.revoked[e.Grant]
	if i < 0 || !ok || r.Lock != e.Lock {
		j.object(NamesGrant, "grant %d of %s is asked for, and no command names it (6)", e.Grant, e.Lock)
		return
	}
	h := &l.holders[i]
	h.revoked, h.revokedAt = true, e.Clock
	l.sealed = l.sealed || h.shared && e.Burnt != 0
	if e.Burnt == 0 {
		j.object(NamesGrant, "grant %d of %s is asked for, and no number is burnt (B11)", e.Grant, e.Lock)
	}
	if e.Cause == core.CauseMaxHold && l.plan != nil {
		j.meet(MaximumReached)
		if age := e.Clock - h.since; age < core.Clock(l.plan.maxHold) {
			j.object(TooEarly, "grant %d of %s is asked for %v after it began, and may be held for %v (B8)", e.Grant, e.Lock, time.Duration(age), l.plan.maxHold)
		}
	}
	j.due.met(dueMark, e.Lock, e.Grant)
	j.due.expect(dueFree, e.Lock, e.Grant, core.Clock(j.w.TTL))
}

// reopens checks that a lock opens no earlier than its closing says (B8).
func (a *audit) reopens(e core.Event) {
	l := a.lock(e.Lock)
	if !l.blind && !l.closed || e.Clock < l.opens {
		a.j.object(Closing, "%s opens at %v, and was closed until %v (B8)", e.Lock, time.Duration(e.Clock), time.Duration(l.opens))
	}
	a.j.due.met(dueReopen, e.Lock, 0)
	l.closed, l.opens, l.must, l.blind = false, 0, 0, false
}

// settled checks a lock after a command: everybody on it lives (3), it is closed
// as the rules want, and its head waits for a reason (4).
func (a *audit) settled(l *lockBook) {
	j := a.j
	for _, h := range l.holders {
		if !a.live[h.session] {
			j.object(OfTheDead, "grant %d of %s belongs to session %d, which has ended (3)", h.number, l.name, j.short(h.session))
			return
		}
	}
	for _, q := range l.queue {
		if !a.live[q.session] {
			j.object(OfTheDead, "session %d waits for %s, and has ended (3)", j.short(q.session), l.name)
			return
		}
	}
	a.valueEnds(l)
	until := core.Clock(0)
	if l.closed {
		until = max(l.opens, 1)
	}
	if l.blind {
		return
	}
	if l.plan != nil && until != l.must {
		j.object(Closing, "%s is closed until %v, and should be until %v (B8, B13)", l.name, time.Duration(until), time.Duration(l.must))
	}
	if len(l.queue) > 0 && l.room(l.queue[0].shared) {
		j.object(HeadWaits, "%s has room, and session %d is the head of its queue (4)", l.name, j.short(l.queue[0].session))
	}
}
