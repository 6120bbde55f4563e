package sim

import (
	"maps"
	"slices"
	"strconv"

	"holdfast/internal/planted"
	"holdfast/server/core"
	"holdfast/server/lease"
	"holdfast/server/replica"
)

// advance lets the replica do all that became possible.
func (s *server) advance() {
	if s.failed == nil {
		s.fail(s.m.Advance(s))
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
	if changesMembers(a.Entry.Commands) {
		s.refreshMembers()
	}
	if f := s.flight; f != nil && uint64(a.Proposal) == f.handle {
		s.flight = nil
		for i, p := range f.items {
			s.settled(p)
			if p.call != nil {
				s.answerCommand(*p.call, a.Did.Results[i])
			}
		}
	}
	if m, ok := s.changes[uint64(a.Proposal)]; ok && a.Proposal != 0 {
		delete(s.changes, uint64(a.Proposal))
		s.changed(m)
	}
	s.checkRemoved()
	for _, n := range a.Did.Notices {
		key := waiterKey{n.Session, n.Request}
		if m, ok := s.waiters[key]; ok {
			s.forget(key)
			s.reply(m, s.about(m, n.Result))
		}
	}
}

// settled keeps count of what the server itself put into the log.
func (s *server) settled(p proposal) {
	if _, ok := p.cmd.(core.SetVersion); ok && p.quiet {
		s.raising = false
	}
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
	s.refuseQueued()
	s.endWaits()
}

// refuseQueued answers everything of which nothing was appended.
func (s *server) refuseQueued() {
	for _, p := range slices.Concat(s.first, s.urgent, s.ordinary) {
		s.settled(p)
		if p.call != nil {
			s.reply(*p.call, answer{retry: true, leader: s.leader()})
		}
	}
	s.first, s.urgent, s.ordinary = nil, nil, nil
	reads := s.fresh
	if s.round != nil {
		reads = append(reads, s.round.reads...)
	}
	s.fresh, s.round, s.confirm = nil, nil, false
	for _, m := range reads {
		s.reply(m, answer{retry: true, leader: s.leader()})
	}
}

// endWaits answers the acquires that stand in a queue.
func (s *server) endWaits() {
	for _, key := range s.order {
		s.reply(s.waiters[key], answer{retry: true, leader: s.leader()})
	}
	s.waiters, s.order = map[waiterKey]message{}, nil
}

// sortedPulses are the keepalives that wait for their answer.
func (s *server) sortedPulses() []lease.Handle { return slices.Sorted(maps.Keys(s.pulses)) }

// Read implements replica.Effects.
func (s *server) Read(h replica.Handle) {
	r := s.round
	if r == nil || r.handle != uint64(h) || !s.leading {
		return
	}
	s.round, s.moved = nil, true
	s.lease.Confirmed(r.upTo)
	for _, m := range r.reads {
		if m.call == callBackup {
			s.backUp(m)
			continue
		}
		v, _ := s.m.State().Lock(m.lock, 100)
		s.reply(m, answer{view: v})
	}
}

// Unknown implements replica.Effects.
func (s *server) Unknown(h replica.Handle) {
	if m, ok := s.changes[uint64(h)]; ok {
		delete(s.changes, uint64(h))
		s.reply(m, answer{retry: true})
	}
	if f := s.flight; f != nil && f.handle == uint64(h) {
		s.flight = nil
		s.w.judge.unknown(f.items)
		s.unknown(f)
	}
}

// unknown answers the calls of an entry whose fate is not known.
func (s *server) unknown(f *flight) {
	for _, p := range f.items {
		s.settled(p)
		if p.call != nil {
			s.reply(*p.call, unknown())
		}
	}
}

// change proposes a change of membership.
func (s *server) change(m message) {
	s.handles++
	if err := s.m.ProposeChange(replica.Handle(s.handles), core.Header{Clock: s.lease.Clock(s.time())}, *m.change); err != nil {
		s.reply(m, answer{retry: true, why: err})
		return
	}
	s.changes[s.handles] = m
	s.moved = true
}

// changed tells that a change of membership was applied. A removal that is
// answered must not be undone by a crash of the one voter that is left and
// knows it: an entry behind it makes it durable.
func (s *server) changed(m message) {
	s.say("members: %d", len(s.members))
	if m.answer == nil {
		return
	}
	if m.change.Kind != replica.Remove {
		s.reply(m, answer{})
		return
	}
	m.cmd, m.call = core.Tick{}, callCommand
	s.urgent = append(s.urgent, proposal{cmd: m.cmd, call: &m})
}

// tickMembers does what a leader does about its members from time to time.
func (s *server) tickMembers() {
	if !s.leading || s.stopping {
		return
	}
	for _, m := range s.members {
		if m.Learner && len(s.changes) == 0 {
			s.change(message{change: &replica.Change{Kind: replica.Promote, Member: m}})
		}
	}
	s.raiseVersion()
}

// raiseVersion proposes the newest cluster version that every member can
// apply, once each has said what it can (invariant 9).
func (s *server) raiseVersion() {
	newest := s.m.State().Supports()
	for _, m := range s.members {
		v, ok := s.said[m.ID]
		if m.ID == s.id {
			continue
		}
		if !ok {
			return
		}
		newest = min(newest, v.supports)
	}
	if newest <= s.m.State().Version() || s.raising {
		return
	}
	s.raising = true
	s.say("raises the cluster version to %d", newest)
	s.urgent = append(s.urgent, proposal{cmd: core.SetVersion{Version: newest}, quiet: true})
}

// checkRemoved ends a server that is no member any more.
func (s *server) checkRemoved() {
	if s.m.Removed() {
		s.fail(errRemoved)
	}
}

func grantID(n uint64) string { return strconv.FormatUint(n, 10) }
