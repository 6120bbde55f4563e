package explore

import (
	"fmt"
	"slices"
	"time"

	"holdfast/server/core"
)

// A lockStep is one lock before and after one entry.
type lockStep struct {
	name          string
	before, after core.LockView
	ended, begun  []core.HolderView
}

// steps lists what an entry did to each lock.
func (c *Config) steps(before, after *core.State) []lockStep {
	var out []lockStep
	for _, name := range c.locks() {
		s := lockStep{name: name}
		s.before, _ = before.Lock(name, core.MaxWaiters)
		s.after, _ = after.Lock(name, core.MaxWaiters)
		s.ended = without(s.before.Holders, s.after.Holders)
		s.begun = without(s.after.Holders, s.before.Holders)
		out = append(out, s)
	}
	return out
}

// without lists the grants of a that are not in b.
func without(a, b []core.HolderView) []core.HolderView {
	return slices.DeleteFunc(slices.Clone(a), func(h core.HolderView) bool {
		return slices.ContainsFunc(b, func(o core.HolderView) bool { return o.Number == h.Number })
	})
}

// A complaint is a property that an entry broke.
type complaint struct{ property, why string }

// judge is what can be said against one entry from the states around it alone:
// properties 6, 10 and 11. It is worked out once for each application.
func (c *Config) judge(before *core.State, e *entry, did *application) (out []complaint) {
	complain := func(property, format string, args ...any) {
		out = append(out, complaint{property, fmt.Sprintf(format, args...)})
	}
	if did.st.Clock() < before.Clock() {
		complain(Broken, "the clock of the log falls from %v to %v", before.Clock(), did.st.Clock())
	}
	if n := did.st.SessionCount(); n > len(c.Wants) {
		complain(Orphan, "%d clients have %d sessions", len(c.Wants), n)
	}
	for _, s := range c.steps(before, did.st) {
		if s.after.Waiters > 0 && !s.after.Closed && fits(s.after.Holders, s.after.Queue[0].Shared) {
			complain(Unordered, "invariant 4: %s has room for the first of its queue", s.name)
		}
		c.judgeOrder(s, e, complain)
		c.judgeTokens(s, before.LastNumber(), complain)
	}
	return out
}

// fits reports whether one more holder of a plain lock would.
func fits(holders []core.HolderView, shared bool) bool {
	return len(holders) == 0 || shared && holders[0].Shared
}

// judgeOrder is invariant 5: who is granted comes first of those who wait and
// of who asks now, except for those who leave.
func (c *Config) judgeOrder(s lockStep, e *entry, complain func(property, format string, args ...any)) {
	line := make([]core.SessionID, 0, len(s.before.Queue)+1)
	for _, q := range s.before.Queue {
		line = append(line, q.Session)
	}
	for _, cmd := range e.Commands {
		if a, ok := cmd.(core.Acquire); ok && a.Lock == s.name {
			line = append(line, a.Session)
		}
	}
	passed := core.SessionID(0)
	for _, id := range line {
		granted := slices.ContainsFunc(s.begun, func(h core.HolderView) bool { return h.Session == id })
		waits := slices.ContainsFunc(s.after.Queue, func(q core.WaitView) bool { return q.Session == id })
		switch {
		case granted && passed != 0:
			complain(Unordered, "invariant 5: session %d is granted %s before session %d", id, s.name, passed)
		case waits && !granted:
			passed = id
		}
	}
}

// judgeTokens is invariants 1 and 2, and A1: an exclusive holder is alone and
// its token is its own number; those of a shared run have the number of the
// grant with which the run began; numbers and new tokens rise.
func (c *Config) judgeTokens(s lockStep, last uint64, complain func(property, format string, args ...any)) {
	run := uint64(0)
	for _, h := range s.after.Holders {
		if !h.Shared && len(s.after.Holders) > 1 {
			complain(Unordered, "invariant 2: grant %d of %s is exclusive, and one of %d", h.Number, s.name, len(s.after.Holders))
		}
		if slices.ContainsFunc(s.before.Holders, func(o core.HolderView) bool { return o.Number == h.Number }) {
			run = h.Generation
		}
	}
	if run == 0 && len(s.begun) > 0 {
		run = s.begun[0].Number // a new generation
		for _, h := range s.begun {
			run = min(run, h.Number)
		}
	}
	for _, h := range s.begun {
		if h.Number <= last || h.Generation != run {
			complain(Unordered, "A1: grant %d of %s has token %d, want %d, after number %d", h.Number, s.name, h.Generation, run, last)
		}
	}
}

// closings is properties 8 and 9, over the history of the log: until when each
// lock must stay closed, by what was asked for and by nothing that core noted.
// An entry counts when it is applied first.
func (w *world) closings(before *core.State, e *entry, did *application) {
	t := w.cfg.Terms
	if e.Index <= w.judged || t.LockDelay == 0 && t.OncePer == 0 {
		return
	}
	w.judged = e.Index
	w.shut = slices.Clone(w.shut)
	now, period := did.st.Clock(), core.Clock(t.OncePer-t.OncePer/10)
	for i, s := range w.cfg.steps(before, did.st) {
		until := w.shut[i]
		for _, h := range s.ended {
			confirmed, success := e.confirms(h)
			if !confirmed && t.LockDelay > 0 {
				until = max(until, now+core.Clock(t.LockDelay))
			}
			if success && t.RetryFailed {
				until = max(until, h.Grant.Since+period)
			}
		}
		for _, h := range s.begun {
			if now < until {
				w.fail(OpenedEarly, "%s is granted as %d at clock %v, but must stay closed until %v",
					s.name, h.Number, time.Duration(now), time.Duration(until))
			}
			if t.OncePer > 0 && !t.RetryFailed {
				until = max(until, now+period)
			}
		}
		if s.after.Closed && s.after.OpensAt > until {
			w.fail(ShutTooLong, "%s is closed until clock %v, but must open at %v",
				s.name, time.Duration(s.after.OpensAt), time.Duration(until))
		}
		w.shut[i] = until
	}
}

// confirms reports whether the holder of a grant that an entry ended said so
// itself, and whether it reported success.
func (e *entry) confirms(h core.HolderView) (confirmed, success bool) {
	for _, cmd := range e.Commands {
		switch cmd := cmd.(type) {
		case core.Release:
			if cmd.Grant == h.Number {
				return true, !cmd.Failed
			}
		case core.Cancel:
			if cmd.Session == h.Session {
				return true, false
			}
		case core.End:
			if cmd.ID == h.Session && !cmd.Operator {
				return true, false
			}
		}
	}
	return false, false
}
