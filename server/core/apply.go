package core

import (
	"fmt"

	"holdfast/internal/planted"
)

// Apply applies one entry of the log and says all that it did. Each entry is
// applied once, in the order of the log; gaps in the index are allowed (raft's
// own entries carry no commands, D9). An error is a *[HaltError]: the replica
// must stop, and the state must not be used any more. Panics never reach the
// caller.
//
// What Apply returns is the caller's, except for grants and the bytes of
// values, which are read only.
func (s *State) Apply(e Entry) (a Applied, err error) {
	defer func() {
		if r := recover(); r != nil {
			a, err = Applied{}, haltFrom(r, e.Index)
		}
	}()
	if e.Index <= s.index {
		return Applied{}, &HaltError{Index: e.Index, Kind: ErrOutOfOrder, Msg: fmt.Sprintf("entry %d was applied before", s.index)}
	}
	for _, c := range e.Commands {
		if kindOf(c) == 0 {
			return Applied{}, &HaltError{Index: e.Index, Kind: ErrUnknownCommand, Msg: fmt.Sprintf("%T: start a newer binary", c)}
		}
	}
	s.index = e.Index
	s.clock = max(s.clock, e.Header.Clock)
	if planted.On("B2-not-the-maximum") {
		s.clock = e.Header.Clock
	}
	t := step{State: s, out: &a}
	for _, c := range e.Commands {
		a.Results = append(a.Results, t.run(c))
		t.finish()
	}
	return a, nil
}

// A step applies the commands of one entry, one after the other.
type step struct {
	*State
	out    *Applied
	events []Event // of the present command
}

// run applies one command.
func (t *step) run(c Command) Result {
	switch c := c.(type) {
	case Open:
		return t.open(c)
	case End:
		return t.end(c)
	case Suspect:
		return t.suspect(c)
	case Clear:
		return t.clear(c)
	case Expire:
		return t.expire(c)
	case Acquire:
		return t.acquire(c)
	case Cancel:
		return t.cancel(c)
	case Release:
		return t.release(c)
	case Revoke:
		return t.revoke(c)
	case Reopen:
		return t.reopen(c)
	case Put:
		return t.put(c)
	case Delete:
		return t.delete(c)
	case Tick:
		return Result{Status: Done}
	case RaiseEpoch:
		return t.raiseEpoch(c)
	case SetVersion:
		return t.setVersion(c)
	case Members:
		return t.setMembers(c)
	case Audit:
		return t.audit(c)
	}
	broken("command %T has a kind and no rule", c)
	return Result{}
}

// nextNumber burns the next grant number (invariant 1); ok is false when the
// counter is full, which never carries into the epoch (A2).
func (s *State) nextNumber() (n uint64, ok bool) {
	if s.counterFull() {
		return 0, false
	}
	s.counter++
	return s.LastNumber(), true
}

func (s *State) counterFull() bool { return s.counter >= MaxCounter }

// VersionOf returns the cluster version that a command needs; 0 for one that
// this code does not know. A node refuses a command above [State.Version]
// before it proposes it, with [TooNew] (invariant 9).
func VersionOf(c Command) uint32 {
	switch kindOf(c) {
	case 0:
		return 0
	case kindAudit:
		return auditVersion
	}
	return 1
}
