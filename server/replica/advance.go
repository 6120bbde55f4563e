package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"holdfast/internal/planted"
	"holdfast/server/core"
)

// Advance does all that became possible and hands out its effects in order. An
// error is a [*HaltError]: the replica must not be used any more, and nothing
// may be answered from its state.
func (m *Machine) Advance(eff Effects) error {
	for m.halted == nil && m.node.HasReady() {
		m.guard(func() { m.ready(m.node.Ready(), eff) })
	}
	return m.halted
}

func (m *Machine) ready(rd raft.Ready, eff Effects) {
	m.follow(eff)
	m.place(rd.Entries)
	for _, msg := range rd.Messages {
		switch msg.GetTo() {
		case raft.LocalAppendThread:
			a := appendOf(msg)
			a.supports = m.cfg.Supports
			eff.Append(a)
		case raft.LocalApplyThread:
			// Below: applied here and now, after the role is known.
		default:
			eff.Send(Message{m.cfg.Group, msg})
		}
	}
	for _, rs := range rd.ReadStates {
		if len(rs.RequestCtx) == 8 {
			m.reads = append(m.reads, confirmedRead{rs.Index, Handle(binary.BigEndian.Uint64(rs.RequestCtx))})
		}
	}
	for _, msg := range rd.Messages {
		if msg.GetTo() != raft.LocalApplyThread {
			continue
		}
		for _, e := range msg.GetEntries() {
			m.apply(e, eff)
			if m.halted != nil {
				return
			}
		}
		for _, r := range msg.GetResponses() {
			_ = m.node.Step(r)
		}
	}
	m.serveReads(eff)
}

// appendOf unpacks raft's message to the disk.
func appendOf(msg *raftpb.Message) Append {
	a := Append{Entries: msg.GetEntries(), Snapshot: msg.GetSnapshot(), responses: msg.GetResponses()}
	hs := &raftpb.HardState{Term: msg.Term, Vote: msg.Vote, Commit: msg.Commit}
	if !raft.IsEmptyHardState(hs) {
		a.HardState = hs
	}
	if raft.IsEmptySnap(a.Snapshot) {
		a.Snapshot = nil
	}
	return a
}

// Merge joins two batches that follow each other into one, for one write and
// one sync. ok is false if they cannot be joined.
func (a Append) Merge(b Append) (joined Append, ok bool) {
	if a.Snapshot != nil || b.Snapshot != nil {
		return Append{}, false
	}
	if n := len(a.Entries); n > 0 && len(b.Entries) > 0 && b.Entries[0].GetIndex() != a.Entries[n-1].GetIndex()+1 {
		return Append{}, false // b overwrites part of a
	}
	joined = Append{
		HardState: a.HardState,
		Entries:   append(a.Entries[:len(a.Entries):len(a.Entries)], b.Entries...),
		responses: append(a.responses[:len(a.responses):len(a.responses)], b.responses...),
	}
	if b.HardState != nil {
		joined.HardState = b.HardState
	}
	return joined, true
}

// follow compares raft's role with the one last told. When leadership is
// lost, or was won anew in another term, what was proposed is unknown.
func (m *Machine) follow(eff Effects) {
	st := m.node.BasicStatus()
	now := Role{Term: st.GetTerm(), Leader: st.Lead, Elected: st.RaftState == raft.StateLeader}
	now.Leads = now.Elected && (m.appliedTerm == now.Term || planted.On("B3-leads-before-it-applied"))
	if m.role.Elected && (!now.Elected || now.Term != m.role.Term) {
		m.abandon(eff)
	}
	if now != m.role {
		m.role = now
		eff.Role(now)
	}
}

// abandon gives up the proposals of an office that has ended.
func (m *Machine) abandon(eff Effects) {
	for _, i := range slices.Sorted(maps.Keys(m.placed)) {
		eff.Unknown(m.placed[i])
	}
	for _, h := range m.unplaced {
		eff.Unknown(h)
	}
	clear(m.placed)
	m.unplaced = nil
}

// place finds the indexes of proposals: raft appends them in the order in
// which they were proposed, and shows each once.
func (m *Machine) place(entries []*raftpb.Entry) {
	if !m.role.Elected {
		return
	}
	for _, e := range entries {
		if len(m.unplaced) == 0 {
			return
		}
		if e.GetTerm() != m.role.Term || len(e.GetData()) == 0 {
			continue // raft's own (D9)
		}
		m.placed[e.GetIndex()] = m.unplaced[0]
		m.unplaced = m.unplaced[1:]
	}
}

// apply applies one committed entry.
func (m *Machine) apply(e *raftpb.Entry, eff Effects) {
	out := Applied{Entry: core.Entry{Index: e.GetIndex(), Term: e.GetTerm()}}
	var err error
	switch {
	case e.GetType() != raftpb.EntryNormal:
		out.Entry, err = m.changeMembers(e)
	case len(e.GetData()) > 0 || planted.On("D9-raft-has-no-entries"):
		out.Entry, err = core.DecodeEntry(e.GetIndex(), e.GetTerm(), e.GetData())
	}
	if planted.On("B1-own-term-only") && e.GetType() == raftpb.EntryNormal && m.elected() && e.GetTerm() < m.node.BasicStatus().GetTerm() {
		out.Entry.Commands = nil
	}
	out.Proposal = m.placed[e.GetIndex()]
	delete(m.placed, e.GetIndex())
	if err == nil {
		out.Did, err = m.state.Apply(out.Entry)
	}
	if err != nil {
		m.halt(&HaltError{Index: e.GetIndex(), Err: err})
		return
	}
	m.appliedTerm = e.GetTerm()
	eff.Applied(out)
	m.follow(eff)
}

// serveReads tells of confirmed reads whose index is applied.
func (m *Machine) serveReads(eff Effects) {
	for len(m.reads) > 0 && m.reads[0].index <= m.state.Index() {
		eff.Read(m.reads[0].handle)
		m.reads = m.reads[1:]
	}
}

// Logged says how many entries were applied, and how many bytes logged, since
// the newest snapshot: the shell takes a new one when it is enough.
func (m *Machine) Logged() (entries, bytes uint64) {
	return m.state.Index() - m.snapIndex, m.bytesLogged
}

// View is the state at one index, for a snapshot: it stays as it is while the
// machine goes on, and may be encoded by another goroutine.
type View struct {
	state *core.State
	meta  *raftpb.SnapshotMetadata
	size  int // about how large its encoding will be
}

// View returns the present view; it costs the same whatever the size.
func (m *Machine) View() View {
	return View{m.state.Clone(), &raftpb.SnapshotMetadata{
		Index: new(m.state.Index()), Term: new(m.appliedTerm),
		ConfState: proto.Clone(m.conf).(*raftpb.ConfState),
	}, m.snapBytes + m.snapBytes/16}
}

// Encode gives the snapshot that [Storage.SaveSnapshot] takes.
func (v View) Encode() (*raftpb.Snapshot, error) {
	var b bytes.Buffer
	b.Grow(v.size) // a buffer that doubles would need three times its size
	if err := v.state.Encode(&b); err != nil {
		return nil, err
	}
	return &raftpb.Snapshot{Data: b.Bytes(), Metadata: v.meta}, nil
}

// SnapshotSaved tells that a snapshot of an own view is durable: the log in
// memory is cut, leaving some entries for peers that lag.
func (m *Machine) SnapshotSaved(snap *raftpb.Snapshot) error {
	m.guard(func() {
		i := snap.GetMetadata().GetIndex()
		if i <= m.snapIndex {
			return // a received one overtook it
		}
		if _, err := m.log.CreateSnapshot(i, snap.GetMetadata().GetConfState(), snap.GetData()); err != nil {
			m.halt(&HaltError{Index: i, Err: err})
			return
		}
		m.snapIndex, m.bytesLogged, m.snapBytes = i, 0, len(snap.GetData())
		m.wanted = m.wanted && i < m.changedAt
		first, err := m.log.FirstIndex()
		if keep := i - min(i, m.cfg.TrailingEntries); err == nil && keep > first {
			err = m.log.Compact(keep)
		}
		if err != nil {
			m.halt(&HaltError{Index: i, Err: err})
		}
	})
	return m.halted
}

// quiet keeps raft from writing to the process's standard error. Its fatal and
// panic calls become panics, which halt the replica.
type quiet struct{}

func (quiet) Debug(...any)            {}
func (quiet) Debugf(string, ...any)   {}
func (quiet) Info(...any)             {}
func (quiet) Infof(string, ...any)    {}
func (quiet) Warning(...any)          {}
func (quiet) Warningf(string, ...any) {}
func (quiet) Error(...any)            {}
func (quiet) Errorf(string, ...any)   {}
func (quiet) Fatal(v ...any)          { panic(fmt.Sprint(v...)) }
func (quiet) Fatalf(f string, v ...any) {
	panic(fmt.Sprintf(f, v...))
}
func (quiet) Panic(v ...any) { panic(fmt.Sprint(v...)) }
func (quiet) Panicf(f string, v ...any) {
	panic(fmt.Sprintf(f, v...))
}
