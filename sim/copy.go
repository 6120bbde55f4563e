package sim

import (
	"bytes"
	"math/rand/v2"

	"holdfast/fence"
	"holdfast/server/backup"
	"holdfast/server/core"
)

// domain is that of the service of a world, and of its gates.
var domain = [16]byte{1}

// The property and the situation of a copy.
const (
	CopyAccepted Property  = "no gate accepts what a copy with a new domain minted (A4)"
	CopyRefused  Situation = "a gate refuses the token of a copy of the service"
)

// copyBeside makes a copy of the service from its latest backup, with a domain
// of its own. Somebody uses it by mistake, and shows its token to a gate.
func (w *world) copyBeside(r *rand.Rand) {
	if len(w.op.backups) == 0 {
		return
	}
	st, err := core.Decode(bytes.NewReader(w.op.backups[len(w.op.backups)-1].state))
	if err != nil {
		w.judge.object(NoStart, "a backup cannot be read: %v", err)
		return
	}
	epoch, err := backup.NextEpoch(st.Epoch(), day, w.op.highest)
	if err != nil {
		w.judge.object(NoStart, "a copy: %v", err)
		return
	}
	l := w.locks[r.IntN(len(w.locks))]
	w.inject(Copy, "of entry %d", st.Index())
	did, err := st.Apply(core.Entry{Index: st.Index() + 1, Term: 1 << 40, Header: core.Header{Clock: st.Clock()}, Commands: []core.Command{
		core.RaiseEpoch{Epoch: epoch, Incarnation: 1<<40 + r.Uint64N(1<<40), NewDomain: [16]byte{2, byte(r.Uint32())}},
		core.Open{ID: 1, SecretHash: [32]byte{1}, Instance: [16]byte{1}, TTL: w.TTL},
		core.Acquire{Session: 1, Request: core.Request{N: 1}, Lock: l.name, Limit: l.limit, Try: true},
	}})
	if err != nil || did.Results[0].Status != core.Done {
		w.judge.object(NoStart, "a copy does not begin: %v, %+v", err, did.Results)
		return
	}
	if did.Results[2].Status != core.Granted {
		return // the lock is closed there
	}
	g := did.Results[2].Grant
	x := l.slots[g.Slot]
	t := fence.Token{Domain: fence.Domain(st.Domain()), Incarnation: fence.Incarnation(g.Incarnation), Lock: g.Lock, Slot: g.Slot, Mode: fence.Exclusive, Number: g.Generation}
	for _, use := range []fence.Use{fence.ToArm, fence.ToWrite} {
		if x.offer(t, use) == nil {
			w.judge.object(CopyAccepted, "%s accepts token %d of domain %v", x.name, t.Number, t.Domain)
		}
	}
	w.judge.meet(CopyRefused)
}
