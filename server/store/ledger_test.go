package store

import (
	"fmt"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
)

// kept is an entry as the ledger knows it.
type kept struct {
	term uint64
	data string
}

// ledger is what a store acknowledged, and what the call that is under way may
// add to it.
type ledger struct {
	log        map[uint64]kept
	last       uint64
	lastTerm   uint64
	term, vote uint64
	commit     uint64 // that was written, with or without a sync
	snap       uint64 // the newest snapshot
	snapTerm   uint64
	// before is the snapshot before it, if the log goes on from there: its own
	// record is not among what the mark tells, so that if that record rots, and
	// none that the mark tells of follows it, a start goes on from the one before.
	before uint64

	flying struct {
		hs       *raftpb.HardState
		entries  []*raftpb.Entry
		received *raftpb.Snapshot
		own      *raftpb.Snapshot
	}
	// ghost is a received snapshot that never counted, of which a record may
	// stand in the log. It was of what the cluster had committed.
	ghost, ghostTerm uint64
	// ghosts are all of them. Once the log has got there by itself, such a
	// snapshot counts, if its file is back, whose removal no sync confirmed.
	ghosts map[uint64]bool
}

// stateOf is the state of every member behind an entry.
func stateOf(index uint64, size int) string {
	return fmt.Sprintf("state %d %d:%s", index, size, strings.Repeat("s", size))
}

// isState reports whether the data of a snapshot is that of its entry.
func isState(index uint64, data []byte) bool {
	var i uint64
	var size int
	if _, err := fmt.Sscanf(string(data[:min(60, len(data))]), "state %d %d:", &i, &size); err != nil {
		return false
	}
	return i == index && string(data) == stateOf(index, size)
}

// termOf is the term of an entry that is in the log or behind the snapshot.
func (l *ledger) termOf(index uint64) uint64 {
	if e, ok := l.log[index]; ok {
		return e.term
	}
	return l.snapTerm
}

// outcome is one of the logs that a crash may leave.
type outcome struct {
	last uint64
	jump uint64 // behind which entry the log begins, if it jumped there
	over map[uint64]kept
}

// outcomes lists them: all that was acknowledged, and of the call that is under
// way the first some entries, behind its snapshot if it has one.
func (l *ledger) outcomes() []outcome {
	now := outcome{last: l.last}
	all := []outcome{now}
	if sn := l.flying.received; sn != nil {
		now = outcome{last: sn.GetMetadata().GetIndex(), jump: sn.GetMetadata().GetIndex()}
		all = append(all, now)
	}
	over := map[uint64]kept{}
	for _, e := range l.flying.entries {
		over[e.GetIndex()] = kept{e.GetTerm(), string(e.GetData())}
		all = append(all, outcome{last: e.GetIndex(), jump: now.jump, over: over})
	}
	return all
}

func (o outcome) differs(l *ledger, r Recovered, how damage) string {
	at := r.Snapshot.GetMetadata().GetIndex()
	oldest := max(l.snap, o.jump)
	if how == rotten && o.jump == 0 && at > 0 && at == l.before {
		oldest = at
	}
	if at < oldest || (at > oldest && at != l.flying.own.GetMetadata().GetIndex() && !l.ghosts[at]) {
		return fmt.Sprintf("the snapshot is of entry %d: want %d", at, oldest)
	}
	for _, e := range r.Entries {
		at++
		want, ok := o.over[at]
		if !ok {
			want = l.log[at]
		}
		if e.GetIndex() != at || e.GetTerm() != want.term || string(e.GetData()) != want.data {
			return fmt.Sprintf("entry %d at %d is %.20q of term %d: want %.20q of term %d", e.GetIndex(), at, e.GetData(), e.GetTerm(), want.data, want.term)
		}
	}
	if at != o.last {
		return fmt.Sprintf("the log ends with entry %d: want %d", at, o.last)
	}
	return ""
}

// agrees compares what a store found with what it may have.
func (l *ledger) agrees(r Recovered, how damage) (outcome, error) {
	hs := r.HardState
	flying := l.flying.hs
	votes := hs.GetTerm() == l.term && hs.GetVote() == l.vote
	votes = votes || (flying != nil && hs.GetTerm() == flying.GetTerm() && hs.GetVote() == flying.GetVote())
	if n := len(r.Entries); n > 0 && hs.GetVote() == 0 && hs.GetTerm() > l.term {
		// The new term came with the entries of its leader, of which the first
		// some are there.
		votes = votes || hs.GetTerm() == r.Entries[n-1].GetTerm()
	}
	if !votes {
		return outcome{}, fmt.Errorf("the vote is %d in term %d: want %d in %d, or that of %v", hs.GetVote(), hs.GetTerm(), l.vote, l.term, flying)
	}
	if c := hs.GetCommit(); c > max(l.commit, flying.GetCommit()) || c < r.Snapshot.GetMetadata().GetIndex() {
		return outcome{}, fmt.Errorf("the commit index is %d: want up to %d and %v", c, l.commit, flying)
	}
	if sn := r.Snapshot; sn != nil && !isState(sn.GetMetadata().GetIndex(), sn.GetData()) {
		return outcome{}, fmt.Errorf("the snapshot of entry %d holds %.30q", sn.GetMetadata().GetIndex(), sn.GetData())
	}
	var all []string
	for _, o := range l.outcomes() {
		what := o.differs(l, r, how)
		if what == "" {
			return o, nil
		}
		all = append(all, what)
	}
	return outcome{}, fmt.Errorf("%s", strings.Join(all, "; or: "))
}

// landed takes the call that was under way for done.
func (l *ledger) landed() {
	f := l.flying
	if f.received != nil {
		md := f.received.GetMetadata()
		l.log, l.last, l.lastTerm = map[uint64]kept{}, md.GetIndex(), md.GetTerm()
		l.snap, l.snapTerm, l.before = md.GetIndex(), md.GetTerm(), 0
	}
	if f.own != nil {
		l.before = l.snap
		l.snapTerm = f.own.GetMetadata().GetTerm()
		l.snap = f.own.GetMetadata().GetIndex()
	}
	for _, e := range f.entries {
		l.log[e.GetIndex()] = kept{e.GetTerm(), string(e.GetData())}
		l.last, l.lastTerm = e.GetIndex(), e.GetTerm()
	}
	if f.hs != nil {
		l.term, l.vote, l.commit = f.hs.GetTerm(), f.hs.GetVote(), max(l.commit, f.hs.GetCommit())
	}
	if l.commit >= l.ghost {
		l.ghost = 0
	}
	l.flying = ledger{}.flying
}

// adopt goes on from what a start after a crash found.
func (l *ledger) adopt(r Recovered, o outcome) {
	received := l.flying.received.GetMetadata()
	md := r.Snapshot.GetMetadata()
	if l.flying.received != nil && o.jump == 0 {
		l.ghost, l.ghostTerm = received.GetIndex(), received.GetTerm()
		l.ghosts[l.ghost] = true
	}
	l.flying = ledger{}.flying
	switch {
	case o.jump > 0:
		l.log, l.before = map[uint64]kept{}, 0
	case md.GetIndex() > l.snap:
		l.before = l.snap
	}
	l.snap, l.snapTerm = md.GetIndex(), md.GetTerm()
	l.last, l.lastTerm = l.snap, l.snapTerm
	for _, e := range r.Entries {
		l.log[e.GetIndex()] = kept{e.GetTerm(), string(e.GetData())}
		l.last, l.lastTerm = e.GetIndex(), e.GetTerm()
	}
	l.term, l.vote, l.commit = r.HardState.GetTerm(), r.HardState.GetVote(), r.HardState.GetCommit()
	if l.commit >= l.ghost {
		l.ghost = 0
	}
}
