package lease

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"holdfast/server/core"
)

// A Weakening takes rules out of a Machine, each a version that looks just as
// good and is not. It exists for the explorer and the simulator (room sim),
// which must find what goes wrong; no other package may use it.
type Weakening struct {
	// OwnClock, if not 0, starts the clock of an office at the machine's own
	// instant, this much off, instead of at the state's clock (against B2).
	OwnClock time.Duration
	// KeepMemory keeps who was heard over a step-down (against B3).
	KeepMemory bool
	// AnswerWithoutClear answers a suspected session's keepalive like any
	// other (against B5).
	AnswerWithoutClear bool
	// ForgetInFlight looks only at suspicions that are applied, not at those
	// on their way (against B5).
	ForgetInFlight bool
	// LeaseReads answers keepalives without a confirmation, as a leader that
	// trusts its own clock would (against B5).
	LeaseReads bool
	// ExpireWithoutSuspicion suspects only when T has passed, so that nothing
	// is known to the next leader before (against B4).
	ExpireWithoutSuspicion bool
	// ExpireDespiteClear proposes an expiry though a clear is in flight. It
	// does no harm by itself: B4's since voids it.
	ExpireDespiteClear bool
	// SuspectAtHalfOnly gives unheard sessions T/2 as well (against B6).
	SuspectAtHalfOnly bool
	// CoarseTicks logs the clock every T/8 only (against B6).
	CoarseTicks bool
	// NoTicks logs no clock at all (against B6).
	NoTicks bool
	// CountStalls lets the clock run on over a stall (against B9).
	CountStalls bool
	// ExpireAfterStallAtOnce does not wait for a drain and a confirmation
	// (against B9).
	ExpireAfterStallAtOnce bool
	// ForgetEnds asks for no grant back at its maximum hold (against B8).
	ForgetEnds bool
	// FreeAtOnce frees a revoked grant without waiting for T (against B11).
	FreeAtOnce bool
	// ForgetRevokes answers keepalives though a revoke is in flight (against
	// B11).
	ForgetRevokes bool
}

// NewWeakened is New with rules taken out, for the explorer and the simulator
// only.
func NewWeakened(cfg Config, w Weakening) *Machine {
	if cfg.Tick <= 0 {
		cfg.Tick = 100 * time.Millisecond
	}
	return &Machine{tick: cfg.Tick, weak: w}
}

// startClock is the clock at the start of an office.
func (w Weakening) startClock(now Instant, st *core.State) core.Clock {
	if w.OwnClock != 0 {
		return max(0, core.Clock(now+w.OwnClock))
	}
	return st.Clock()
}

// recall restores what an earlier office remembered, for KeepMemory.
func (m *Machine) recall(kept map[core.SessionID]*session) {
	for id, s := range m.sessions { // heaps do not depend on the order of filling
		if old := kept[id]; old != nil && old.heard {
			s.heard, s.heardAt, s.heardClock = true, old.heardAt, old.heardClock
			m.place(s)
		}
	}
}

// Clone returns a copy that shares nothing that changes, for the explorer. It
// decides exactly as m does; only its Wake may come later than m's, where m
// keeps a timer that is early.
func (m *Machine) Clone() *Machine {
	c := *m
	c.silence, c.expiry, c.suspectsT, c.ends, c.frees = timerHeap{}, timerHeap{}, timerHeap{}, timerHeap{}, timerHeap{}
	c.time.stalls = slices.Clone(m.time.stalls)
	c.inbox, c.pending = slices.Clone(m.inbox), slices.Clone(m.pending)
	c.revokes, c.answers = slices.Clone(m.revokes), slices.Clone(m.answers)
	c.sessions = make(map[core.SessionID]*session, len(m.sessions))
	c.grants = make(map[uint64]*grant, len(m.grants))
	c.closings = make(map[string]*closing, len(m.closings))
	for id, s := range m.sessions { // heaps do not depend on the order of filling
		n := *s
		n.waits = slices.Clone(s.waits)
		n.due, n.byTTL = timer{s: &n}, timer{s: &n}
		c.sessions[id] = &n
		c.place(&n)
	}
	for number, g := range m.grants { // nor here on the order
		n := *g
		n.due = timer{g: &n}
		c.grants[number] = &n
		c.trackGrant(n.GrantTiming)
	}
	for lock, cl := range m.closings { // nor here on the order
		n := *cl
		n.due = timer{c: &n}
		c.closings[lock] = &n
		c.trackClosing(n.ClosingTiming)
	}
	c.toClear = nil
	for _, s := range m.toClear {
		if n := c.sessions[s.id]; n != nil && m.sessions[s.id] == s {
			c.toClear = append(c.toClear, n)
		}
	}
	return &c
}

// AppendState appends an encoding of all that later turns depend on, for the
// explorer: equal encodings behave equally. Instants are written relative to
// now.
func (m *Machine) AppendState(b []byte, now Instant) []byte {
	if !m.leading {
		b = append(b, 0)
		return appendWaits(b, m.inbox, now)
	}
	b = append(b, 1)
	num := func(vs ...int64) {
		for _, v := range vs {
			b = binary.AppendVarint(b, v)
		}
	}
	flags := func(vs ...bool) {
		for _, v := range vs {
			b = append(b, map[bool]byte{true: 1}[v])
		}
	}
	l := &m.time
	num(int64(m.term), int64(l.base), int64(l.turned-now), int64(l.clock), int64(l.ahead), int64(m.logged),
		int64(m.confirmedUpTo-now), int64(m.askedAt-now), int64(m.drainedAt-now), int64(m.hold))
	flags(l.idle, m.ticking, m.asked, m.unsettled, m.drainAsked, m.drainAgain)
	for _, s := range l.stalls {
		num(int64(s.from-now), int64(s.to-now))
	}
	num(-1)
	b = appendWaits(b, m.inbox, now)
	b = appendWaits(b, m.pending, now)
	for _, r := range m.revokes {
		num(int64(r.grant), int64(m.revokeSeq-r.seq))
	}
	num(-1)
	for _, id := range sortedKeys(m.sessions) {
		s := m.sessions[id]
		num(int64(s.id), int64(s.heardAt-now), int64(s.heardClock), int64(s.since), int64(s.notBefore), int64(s.covered))
		flags(s.heard, s.suspected, s.suspecting, s.expiring, s.clearing, s.clearQueued)
		b = appendWaits(b, s.waits, now)
	}
	for _, n := range sortedKeys(m.grants) {
		g := m.grants[n]
		num(int64(n), int64(g.EndsAt), int64(g.RevokedAt), int64(g.notBefore))
		flags(g.Revoked, g.marking, g.freeing)
	}
	for _, name := range sortedKeys(m.closings) {
		c := m.closings[name]
		b = append(b, name...)
		num(int64(c.Closing), int64(c.OpensAt), int64(c.notBefore))
		flags(c.opening)
	}
	return b
}

func appendWaits(b []byte, waits []wait, now Instant) []byte {
	b = binary.AppendVarint(b, int64(len(waits)))
	for _, w := range waits {
		b = binary.AppendUvarint(b, uint64(w.handle))
		b = binary.AppendUvarint(b, uint64(w.session))
		b = binary.AppendVarint(b, int64(w.arrived-now))
		b = binary.AppendUvarint(b, w.revokes)
	}
	return b
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m { // in any order, and then sorted
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
