package sim

import (
	"bytes"
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/planted"
	"holdfast/server/backup"
	"holdfast/server/core"
	"holdfast/server/replica"
)

// An image is a backup: the state at one instant.
type image struct {
	state []byte
	index uint64
	term  uint64
}

// day is the day on which a world happens: all of it is one day, so that two
// restores need --above (A4).
var day = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

// backUp answers the call for a backup, after leadership was confirmed.
func (s *server) backUp(m message) {
	var b bytes.Buffer
	if err := s.m.State().Encode(&b); err != nil {
		s.fail(&replica.HaltError{Err: err})
		return
	}
	s.reply(m, answer{image: &image{b.Bytes(), s.m.State().Index(), s.m.Role().Term}})
}

// backUp takes a backup.
func (w *world) backUp(*rand.Rand) {
	s := w.leader()
	if s == nil {
		return
	}
	w.inject(Backup, "of %s", s.name)
	w.op.tell(s, message{call: callBackup, answer: func(a answer) {
		if a.image != nil {
			w.say("the operator has a backup of entry %d", a.image.index)
			w.op.backups = append(w.op.backups, a.image)
		}
	}}, 0)
}

// restore loses the service and begins it anew from a backup, the latest or an
// older one.
func (w *world) restore(r *rand.Rand) {
	if len(w.op.backups) == 0 || w.op.restart {
		return
	}
	from := w.op.backups[len(w.op.backups)-1]
	if r.IntN(3) == 0 {
		from = w.op.backups[r.IntN(len(w.op.backups))]
	}
	st, err := core.Decode(bytes.NewReader(from.state))
	if err != nil {
		w.judge.object(NoStart, "a backup of entry %d cannot be read: %v", from.index, err)
		return
	}
	w.inject(Restore, "from entry %d", from.index)
	w.beginAnew(st, from.term, r)
}

// recoverFrom loses all servers but one, and begins anew from its disk. All on
// it is taken, also what it does not know to be committed.
func (w *world) recoverFrom(r *rand.Rand) {
	s := w.anyServer(r)
	if s == nil || s.joining || w.op.restart || s.disk.snap.GetMetadata().GetIndex() == 0 {
		return
	}
	s.crash()
	st, term, err := replay(s.disk)
	if err != nil {
		w.judge.object(NoStart, "the disk of %s cannot be read: %v", s.name, err)
		return
	}
	w.inject(Recover, "%s, up to entry %d", s.name, st.Index())
	w.beginAnew(st, term, r)
}

// replay is the state after all that a disk holds.
func replay(d *disk) (*core.State, uint64, error) {
	st, err := core.Decode(bytes.NewReader(d.snap.GetData()))
	if err != nil {
		return nil, 0, err
	}
	term := max(d.snap.GetMetadata().GetTerm(), d.soft.GetTerm())
	for _, e := range d.entries {
		entry := core.Entry{Index: e.GetIndex(), Term: e.GetTerm()}
		if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
			if entry, err = core.DecodeEntry(e.GetIndex(), e.GetTerm(), e.GetData()); err != nil {
				return nil, 0, err
			}
		}
		if _, err := st.Apply(entry); err != nil {
			return nil, 0, err
		}
		term = max(term, e.GetTerm())
	}
	return st, term, nil
}

// beginAnew ends the service, and starts a new one of one member from a state:
// a raised epoch, another incarnation, no sessions (A4).
func (w *world) beginAnew(st *core.State, term uint64, r *rand.Rand) {
	s := w.newServer(r)
	s.joining = false
	epoch, err := backup.NextEpoch(st.Epoch(), day, w.op.highest)
	if planted.On("A4-nothing-above") {
		epoch, err = backup.NextEpoch(st.Epoch(), day, 0)
	}
	if err != nil {
		w.judge.object(NoStart, "restore: %v", err)
		return
	}
	w.incarnation++
	e := core.Entry{Index: st.Index() + 1, Term: term + 1, Header: core.Header{Clock: st.Clock()}, Commands: []core.Command{
		core.RaiseEpoch{Epoch: epoch, Incarnation: w.incarnation}, core.Members{Members: []core.Member{w.member(0, s.id)}},
	}}
	did, err := st.Apply(e)
	var b bytes.Buffer
	if err == nil {
		err = st.Check()
	}
	if err == nil {
		err = st.Encode(&b)
	}
	if err != nil || did.Results[0].Status != core.Done || did.Results[1].Status != core.Done || st.SessionCount() > 0 {
		w.judge.object(NoStart, "a service cannot begin anew: %v, %+v", err, did.Results)
		return
	}
	w.op.highest = st.LastNumber() + 1
	w.stopOld(s)
	first := &raftpb.Snapshot{Data: b.Bytes(), Metadata: &raftpb.SnapshotMetadata{Index: new(e.Index), Term: new(e.Term), ConfState: &raftpb.ConfState{Voters: []uint64{s.id}}}}
	hard := &raftpb.HardState{Term: new(e.Term), Vote: new(uint64(0)), Commit: new(e.Index)}
	s.disk.snap, s.disk.hard, s.disk.soft, s.inc = first, hard, hard, w.incarnation
	w.op.restart = true
	w.judge.restored(e.Index)
	w.judge.meet(BegunAnew)
	want := min(len(w.founded), 3)
	w.after(between(r, 0, 2*w.TTL), func() {
		s.boot()
		w.op.restart, w.op.busy = false, false
		w.regrow(want, r)
	})
}

// stopOld stops what is left of the old service.
func (w *world) stopOld(but *server) {
	old := w.servers
	for _, s := range old {
		if s != but {
			s.bury()
		}
	}
}

// regrow adds members, one after the other, until there are as many as wanted.
func (w *world) regrow(want int, r *rand.Rand) {
	inc := w.incarnation
	var grow func()
	grow = func() {
		switch {
		case inc != w.incarnation || len(w.servers) >= want:
			return
		case w.quorate():
			s := w.newServer(r)
			w.say("the operator adds %s", s.name)
			w.admit(s)
		}
		w.after(w.TTL, grow)
	}
	grow()
}
