package sim

import (
	"slices"
	"strconv"

	"holdfast/internal/planted"
	"holdfast/server/core"
	"holdfast/server/replica"
)

// advance lets the replica do all that became possible.
func (s *server) advance() {
	if !s.up {
		return
	}
	if err := s.m.Advance(s); err != nil {
		s.fail(err)
	}
}

// Append implements replica.Effects.
func (s *server) Append(a replica.Append) {
	if n := len(s.batches); n > 0 {
		if joined, ok := s.batches[n-1].Merge(a); ok {
			s.batches[n-1] = joined
			return
		}
	}
	s.batches = append(s.batches, a)
}

// Applied implements replica.Effects.
func (s *server) Applied(a replica.Applied) {
	s.moved = true
	s.w.judge.applied(s, a)
	s.lease.Applied(s.time(), s.m.State(), a.Entry, a.Did)
	if f := s.flight; f != nil && uint64(a.Proposal) == f.handle {
		s.flight = nil
		for i, p := range f.items {
			if p.call != nil {
				s.answerCommand(*p.call, a.Did.Results[i])
			}
		}
	}
	if m, ok := s.changes[uint64(a.Proposal)]; ok && a.Proposal != 0 {
		delete(s.changes, uint64(a.Proposal))
		if m.answer != nil {
			s.reply(m, answer{})
		}
	}
	for _, n := range a.Did.Notices {
		key := waiterKey{n.Session, n.Request}
		if m, ok := s.waiters[key]; ok {
			s.forget(key)
			s.reply(m, s.about(m, n.Result))
		}
	}
	s.checkRemoved()
}

func (s *server) forget(key waiterKey) {
	delete(s.waiters, key)
	s.order = slices.DeleteFunc(s.order, func(k waiterKey) bool { return k == key })
}

// answerCommand tells the result of a command. An acquire that waits is
// answered when its notice comes; a later copy takes its place.
func (s *server) answerCommand(m message, r core.Result) {
	open, isOpen := m.cmd.(core.Open)
	if isOpen && r.Status == core.Done && r.Session != open.ID {
		if planted.On("B12-found-is-not-heard") {
			s.reply(m, s.about(m, r))
			return
		}
		m.session = r.Session // found: it is heard before it is promised (B10)
		s.keepalive(m)
		return
	}
	acquire, ok := m.cmd.(core.Acquire)
	if !ok || r.Status == core.Refused && r.Refusal.Reason == core.Malformed {
		s.reply(m, s.about(m, r))
		return
	}
	key := waiterKey{acquire.Session, acquire.Request}
	if older, waits := s.waiters[key]; waits {
		s.forget(key)
		s.reply(older, answer{retry: true})
	}
	if r.Status == core.Waiting {
		s.waiters[key] = m
		s.order = append(s.order, key)
		return
	}
	s.reply(m, s.about(m, r))
}

// about is the answer that tells a result.
func (s *server) about(m message, r core.Result) answer {
	a := answer{result: r, domain: s.m.State().Domain(), burnt: r.Number}
	if r.Status == core.Refused && r.Refusal.Reason == core.SessionLost {
		a.lost = true
	}
	return a
}

// Role implements replica.Effects.
func (s *server) Role(r replica.Role) {
	s.w.judge.role(s, r)
	switch {
	case r.Leads && !s.leading:
		s.leading = true
		s.lease.Lead(s.time(), r.Term, s.m.State())
		s.say("leads in term %d at %d", r.Term, s.m.State().Index())
	case !r.Leads && s.leading:
		s.leading = false
		s.lease.StepDown()
		s.say("leads no longer, term %d", r.Term)
		s.stepDown()
	}
	if !r.Elected {
		s.handed = 0
	}
}

// stepDown answers everybody who waits at a leader that is none any more.
func (s *server) stepDown() {
	s.refuse(slices.Concat(s.urgent, s.ordinary))
	s.first, s.urgent, s.ordinary = nil, nil, nil
	reads := s.fresh
	if s.round != nil {
		reads = append(reads, s.round.reads...)
	}
	s.fresh, s.round, s.confirm = nil, nil, false
	for _, m := range reads {
		s.reply(m, answer{retry: true, leader: s.leader()})
	}
	for _, key := range s.order {
		s.reply(s.waiters[key], answer{retry: true, leader: s.leader()})
	}
	s.waiters, s.order = map[waiterKey]message{}, nil
}

// Read implements replica.Effects.
func (s *server) Read(h replica.Handle) {
	r := s.round
	if r == nil || r.handle != uint64(h) || !s.leading {
		return
	}
	s.round, s.moved = nil, true
	s.lease.Confirmed(r.upTo)
	for _, m := range r.reads {
		v, _ := s.m.State().Lock(m.lock, 100)
		s.reply(m, answer{view: v})
	}
}

// Unknown implements replica.Effects.
func (s *server) Unknown(h replica.Handle) {
	if m, ok := s.changes[uint64(h)]; ok {
		delete(s.changes, uint64(h))
		if m.answer != nil {
			s.reply(m, answer{retry: true})
		}
	}
	if f := s.flight; f != nil && f.handle == uint64(h) {
		s.flight = nil
		s.w.judge.unknown(f.items)
		for _, p := range f.items {
			if p.call != nil {
				s.reply(*p.call, unknown())
			}
		}
	}
}

// change proposes a change of membership.
func (s *server) change(m message) {
	s.handles++
	if err := s.m.ProposeChange(replica.Handle(s.handles), core.Header{Clock: s.lease.Clock(s.time())}, *m.change); err != nil {
		if m.answer != nil {
			s.reply(m, answer{retry: true})
		}
		return
	}
	s.changes[s.handles] = m
	s.moved = true
}

// tickMembers gives learners that caught up their vote.
func (s *server) tickMembers() {
	if !s.leading || len(s.changes) > 0 {
		return
	}
	members, _ := s.m.State().Members()
	for _, m := range members {
		if m.Learner && len(s.changes) == 0 {
			s.change(message{change: &replica.Change{Kind: replica.Promote, Member: m}})
		}
	}
}

// checkRemoved ends a server that is no member any more.
func (s *server) checkRemoved() {
	if s.up && s.m.Removed() {
		s.say("was removed")
		s.w.judge.meet(MemberRemoved)
		s.gone = true
		s.crash()
	}
}

func grantID(n uint64) string { return strconv.FormatUint(n, 10) }
