package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/planted"
	"holdfast/server/replica"
)

// A transfer is the end of a snapshot's way to a peer.
type transfer struct {
	to uint64
	ok bool
}

// takePeers looks at what came from other members.
func (s *server) takePeers() {
	messages, lost, sent := s.peers, s.lost, s.sent
	s.peers, s.lost, s.sent = nil, nil, nil
	for _, m := range messages {
		s.step(m)
	}
	for _, id := range lost {
		s.m.Unreachable(id)
	}
	for _, t := range sent {
		s.m.SnapshotSent(t.to, t.ok)
	}
}

// step hands one message to raft, unless the server must not hear it now.
func (s *server) step(m replica.Message) {
	switch t := m.GetType(); {
	case t == raftpb.MsgTimeoutNow && (s.silent || s.stopping || s.low || s.leaving):
	case t == raftpb.MsgApp && len(m.GetEntries()) > 0 && s.starved && !s.leading:
	case t == raftpb.MsgSnap && s.starved:
	default:
		s.m.Step(m)
	}
}

// Send implements replica.Effects. A silent node sends nothing (D2).
func (s *server) Send(m replica.Message) {
	snap := m.GetType() == raftpb.MsgSnap
	to := s.w.serverOf(m.GetTo())
	if s.silent || s.failed != nil || to == nil {
		if snap {
			s.sent = append(s.sent, transfer{m.GetTo(), false})
		}
		return
	}
	s.w.judge.speaks(s)
	told := said{s.supports, s.unfit()}
	if snap {
		s.sendSnapshot(m, to, told)
		return
	}
	s.w.net.carry(betweenMembers, &s.process, &to.process, func() { s.deliver(m, to, told) }, s.alive(func() {
		s.lost = append(s.lost, m.GetTo())
		s.wake()
	}))
}

// sendSnapshot sends one over a connection of its own. Every transfer ends in
// a report, whatever becomes of it (D6).
func (s *server) sendSnapshot(m replica.Message, to *server, told said) {
	ended := false
	report := func(ok bool) func() {
		return s.alive(func() {
			if !ended && !planted.On("D6-no-report") {
				ended = true
				s.sent = append(s.sent, transfer{m.GetTo(), ok})
				s.wake()
			}
		})
	}
	s.w.after(between(s.rng, 0, s.w.TTL/2), func() {
		s.w.net.carry(transfers, &s.process, &to.process, func() {
			ok := !to.starved && s.deliver(m, to, told)
			s.w.judge.meet(SnapshotSent)
			s.w.net.carry(transfers, &to.process, &s.process, report(ok), nil)
		}, report(false))
	})
	s.in(4*electionTicks*s.w.Tick, report(false))
}

// deliver puts a message before a member, if that lets the sender in: the
// handshake names the incarnation, who speaks and who is meant (D7), and what
// each can apply (invariant 9).
func (s *server) deliver(m replica.Message, to *server, told said) bool {
	switch {
	case !to.up || to.id != m.GetTo() || to.inc != s.inc:
		return false
	case told.supports < to.m.State().Version() || to.supports < s.m.State().Version():
		return false
	case to.m.State().WasRemoved(s.id):
		life := s.life
		s.w.net.carry(betweenMembers, &to.process, &s.process, func() {
			if s.up && s.life == life {
				s.fail(errRemoved)
			}
		}, nil)
		return false
	}
	to.said[s.id] = told
	to.peers = append(to.peers, m)
	to.wake()
	return true
}

// askToJoin is what a machine without data does: it asks a member whether it
// is one, again and again, and then begins as a member without a state.
func (s *server) askToJoin() {
	w := s.w
	if !s.joining || s.gone {
		return
	}
	w.after(max(5*w.Tick, 100*time.Millisecond), s.askToJoin)
	o := w.anyServer(s.rng)
	if o == nil || o == s {
		return
	}
	w.net.carry(betweenMembers, &s.process, &o.process, func() {
		if !o.up || o.joining {
			return
		}
		members := slices.Clone(o.members)
		for _, m := range members {
			if m.ID == s.id {
				inc := o.inc
				w.net.carry(betweenMembers, &o.process, &s.process, func() { s.joins(inc, members) }, nil)
			}
		}
	}, nil)
}
