package core

import "holdfast/internal/planted"

// admit applies rule C1 to a request: ok says that it is to be executed now;
// otherwise r is its answer. A request that is executed must be recorded in
// the same command. What it asks for must be the same in every copy; a is zero
// for a cancel, which may meet any.
func (t *step) admit(id SessionID, req Request, a asked) (r Result, ok bool) {
	x, live := t.session(id)
	switch {
	case !live:
		return refuse(ruleSessionLost), false
	case req.N == 0:
		return refuse(ruleRequestZero), false
	case req.N > MaxRequest:
		return (&refusal{rule: ruleRequestRange}).saying(req.N, req.Lane), false
	}
	n, used := t.lanes.Get(lane{session: id, lane: req.Lane})
	switch {
	case !used && x.lanes >= MaxPerSession:
		return refuse(ruleLanes), false
	case planted.On("C1-copy-executed") && used && req.N == n.last && n.outcome.status != Waiting,
		planted.On("C1-late-copy-executed") && used && req.N < n.last && n.outcome.status != Waiting:
		return Result{}, true
	case !used || req.N > n.last && n.outcome.status != Waiting:
		return Result{}, true
	case req.N > n.last:
		// The lane's owner may go on only after a final answer. To let it
		// pass would lose the waiting request, which nothing could name.
		return refuse(ruleLaneBusy), false
	case req.N < n.last:
		return Result{Status: Settled, Last: n.last}, false
	case n.asked != a && a.kind != 0 && n.outcome.status != Cancelled:
		return n.falseRetry(a), false
	}
	return t.remembered(n), false
}

// remembered is the answer to one more copy of a lane's last request.
func (t *step) remembered(n lane) Result {
	r := n.outcome.result()
	switch r.Status {
	case Waiting:
		r.Place = t.place(t.waitOn(n), maxPlaceAnswer)
	case Granted:
		_, held := t.grant(r.Grant.Number)
		r.Ended = !held
	}
	return r
}

// record notes what a request asked for, and what came of it. A cancelled name
// stands for nothing any more: any copy that comes under it is answered
// Cancelled, seen before or not.
func (t *step) record(id SessionID, req Request, a asked, o outcome) {
	if o.status == Cancelled {
		a = asked{}
	}
	n := lane{session: id, lane: req.Lane, last: req.N, asked: a, outcome: o}
	if _, used := t.lanes.ReplaceOrInsert(n); used {
		return
	}
	x := t.mustSession(id)
	x.lanes++
	t.sessions.ReplaceOrInsert(x)
}

// settleRefused records a refusal and answers with it.
func (t *step) settleRefused(id SessionID, req Request, a asked, r *refusal) Result {
	t.record(id, req, a, outcome{status: Refused, refusal: r})
	return r.refused()
}

// result returns the outcome as an answer.
func (o outcome) result() Result {
	if o.status == Refused {
		return o.refusal.refused()
	}
	return Result{Status: o.status, Grant: o.grant, Revision: o.revision}
}

// waitOn returns the wait of a lane whose last request waits.
func (s *State) waitOn(n lane) *wait {
	w, ok := s.waitsBySess.Get(&wait{ask: ask{session: n.session, request: Request{Lane: n.lane}}})
	if !ok || w.request.N != n.last {
		broken("invariant 7: lane %d of session %d waits and is in no queue", n.lane, n.session)
	}
	return w
}

// cancel settles a request (C2). Afterwards the request holds nothing and
// waits for nothing, and no late copy of it changes that: the answer is
// Cancelled, also for one that had been refused. What cannot be taken back, a
// value that was put or deleted, is answered with its outcome.
func (t *step) cancel(c Cancel) Result {
	cancelled := outcome{status: Cancelled}
	n, used := t.lanes.Get(lane{session: c.Session, lane: c.Request.Lane})
	x, live := t.session(c.Session)
	if live && !used && c.Request.N > 0 && x.lanes >= MaxPerSession {
		// No copy will ever be admitted on a lane that this session cannot
		// have, so there is nothing to record.
		return cancelled.result()
	}
	if !live || !used || n.last != c.Request.N {
		r, unseen := t.admit(c.Session, c.Request, asked{})
		if unseen && planted.On("C2-unseen-not-recorded") {
			return cancelled.result()
		}
		if unseen {
			t.record(c.Session, c.Request, asked{}, cancelled)
			return cancelled.result()
		}
		return r
	}
	switch n.outcome.status {
	case Waiting:
		w := t.waitOn(n)
		t.leave(w, CauseCancelled, cancelled)
		t.settle(w.lock)
	case Granted:
		number := n.outcome.grant.Number
		t.record(c.Session, c.Request, asked{}, cancelled)
		if g, held := t.grant(number); held && !planted.On("C2-granted-stays") {
			t.endGrant(g, end{cause: CauseCancelled, confirmed: true})
			t.settle(g.Lock)
		} else if d, gone := t.tombs.Get(tombOf(number)); gone {
			t.dropTomb(d)
		}
	case Done:
		return n.outcome.result()
	}
	return cancelled.result()
}
