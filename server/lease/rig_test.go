package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/server/core"
)

// A flight is an entry that was appended and not yet applied.
type flight struct {
	at    Instant
	entry core.Entry
	acks  []func(core.Result)
}

// A member is one client of the rig: it sends a keepalive every so often, and
// at once when it meets a new leader (B6).
type member struct {
	id       core.SessionID
	every    time.Duration // 0: silent
	next     Instant
	calls    map[Handle]Instant // keepalives without an answer, by when they were sent
	deadline Instant            // by the latest answer: sent + T
	lost     bool
	lag      time.Duration // network, one way
	meet     time.Duration // from a leader's start until it is found
}

// A reporter is a *testing.T or a *rapid.T.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A rig is a sequence of leaders that drive the real core through the real
// machine, with a commit latency, on an invented clock.
type rig struct {
	t       reporter
	tick    time.Duration
	commit  time.Duration // append → applied
	confirm time.Duration // asked → confirmed
	drain   time.Duration // asked → drained
	weak    Weakening

	now      Instant
	st       *core.State
	m        *Machine
	term     uint64
	index    uint64
	flying   []flight
	confirms []struct{ at, upTo Instant }
	drains   []Instant
	wake     Instant
	members  []*member
	handles  Handle
	answered map[Handle]Status
	tries    int

	leaderless time.Duration
	proposed   map[string]int
	lines      []string
	showTicks  bool
	transfers  int
	refuse     bool   // raft refuses to append
	lose       string // commands of this kind get lost on their way
	frozen     bool   // nothing commits, nothing is confirmed
	check      func()
}

func newRig(t reporter) *rig {
	return &rig{
		t: t, tick: 100 * time.Millisecond, commit: 2 * time.Millisecond, confirm: time.Millisecond,
		now: time.Hour, answered: map[Handle]Status{}, proposed: map[string]int{},
		st: core.New(core.Config{Domain: [16]byte{1}, Incarnation: 1, Members: []core.Member{{ID: 1}}}),
	}
}

func (r *rig) say(format string, args ...any) {
	at := (r.now - time.Hour).Seconds()
	r.lines = append(r.lines, fmt.Sprintf("%8.3f  ", at)+fmt.Sprintf(format, args...))
}

func (r *rig) take() string {
	s := strings.Join(r.lines, "\n")
	r.lines = nil
	if s != "" {
		s += "\n"
	}
	return s
}

// elect makes a new leader after gap without one. Entries in flight are
// committed by it if keep, else lost.
func (r *rig) elect(gap time.Duration, keep bool) {
	r.depose(keep)
	r.leaderless += gap
	r.advanceTo(r.now + gap)
	r.term++
	r.m = NewWeakened(Config{Tick: r.tick}, r.weak)
	r.m.Lead(r.now, r.term, r.st)
	for _, c := range r.members {
		if c.every > 0 {
			c.next = r.now + max(c.meet, c.lag) // it meets a new leader
		}
	}
	r.turn()
}

func (r *rig) depose(keep bool) {
	if r.m == nil {
		return
	}
	if keep {
		for len(r.flying) > 0 {
			r.land()
		}
	}
	r.m.StepDown()
	for _, a := range r.m.Turn(r.now).Answers {
		r.answer(a)
	}
	r.flying, r.confirms, r.drains, r.wake, r.m = nil, nil, nil, 0, nil
}

// propose appends an entry of the current leader.
func (r *rig) propose(ack func(core.Result), cmds ...core.Command) {
	for _, c := range cmds {
		name := strings.TrimPrefix(fmt.Sprintf("%T", c), "core.")
		r.proposed[name]++
		if _, ok := c.(core.Tick); !ok || r.showTicks {
			r.say("propose %s", describe(c))
		}
	}
	r.index++
	f := flight{at: r.now + r.commit, entry: core.Entry{
		Index: r.index, Term: r.term, Header: core.Header{Clock: r.m.Clock(r.now)}, Commands: cmds,
	}}
	if ack != nil {
		f.acks = append(f.acks, ack)
	}
	r.flying = append(r.flying, f)
}

// land applies the oldest entry in flight.
func (r *rig) land() {
	f := r.flying[0]
	r.flying = r.flying[1:]
	f.entry.Index = r.st.Index() + 1
	a, err := r.st.Apply(f.entry)
	if err != nil {
		r.t.Fatalf("apply: %v", err)
	}
	r.m.Applied(r.now, r.st, f.entry, a)
	for i, ack := range f.acks {
		ack(a.Results[i])
	}
	for _, e := range a.Events {
		if s := event(e); s != "" {
			r.say("%s", s)
		}
	}
	for _, c := range r.members {
		if !r.st.HasSession(c.id) {
			c.lost = true
		}
	}
}

// turn runs the machine once and does what it says.
func (r *rig) turn() {
	eff := r.m.Turn(r.now)
	for _, a := range eff.Answers {
		r.answer(a)
	}
	eff.Propose = slices.DeleteFunc(eff.Propose, func(c core.Command) bool { return r.lose == strings.TrimPrefix(fmt.Sprintf("%T", c), "core.") })
	switch {
	case len(eff.Propose) == 0:
	case r.refuse:
		r.m.Dropped(eff.Propose)
	default:
		r.propose(nil, eff.Propose...)
	}
	if eff.Confirm {
		r.confirms = append(r.confirms, struct{ at, upTo Instant }{r.now + r.confirm, r.now})
	}
	if eff.Drain {
		r.say("drain")
		r.drains = append(r.drains, r.now+r.drain)
	}
	if eff.Transfer {
		r.transfers++
		r.say("transfer")
	}
	r.wake = eff.Wake
	if r.check != nil {
		r.check()
	}
}

func (r *rig) answer(a Answer) {
	if _, twice := r.answered[a.Handle]; twice {
		r.t.Fatalf("handle %d answered twice", a.Handle)
	}
	r.answered[a.Handle] = a.Status
	for _, c := range r.members {
		if sent, ok := c.calls[a.Handle]; ok {
			delete(c.calls, a.Handle)
			if a.Status == Alive {
				t, _ := r.st.SessionTiming(c.id)
				c.deadline = max(c.deadline, sent+t.TTL)
			}
			if a.Status == Lost && !c.lost {
				r.t.Fatalf("session %d told lost while it lives", c.id)
			}
			return
		}
	}
	r.say("answer %d %s", a.Handle, a.Status)
}

// keepalive hands over one keepalive of a session now.
func (r *rig) keepalive(id core.SessionID) Handle {
	r.handles++
	if r.m != nil {
		r.m.Keepalive(r.handles, id, r.now)
	}
	return r.handles
}

// next is the instant of the next thing to happen, at most until.
func (r *rig) next(until Instant) Instant {
	at := until
	if r.m != nil {
		if r.wake != 0 {
			at = min(at, max(r.wake, r.now))
		}
		if !r.frozen {
			if len(r.flying) > 0 {
				at = min(at, r.flying[0].at)
			}
			for _, c := range r.confirms {
				at = min(at, c.at)
			}
		}
		for _, d := range r.drains {
			at = min(at, d)
		}
		for _, c := range r.members {
			if c.every > 0 && !c.lost {
				at = min(at, max(c.next, r.now))
			}
		}
	}
	return max(at, r.now)
}

// run lets d pass.
func (r *rig) run(d time.Duration) { r.advanceTo(r.now + d) }

func (r *rig) advanceTo(until Instant) {
	for still := 0; ; {
		at := r.next(until)
		if at == r.now {
			if still++; still > 100_000 {
				r.t.Fatalf("time stands still at %v", r.now)
			}
		} else {
			still = 0
		}
		r.now = at
		if r.m != nil {
			r.deliver()
			if r.wake != 0 && r.wake <= r.now || r.dirty() {
				r.turn()
			}
		}
		if r.now >= until && r.next(until+1) > until {
			return
		}
	}
}

// dirty reports whether something was handed to the machine since its turn.
func (r *rig) dirty() bool { return r.tries > 0 }

// deliver hands over what has come by now.
func (r *rig) deliver() {
	r.tries = 0
	for !r.frozen && len(r.flying) > 0 && r.flying[0].at <= r.now {
		r.land()
		r.tries++
	}
	if !r.frozen {
		r.confirms = slices.DeleteFunc(r.confirms, func(c struct{ at, upTo Instant }) bool {
			if c.at > r.now {
				return false
			}
			r.m.Confirmed(c.upTo)
			r.tries++
			return true
		})
	}
	for _, c := range r.members {
		if c.every == 0 || c.lost || c.next > r.now {
			continue
		}
		c.next = r.now + c.every
		if c.calls == nil {
			c.calls = map[Handle]Instant{}
		}
		c.calls[r.keepalive(c.id)] = r.now - c.lag
		r.tries++
	}
	r.drains = slices.DeleteFunc(r.drains, func(d Instant) bool {
		if d > r.now {
			return false
		}
		r.m.Drained(r.now)
		r.tries++
		return true
	})
}

// stall lets d pass without anything running.
func (r *rig) stall(d time.Duration) { r.now += d; r.turn() }

// open opens a session through the log.
func (r *rig) open(id core.SessionID, ttl time.Duration) {
	r.t.Helper()
	done := false
	r.propose(func(res core.Result) { done = res.Status == core.Done }, core.Open{
		ID: id, SecretHash: [32]byte{byte(id), byte(id >> 8), byte(id >> 16)}, Instance: [16]byte{1}, TTL: ttl,
	})
	r.run(r.commit)
	if !done {
		r.t.Fatalf("session %d did not open", id)
	}
}

// acquire sends an acquire on the session's lane 0; n counts.
func (r *rig) acquire(a core.Acquire) {
	r.propose(nil, a)
	r.run(r.commit)
}

func (r *rig) holder(lock string) core.SessionID {
	v, ok := r.st.Lock(lock, 0)
	if !ok || len(v.Holders) == 0 {
		return 0
	}
	return v.Holders[0].Session
}

func describe(c core.Command) string {
	sec := func(c core.Clock) string { return fmt.Sprintf("%.3f", time.Duration(c).Seconds()) }
	switch c := c.(type) {
	case core.Suspect:
		return fmt.Sprintf("suspect %v since %s", c.Sessions, sec(c.Since))
	case core.Clear:
		return fmt.Sprintf("clear %v", c.Sessions)
	case core.Expire:
		return fmt.Sprintf("expire %d since %s", c.ID, sec(c.Since))
	case core.Open:
		return fmt.Sprintf("open %d ttl %v", c.ID, c.TTL)
	case core.Acquire:
		return fmt.Sprintf("acquire %s by %d", c.Lock, c.Session)
	case core.Release:
		return fmt.Sprintf("release %d by %d", c.Grant, c.Session)
	case core.Revoke:
		kind := "polite"
		if c.Now {
			kind = "now"
		} else if c.Free {
			kind = "free"
		}
		return fmt.Sprintf("revoke %s %d %s", c.Lock, c.Grant, kind)
	case core.Reopen:
		return fmt.Sprintf("reopen %s closing %d", c.Lock, c.Closing)
	case core.Tick:
		return "tick"
	}
	return fmt.Sprintf("%T", c)
}

func event(e core.Event) string {
	switch e.Kind {
	case core.EventEnded:
		return fmt.Sprintf("session %d ended", e.Session)
	case core.EventGranted:
		return fmt.Sprintf("granted %s to %d as %d", e.Lock, e.Session, e.Grant)
	case core.EventReleased:
		return fmt.Sprintf("grant %d of %s ended", e.Grant, e.Lock)
	case core.EventRevoked:
		return fmt.Sprintf("grant %d of %s marked revoked", e.Grant, e.Lock)
	case core.EventClosed:
		return fmt.Sprintf("lock %s closed until %.3f", e.Lock, time.Duration(e.OpensAt).Seconds())
	case core.EventReopened:
		return fmt.Sprintf("lock %s reopened", e.Lock)
	}
	return ""
}
