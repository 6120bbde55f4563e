package server

import (
	"errors"
	"fmt"
	"time"

	"holdfast/server/core"
	"holdfast/server/lease"
	"holdfast/server/replica"
)

// advance lets the replica do all that became possible.
func (l *loop) advance() {
	if l.failed != nil {
		return
	}
	if err := l.m.Advance(l); err != nil {
		l.fail(err)
	}
}

// Append implements replica.Effects.
func (l *loop) Append(a replica.Append) {
	if n := len(l.batches); n > 0 {
		if joined, ok := l.batches[n-1].Merge(a); ok {
			l.batches[n-1] = joined
			return
		}
	}
	l.batches = append(l.batches, a)
}

// Applied implements replica.Effects.
func (l *loop) Applied(a replica.Applied) {
	l.moved = true
	l.n.beat.Add(1)
	l.lease.Applied(l.n.now(), l.m.State(), a.Entry, a.Did)
	l.n.hub.publish(a.Did.Events)
	if changesMembers(a.Entry.Commands) {
		l.refreshMembers()
	}
	for _, e := range a.Did.Events {
		if e.Kind == core.EventEnded && e.Cause == core.CauseExpired {
			l.n.met.expired.Inc()
		}
	}
	if f := l.flight; f != nil && a.Proposal == f.handle {
		l.flight = nil
		for i, p := range f.items {
			l.settled(p)
			if p.sink != nil {
				l.answer(p, a.Did.Results[i])
			}
		}
	}
	l.memberApplied(a)
	for _, notice := range a.Did.Notices {
		key := waiterKey{notice.Session, notice.Request}
		if sink, ok := l.waiters[key]; ok {
			delete(l.waiters, key)
			sink(Answer{Result: notice.Result, Domain: l.m.State().Domain()})
		}
	}
}

// answer tells the result of a command. An acquire that waits is remembered
// until its notice comes; a later call of the same request takes its place.
func (l *loop) answer(p proposal, r core.Result) {
	acquire, ok := p.cmd.(core.Acquire)
	if !ok {
		p.sink(Answer{Result: r, Domain: l.m.State().Domain()})
		return
	}
	key := waiterKey{acquire.Session, acquire.Request}
	if r.Status == core.Refused && r.Refusal.Reason == core.Malformed {
		// Not a copy of what waits under the name, which was well formed.
		p.sink(Answer{Result: r, Domain: l.m.State().Domain()})
		return
	}
	if older, waits := l.waiters[key]; waits {
		delete(l.waiters, key)
		older(Answer{Err: ErrReplaced})
	}
	if r.Status == core.Waiting {
		l.waiters[key] = p.sink
	}
	p.sink(Answer{Result: r, Domain: l.m.State().Domain()})
}

// Role implements replica.Effects.
func (l *loop) Role(r replica.Role) {
	l.memberRole(r)
	if r.Leader != 0 {
		l.heardAt = l.n.now()
	}
	switch {
	case r.Leads && !l.leading:
		l.leading = true
		l.lease.Lead(l.n.now(), r.Term, l.m.State())
		l.log.Info("leading", "term", r.Term, "index", l.m.State().Index())
	case !r.Leads && l.leading:
		l.leading = false
		l.lease.StepDown()
		l.refuseQueued(l.notLeader())
		l.endWaits(fmt.Errorf("%w: leadership was lost while the request waited", ErrUnknownOutcome))
		l.log.Info("no longer leading", "term", r.Term)
	}
	if !r.Elected {
		l.net.handed = 0
	}
	l.sendAway(r)
}

// Read implements replica.Effects.
func (l *loop) Read(h replica.Handle) {
	r := l.round
	if r == nil || r.handle != h || !l.leading {
		return
	}
	l.round, l.moved = nil, true
	l.lease.Confirmed(r.upTo)
	for _, v := range r.views {
		l.n.beat.Add(1)
		v.run(l.reading(false))
	}
}

// Unknown implements replica.Effects.
func (l *loop) Unknown(h replica.Handle) {
	l.memberUnknown(h)
	if f := l.flight; f != nil && f.handle == h {
		l.flight = nil
		l.unknown(f, fmt.Errorf("%w: leadership was lost before the command was applied", ErrUnknownOutcome))
	}
}

func (l *loop) unknown(f *flight, err error) {
	for _, p := range f.items {
		l.settled(p)
		if p.sink != nil {
			p.sink(Answer{Err: err})
		}
	}
}

// refuseQueued answers everything of which nothing was appended.
func (l *loop) refuseQueued(err error) {
	queued := append(append(l.first, l.urgent...), l.ordinary...)
	l.first, l.urgent, l.ordinary = nil, nil, nil
	for _, p := range queued {
		l.settled(p)
		if p.sink != nil {
			p.sink(Answer{Err: err})
		}
	}
	views := l.fresh
	if l.round != nil {
		views = append(views, l.round.views...)
	}
	l.fresh, l.round, l.confirm = nil, nil, false
	for _, v := range views {
		v.finish(err)
	}
}

// endWaits answers the acquires that stand in a queue.
func (l *loop) endWaits(err error) {
	waiters := l.waiters
	l.waiters = map[waiterKey]func(Answer){}
	for _, sink := range waiters { // each is another client: the order does not matter
		sink(Answer{Err: err})
	}
}

// largeSession is a load from which on the pulse of a session is worth keeping
// for the next keepalive of the same turn.
const largeSession = 64

// answerPulses answers keepalives with what the applied state says now. It
// looks at a large session once: a client may send any number of keepalives
// for a session, and each would cost as much as the session holds.
func (l *loop) answerPulses(answers []lease.Answer) {
	var seen map[core.SessionID]Pulse
	for _, a := range answers {
		k, ok := l.pulses[a.Handle]
		if !ok {
			continue
		}
		delete(l.pulses, a.Handle)
		l.n.beat.Add(1)
		switch a.Status {
		case lease.Alive:
			p, ok := seen[k.session]
			if !ok {
				p = l.pulse(k.session)
				if len(p.Revoked) > largeSession || l.m.State().SessionLoad(k.session) > largeSession {
					if seen == nil {
						seen = map[core.SessionID]Pulse{}
					}
					seen[k.session] = p
				}
			}
			k.sink(p)
		case lease.Lost:
			k.sink(Pulse{Err: ErrSessionLost})
		default:
			k.sink(Pulse{Err: l.notLeader()})
		}
	}
}

func (l *loop) pulse(id core.SessionID) Pulse {
	st := l.m.State()
	timing, ok := st.SessionTiming(id)
	if !ok {
		return Pulse{Err: ErrSessionLost}
	}
	p := Pulse{TTL: timing.TTL, Contended: st.Contended(id)}
	for _, t := range st.TakenBack(id) {
		p.Revoked = append(p.Revoked, Revocation{Grant: t.Grant, Lock: t.Lock, Cause: t.Cause, By: t.By, Gone: !t.Held})
	}
	return p
}

// reading is what a View sees now.
func (l *loop) reading(stale bool) Reading {
	st, now := l.m.State(), l.n.now()
	r := Reading{
		State: st,
		Term:  l.m.Role().Term,
		Info:  ReadInfo{Stale: stale, Index: st.Index()},
		Clock: max(st.Clock(), l.lease.Clock(now)),
		Heard: func(id core.SessionID) (time.Duration, bool) { return l.lease.Heard(now, id) },
	}
	if stale && !l.leading {
		r.Info.Age = now - l.heardAt
	}
	r.TTLLeft = func(id core.SessionID) time.Duration {
		t, ok := st.SessionTiming(id)
		if !ok {
			return 0
		}
		if left, known := l.lease.TTLLeft(now, st, id); known {
			return min(max(0, left), t.TTL)
		}
		return t.TTL
	}
	return r
}

// notLeader says who to ask instead.
func (l *loop) notLeader() error {
	role := l.m.Role()
	e := &NotLeaderError{Term: role.Term}
	if role.Leader != 0 && role.Leader != l.id {
		e.Leader, e.Addr = role.Leader, l.net.members[role.Leader].ClientAddr
	}
	if l.health.stopping {
		return ErrStopped
	}
	if e.Leader == 0 {
		e.Reason = "no leader is elected yet: try again"
		if role.Elected {
			e.Reason = "it was elected and is catching up with its log: try again"
		}
		if l.health.silent {
			e.Reason = l.health.reason()
		}
	}
	return e
}

// fail ends the node: nothing is answered from its state any more.
func (l *loop) fail(err error) {
	if l.failed != nil {
		return
	}
	l.failed = err
	l.log.Error("the node ends", "error", err)
}

// end answers everybody who still waits, closes the store and tells the world.
func (l *loop) end() {
	closing := error(ErrStopped)
	if l.failed != nil {
		closing = l.failed
		if !errors.Is(closing, ErrPoisoned) {
			closing = fmt.Errorf("%w: %w", ErrStopped, l.failed)
		}
	}
	l.n.in.close(closing)
	unknown := fmt.Errorf("%w: %w", ErrUnknownOutcome, closing)
	l.health.stopping = true
	if l.flight != nil {
		l.unknown(l.flight, unknown)
		l.flight = nil
	}
	l.refuseQueued(closing)
	l.endWaits(unknown)
	l.endMembers(closing)
	for _, k := range l.pulses { // each is another client: the order does not matter
		k.sink(Pulse{Err: closing})
	}
	l.pulses = nil
	urgent, ordinary, refused := l.n.in.take(nil, nil)
	for _, r := range append(urgent, ordinary...) {
		r.answer(closing)
	}
	for _, r := range refused {
		r.req.answer(closing)
	}
	l.n.hub.end(closing)
	l.workers.Wait()
	if l.net.port != nil {
		l.net.port.Close()
	}
	l.disk.close()
	<-l.disk.ended
	if l.failed == nil && l.disk.mu.closed != nil {
		l.failed = fmt.Errorf("%w: %w", ErrPoisoned, l.disk.mu.closed)
	}
	l.publish()
	l.n.met.unregister()
	l.n.err = l.failed
	close(l.n.done)
}
