package sim

import (
	"math/rand/v2"
	"time"

	"holdfast/fence"
	"holdfast/server/core"
)

// An operator is a process without a session.
type operator struct {
	process
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
	w.op.tell(s, message{call: callCommand, cmd: cmd, answer: func(a answer) {
		if a.retry || a.result.Status != core.Done || !cmd.Now {
			return
		}
		x := l.slots[g.Slot]
		t := fence.Token{Domain: fence.Domain(a.domain), Incarnation: fence.Incarnation(g.Incarnation), Lock: l.name, Slot: g.Slot, Mode: fence.Revocation, Number: a.burnt}
		w.net.send(&w.op.process, &x.process, func() {
			if x.offer(t, fence.ToArm) == nil {
				w.judge.armedBy(x, g.Number)
			}
		}, nil)
	}}, 3)
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
	o.w.net.send(&o.process, &s.process, func() { s.arrive(m) }, nil)
	o.w.after(2*time.Second, func() {
		if lead := o.w.leader(); !answered && tries > 0 && lead != nil {
			o.tell(lead, m, tries-1)
		}
	})
}
