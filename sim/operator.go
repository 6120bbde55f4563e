package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"holdfast/fence"
	"holdfast/internal/planted"
	"holdfast/server/core"
	"holdfast/server/replica"
)

// An operator is a process without a session. It does one thing to the
// membership at a time, as the procedures say.
type operator struct {
	process
	busy    bool     // with a change of membership
	backups []*image // the latest last
	restart bool     // a restore is under way
	highest uint64   // lowest number that a restore printed: --above for the next
}

// order has an operator do something.
func (w *world) order(f Fault, r *rand.Rand) {
	switch f {
	case RevokeNow, RevokeAsk:
		w.revoke(f, r)
	case EndSession:
		w.endSession(r)
	case Transfer:
		w.transfer(r)
	case AddMember:
		w.addMember(r)
	case RemoveMember:
		w.removeMember(r)
	case Wipe:
		w.wipe(r)
	case Upgrade:
		w.upgrade(r)
	case Backup:
		w.backUp(r)
	case Restore:
		w.restore(r)
	case Copy:
		w.copyBeside(r)
	case Recover:
		w.recoverFrom(r)
	}
}

// record is the audit record of an order.
func (w *world) record(call string) *core.Audit {
	return &core.Audit{AuditCall: core.AuditCall{Call: call, By: "operator", Credential: "sim", Count: 1}}
}

// revoke takes a grant back, politely or at once; a revoke at once arms the
// gate with the number that it burnt (B11).
func (w *world) revoke(f Fault, r *rand.Rand) {
	s := w.leader()
	if s == nil {
		return
	}
	l := w.locks[r.IntN(len(w.locks))]
	v, ok := s.m.State().Lock(l.name, 0)
	if !ok || len(v.Holders) == 0 {
		return
	}
	g := v.Holders[r.IntN(len(v.Holders))].Grant
	w.inject(f, "%s by %d", l.name, g.Number)
	cmd := core.Revoke{Lock: l.name, Grant: g.Number, Now: f == RevokeNow, Cause: core.ByOperator, By: "operator"}
	if cmd.Now {
		w.judge.revokesNow(g.Number, g.Generation)
	}
	w.op.tell(s, message{call: callCommand, cmd: cmd, audit: w.record("revoke"), answer: func(a answer) {
		if a.retry || a.result.Status != core.Done || !cmd.Now {
			return
		}
		x := l.slots[g.Slot]
		t := fence.Token{Domain: fence.Domain(a.domain), Incarnation: fence.Incarnation(g.Incarnation), Lock: l.name, Slot: g.Slot, Mode: fence.Revocation, Number: a.burnt}
		w.net.carry(armings, &w.op.process, &x.process, func() {
			if x.offer(t, fence.ToArm) == nil {
				w.judge.armedBy(x, g.Number)
			}
		}, nil)
	}}, 3)
}

// endSession ends the session of somebody who holds.
func (w *world) endSession(r *rand.Rand) {
	s := w.leader()
	if s == nil {
		return
	}
	v, ok := s.m.State().Lock(w.locks[r.IntN(len(w.locks))].name, 0)
	if !ok || len(v.Holders) == 0 {
		return
	}
	h := v.Holders[r.IntN(len(v.Holders))]
	w.inject(EndSession, "session %d", w.judge.short(h.Session))
	w.judge.endsSession(h.Session)
	w.op.tell(s, message{call: callCommand, cmd: core.End{ID: h.Session, Operator: true, By: "operator"}, audit: w.record("end"), answer: func(answer) {}}, 3)
}

// transfer moves leadership.
func (w *world) transfer(r *rand.Rand) {
	s := w.leader()
	if s == nil || len(w.servers) < 2 {
		return
	}
	w.inject(Transfer, "from %s", s.name)
	w.op.tell(s, message{call: callTransfer, answer: func(answer) {}}, r.IntN(2))
}

// addMember starts a new machine and tells the cluster of it. It is a learner
// until it has caught up.
func (w *world) addMember(r *rand.Rand) {
	if !w.quorate() || len(w.servers) >= 9 {
		return
	}
	s := w.newServer(r)
	w.inject(AddMember, "%s", s.name)
	w.admit(s)
}

// admit has a machine that waits added to the cluster.
func (w *world) admit(s *server) {
	m := w.member(len(w.founded)+int(s.id), s.id)
	w.changeMembers(replica.Change{Kind: replica.AddLearner, Member: m}, replica.ErrMemberExists, func(bool) { w.op.busy = false })
}

// changeMembers asks the leader for a change until it is made, or refused for
// good; same is the refusal that says that it was made before.
func (w *world) changeMembers(c replica.Change, same error, then func(done bool)) {
	w.op.busy = true
	tries := 0
	incarnation := w.incarnation
	var ask func()
	ask = func() {
		lead := w.leader()
		tries++
		switch {
		case incarnation != w.incarnation:
			return // what it was a member of is no more
		case tries > 60:
			then(false)
			return
		case lead == nil:
			w.after(w.TTL/4, ask)
			return
		}
		settled := false
		again := func() {
			if !settled {
				settled = true
				w.after(w.TTL/8, ask)
			}
		}
		w.op.tell(lead, message{call: callMembers, change: &c, answer: func(a answer) {
			switch {
			case settled:
			case a.retry && (a.why == nil || !errors.Is(a.why, same)):
				again()
			default:
				settled = true
				then(true)
			}
		}}, 0)
		w.after(2*w.TTL, again)
	}
	ask()
}

// removeMember removes a member that is not needed.
func (w *world) removeMember(r *rand.Rand) {
	s := w.anyServer(r)
	if s == nil || s.joining || !w.quorate() || w.voters() < 3 {
		return
	}
	w.inject(RemoveMember, "%s", s.name)
	w.changeMembers(replica.Change{Kind: replica.Remove, Member: core.Member{ID: s.id}}, replica.ErrNoMember, func(done bool) {
		w.op.busy = false
		if done { // the operator stops it, if it does not know by itself
			w.after(between(r, 0, 2*w.TTL), func() {
				if !s.gone {
					s.bury()
				}
			})
		}
	})
}

// wipe takes a machine's data. It comes back with a new ID, which the operator
// adds once the old one is removed: never with the old one, which might vote
// twice (D7).
func (w *world) wipe(r *rand.Rand) {
	s := w.anyServer(r)
	if s == nil || s.joining || !w.quorate() || w.voters() < 3 {
		return
	}
	w.inject(Wipe, "%s", s.name)
	if planted.On("D7-wiped-keeps-its-id") {
		s.crash()
		s.disk = w.blank(s, w.incarnation, s.members)
		w.restartLater(s)
		return
	}
	s.bury()
	w.changeMembers(replica.Change{Kind: replica.Remove, Member: core.Member{ID: s.id}}, replica.ErrNoMember, func(done bool) {
		if !done {
			w.op.busy = false
			return
		}
		w.admit(w.newServer(r))
	})
}

// upgrade gives a server a release that knows the newest cluster version.
func (w *world) upgrade(r *rand.Rand) {
	s := w.anyServer(r)
	if s == nil || s.installed == core.SupportedVersion {
		return
	}
	w.inject(Upgrade, "%s", s.name)
	s.installed = core.SupportedVersion
	s.shutDown()
}

// quorate reports whether the operator may change members now: nothing else is
// under way, somebody leads, and all voters are there.
func (w *world) quorate() bool {
	lead := w.leader()
	if w.op.busy || w.op.restart || lead == nil {
		return false
	}
	for _, m := range lead.members {
		s := w.serverOf(m.ID)
		if m.Learner || s == nil {
			return false
		}
	}
	return true
}

// voters is how many there are, as the leader knows.
func (w *world) voters() (n int) {
	for _, m := range w.leader().members {
		if !m.Learner {
			n++
		}
	}
	return n
}

// tell sends a message, and sends it again if no answer comes.
func (o *operator) tell(s *server, m message, tries int) {
	m.from = &o.process
	answered := false
	was := m.answer
	m.answer = func(a answer) {
		if !answered {
			answered = true
			was(a)
		}
	}
	o.w.net.carry(exchangeOf(m), &o.process, &s.process, func() { s.arrive(m) }, nil)
	o.w.after(2*time.Second, func() {
		if lead := o.w.leader(); !answered && tries > 0 && lead != nil {
			o.tell(lead, m, tries-1)
		}
	})
}
