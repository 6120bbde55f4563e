package core

import (
	"slices"
	"unicode/utf8"
)

// raiseEpoch begins a new run of numbers after a start that was not by quorum
// (A4): whatever an older run gave out beyond this state lies below it. That
// holds for revisions too, so that nobody who saw the older run waits for, or
// compares with, a revision that comes to mean something else. A watcher of
// the older run must read everything anew, so what each session lost is not
// told one by one: the run begins with one event.
func (t *step) raiseEpoch(c RaiseEpoch) Result {
	if c.Epoch <= t.epoch || c.Epoch > MaxEpoch {
		return refuse(ruleEpoch)
	}
	if c.Incarnation == 0 || c.Incarnation == t.incarnation {
		return refuse(ruleIncarnation)
	}
	t.revision = max(t.revision, Revision(c.Epoch)<<epochShift)
	var ids []SessionID
	t.sessions.Ascend(func(x session) bool {
		ids = append(ids, x.id)
		return true
	})
	// All leave their queues before anything is handed on, so that nothing
	// is granted to a session that ends a moment later.
	var touched []string
	for _, id := range ids {
		touched = append(touched, t.endSession(id, CauseEpoch, "")...)
	}
	t.settleAll(touched)
	t.State.events.Clear(false)
	t.events = t.events[:0]
	t.emit(Event{Kind: EventEpoch, Cause: CauseEpoch})
	t.epoch, t.counter = c.Epoch, 0
	t.incarnation = c.Incarnation
	if c.NewDomain != ([16]byte{}) {
		t.domain = c.NewDomain
	}
	return Result{Status: Done}
}

// setVersion raises the cluster version (invariant 9).
func (t *step) setVersion(c SetVersion) Result {
	switch {
	case c.Version > t.supports:
		panic(&HaltError{Kind: ErrNewerFormat, Msg: newerVersion(c.Version, t.supports)})
	case c.Version < t.version:
		return refuse(ruleVersion)
	case c.Version > t.version:
		t.version = c.Version
		t.emit(Event{Kind: EventVersion})
	}
	return Result{Status: Done}
}

// setMembers replaces the list of members and of removed IDs (D7, D8).
func (t *step) setMembers(c Members) Result {
	members, removed := sortedMembers(c.Members), slices.Clone(c.Removed)
	slices.Sort(removed)
	removed = slices.Compact(removed)
	if !membersFit(members) || len(removed) > maxRemoved {
		return refuse(ruleMembers)
	}
	t.members, t.removed = members, removed
	return Result{Status: Done}
}

// membersFit reports whether members, sorted by ID, can be in the state.
func membersFit(members []Member) bool {
	last := uint64(0)
	for _, m := range members {
		if m.ID <= last {
			return false
		}
		last = m.ID
		for _, text := range []string{m.Name, m.ClientAddr, m.PeerAddr} {
			if len(text) > maxMemberText || !utf8.ValidString(text) {
				return false
			}
		}
	}
	return len(members) <= maxMembers
}
