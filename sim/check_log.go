package sim

import (
	"slices"
	"time"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// An audit follows the log, entry by entry, and knows by rules of its own what
// each command may do. It trusts nothing but the commands, their results, and
// the events; none of core's code.
type audit struct {
	j     *judge
	locks map[string]*lockBook
	names []string // of locks, in the order in which they were met
	// sessions are those that should live, by the commands; live are those
	// that do, by the events.
	sessions map[core.SessionID]*inLog
	live     map[core.SessionID]bool
	// idle is when no session lived for the last time: before that nothing was
	// timed, and no stall counted.
	idle   time.Duration
	raised bool // the epoch was: what was closed before is not known

	entry entryBook
}

// inLog is what the log says of one session.
type inLog struct {
	suspected bool
	since     core.Clock
	suspector uint64 // term of the suspicion
	lanes     map[uint32]*laneBook
}

// An entryBook is what is known of the entry that is looked at.
type entryBook struct {
	term     uint64
	clock    core.Clock
	joined   []place                  // requests that were new and wait, in order
	asker    map[uint64]place         // by grant number: the request that got it
	direct   map[uint64]bool          // grants that did not wait
	released map[uint64]core.Release  // by grant
	revoked  map[uint64]core.Revoke   // by grant: the last one
	now      map[uint64]bool          // grants that are revoked at once
	dropped  map[uint64]bool          // grants whose request was cancelled
	cancels  map[place]bool           // requests that waited, and were cancelled
	expired  map[core.SessionID]bool  // by a command that may
	ended    map[core.SessionID]bool  // by any command
	cleared  map[core.SessionID]bool  // named by a clear
	left     []core.Notice            // of requests that left a queue, in order
	settled  map[place]bool           // requests that waited, and got an outcome by some command
	granted  map[core.SessionID]bool  // got something
	shared   map[core.Revision]uint64 // how many shared grants
}

// place is one request.
type place struct {
	session core.SessionID
	request core.Request
}

func newAudit(j *judge) *audit {
	return &audit{j: j, locks: map[string]*lockBook{}, sessions: map[core.SessionID]*inLog{}, live: map[core.SessionID]bool{}}
}

// lock is the book of a lock.
func (a *audit) lock(name string) *lockBook {
	l := a.locks[name]
	if l == nil {
		l = &lockBook{name: name, plan: a.j.w.plan(name), blind: a.raised}
		a.locks[name] = l
		a.names = append(a.names, name)
	}
	return l
}

// plan is how a lock is asked for; nil for one that the world did not plan.
func (w *world) plan(name string) *lockPlan {
	i := slices.IndexFunc(w.locks, func(l *lockPlan) bool { return l.name == name })
	if i < 0 {
		return nil
	}
	return w.locks[i]
}

// look checks one entry.
func (a *audit) look(e replica.Applied, clock core.Clock) {
	a.entry = entryBook{
		term: e.Entry.Term, clock: clock,
		asker: map[uint64]place{}, direct: map[uint64]bool{}, released: map[uint64]core.Release{}, revoked: map[uint64]core.Revoke{},
		now: map[uint64]bool{}, dropped: map[uint64]bool{}, cancels: map[place]bool{}, expired: map[core.SessionID]bool{}, ended: map[core.SessionID]bool{}, cleared: map[core.SessionID]bool{},
		granted: map[core.SessionID]bool{}, shared: map[core.Revision]uint64{}, settled: map[place]bool{},
	}
	for _, n := range e.Did.Notices {
		a.entry.settled[place{n.Session, n.Request}] = true
	}
	for i, c := range e.Entry.Commands {
		if i < len(e.Did.Results) {
			a.command(c, e.Did.Results[i])
		}
	}
	for _, n := range e.Did.Notices {
		a.notice(n)
	}
	a.events(e.Did.Events)
	for _, c := range e.Entry.Commands {
		switch c := c.(type) {
		case core.Release:
			a.isGone("released", func(h inHand) bool { return h.number == c.Grant && h.session == c.Session })
		case core.Cancel:
			if a.isCancelled(c) {
				a.isGone("cancelled", func(h inHand) bool { return h.request == place{c.Session, c.Request} })
			}
		}
	}
}

// command looks at what one command should do, and what it was told to have
// done.
func (a *audit) command(c core.Command, r core.Result) {
	switch c := c.(type) {
	case core.Open:
		if r.Status == core.Done && a.sessions[r.Session] == nil {
			a.sessions[r.Session] = &inLog{lanes: map[uint32]*laneBook{}}
		} else if r.Status == core.Done {
			a.j.meet(OpenFound)
		}
	case core.End:
		a.entry.ended[c.ID] = a.entry.ended[c.ID] || a.sessions[c.ID] != nil
		delete(a.sessions, c.ID)
	case core.Suspect:
		for _, id := range c.Sessions {
			if x := a.sessions[id]; x != nil && !x.suspected {
				x.suspected, x.since, x.suspector = true, c.Since, a.entry.term
			}
		}
	case core.Clear:
		for _, id := range c.Sessions {
			a.entry.cleared[id] = true
			if a.entry.expired[id] {
				a.j.meet(ClearAndExpire)
			}
			if x := a.sessions[id]; x != nil {
				x.suspected = false
			}
		}
	case core.Expire:
		a.expire(c)
	case core.Acquire:
		a.acquire(c, r)
	case core.Cancel:
		a.cancel(c, r)
	case core.Release:
		if _, twice := a.entry.released[c.Grant]; !twice {
			a.entry.released[c.Grant] = c
		}
	case core.Revoke:
		a.entry.revoked[c.Grant] = c
		if c.Now {
			a.entry.now[c.Grant] = true
		}
	case core.RaiseEpoch:
		if r.Status == core.Done {
			a.sessions = map[core.SessionID]*inLog{}
		}
	}
}

// expire: it ends a session that is suspected with exactly its since (B4), and
// whose TTL has passed on the clock (B6).
func (a *audit) expire(c core.Expire) {
	x := a.sessions[c.ID]
	if a.entry.cleared[c.ID] {
		a.j.meet(ClearAndExpire)
	}
	switch {
	case x == nil || !x.suspected || x.since != c.Since:
		a.j.meet(ExpiryVoided)
	default:
		if age := a.entry.clock - x.since; age < core.Clock(a.j.w.TTL) {
			a.j.object(TooEarly, "session %d expires %v on the log's clock after it was last heard", a.j.short(c.ID), time.Duration(age))
		}
		if x.suspector != a.entry.term {
			a.j.meet(ExpiredByAnother)
		}
		a.entry.expired[c.ID], a.entry.ended[c.ID] = true, true
		delete(a.sessions, c.ID)
	}
}

// events follows the events, revision by revision: after each, the invariants
// must hold again.
func (a *audit) events(all []core.Event) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Revision == all[0].Revision {
			n++
		}
		group := all[:n]
		all = all[n:]
		ended := false
		var touched []*lockBook
		for _, e := range group {
			if e.Lock != "" {
				l := a.lock(e.Lock)
				if !slices.Contains(touched, l) {
					touched = append(touched, l)
				}
			}
			ended = a.event(e) || ended
			if a.j.w.stopped {
				return
			}
		}
		if ended {
			touched = touched[:0]
			for _, name := range a.names {
				touched = append(touched, a.locks[name])
			}
		}
		for _, l := range touched {
			a.settled(l)
		}
	}
}

// event follows one event, and reports whether a session ended.
func (a *audit) event(e core.Event) (ended bool) {
	switch e.Kind {
	case core.EventOpened:
		if len(a.live) == 0 {
			a.idle = a.j.w.now
		}
		a.live[e.Session] = true
	case core.EventEnded:
		a.sessionEnds(e)
		return true
	case core.EventEpoch:
		a.live = map[core.SessionID]bool{}
		a.locks, a.names, a.raised = map[string]*lockBook{}, nil, true
		a.j.due = newDues(a.j)
	case core.EventQueued:
		a.queued(e)
	case core.EventLeft:
		a.leaves(e)
	case core.EventGranted:
		a.granted(e)
	case core.EventReleased:
		a.grantEnds(e)
	case core.EventRevoked:
		a.marked(e)
	case core.EventClosed:
		l := a.lock(e.Lock)
		l.closed, l.opens = true, e.OpensAt
		if l.blind {
			l.must, l.blind = max(l.must, e.OpensAt, 1), false
		}
		a.j.due.expect(dueReopen, e.Lock, 0, max(0, e.OpensAt-e.Clock))
		if e.Cause == core.CauseLockDelay && len(l.queue) > 0 {
			a.j.meet(ClosedWithWaiters)
		}
	case core.EventReopened:
		a.reopens(e)
	}
	if e.Lock != "" {
		a.value(e)
	}
	return false
}

// sessionEnds checks that a session ends by a command that may end it.
func (a *audit) sessionEnds(e core.Event) {
	delete(a.live, e.Session)
	if a.entry.granted[e.Session] {
		a.j.meet(GrantedAndEnded)
	}
	if e.Cause == core.CauseExpired && !a.entry.expired[e.Session] {
		a.j.object(TooEarly, "session %d expires, and is not suspected with that since (B4)", a.j.short(e.Session))
	}
	if !a.entry.ended[e.Session] {
		a.j.object(TooEarly, "session %d ends by cause %d, and no command says so", a.j.short(e.Session), e.Cause)
	}
}

// isCancelled reports whether a request stands as cancelled.
func (a *audit) isCancelled(c core.Cancel) bool {
	x := a.sessions[c.Session]
	if x == nil {
		return false
	}
	l := x.lanes[c.Request.Lane]
	return l != nil && l.n == c.Request.N && l.status == core.Cancelled
}

// isGone checks that what was given back is not held.
func (a *audit) isGone(how string, same func(inHand) bool) {
	for _, name := range a.names {
		if i := slices.IndexFunc(a.locks[name].holders, same); i >= 0 && !a.j.w.stopped {
			a.j.object(NamesGrant, "grant %d of %s was %s, and is held still", a.locks[name].holders[i].number, name, how)
		}
	}
}
