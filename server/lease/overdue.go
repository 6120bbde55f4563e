package lease

import (
	"time"

	"holdfast/server/core"
)

// A Watch goes through all sessions, a part at each step, and knows how many
// should have ended long ago: they are past their deadline by more than T
// again. It must find none. It relies on nothing by which the machine ends
// sessions, only on the state, the clock and who was heard: it is there for the
// day on which that does not work (C78 of the casebook).
type Watch struct {
	after core.SessionID // where the next step begins
	found Overdue        // in the round under way
}

// Overdue is what a round of a [Watch] has found.
type Overdue struct {
	Sessions int
	// Worst is the one that is longest past its deadline, by Past.
	Worst core.SessionID
	Past  time.Duration
}

// A step looks at a share of the sessions, but at so many at least.
const (
	watchShare = 100
	watchLeast = 1000
)

// Step looks at the next sessions, a hundredth of all. When it has come to the
// last one it returns what the round has found, and true. On a machine that
// does not lead nothing is overdue.
func (w *Watch) Step(now Instant, m *Machine, st *core.State) (Overdue, bool) {
	if !m.leading {
		*w = Watch{}
		return Overdue{}, true
	}
	clock, left, last := m.time.at(now), max(watchLeast, st.SessionCount()/watchShare), core.SessionID(0)
	st.EachSessionTimingAfter(w.after, func(t core.SessionTiming) bool {
		if left == 0 {
			return false
		}
		left, last = left-1, t.ID
		if past := m.past(clock, t); past > t.TTL {
			w.found.Sessions++
			if past > w.found.Past {
				w.found.Worst, w.found.Past = t.ID, past
			}
		}
		return true
	})
	if w.after = last; left == 0 && last != 0 {
		return Overdue{}, false
	}
	found := w.found
	*w = Watch{}
	return found, true
}

// past is how long ago a session should have ended.
func (m *Machine) past(clock core.Clock, t core.SessionTiming) time.Duration {
	since := m.time.base // not heard in this office
	if s := m.sessions[t.ID]; s != nil {
		since = m.lastSign(s)
	}
	if t.Suspected {
		since = t.Since
	}
	return time.Duration(clock-since) - t.TTL
}
