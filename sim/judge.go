package sim

import (
	"fmt"
	"time"

	"holdfast/internal/watchdog"
	"holdfast/server/core"
)

// A Property is what must hold in every world.
type Property string

// The properties. The numbers are those of the invariants in DESIGN §3.
const (
	TokensRise     Property = "grant numbers rise (1)"
	BrokenState    Property = "the state obeys its invariants (2–5)"
	OneHolder      Property = "one holder, or readers of one generation (2)"
	OfTheDead      Property = "nothing belongs to a session that has ended (3)"
	HeadWaits      Property = "the head of a queue is granted at once (4)"
	QueueOrder     Property = "grants follow queue order (5)"
	NamesGrant     Property = "a grant ends by what names it (6)"
	OneRequest     Property = "a request is one request (7)"
	Diverged       Property = "equal index, equal state (8)"
	Halted         Property = "no node halts (9)"
	NoStart        Property = "a node starts from what its disk holds"
	GapInLog       Property = "the log has no gap"
	GivesUpFirst   Property = "the client gives up first (B10)"
	Healthy        Property = "a healthy session does not die of the service"
	Closing        Property = "a closed lock opens in time, and no earlier (B8, B13)"
	Late           Property = "what is due is done in time (B8, B11)"
	ClockRuns      Property = "the log's clock runs no faster than time (B2, B9)"
	Unread         Property = "nothing expires while a call lies unread (B9)"
	Untold         Property = "a holder is told of a revoke before it is promised anything (B11)"
	Speaks         Property = "a node whose disk hangs is silent (D2)"
	NotLinear      Property = "what clients saw of a lock fits one order"
	TwoHolders     Property = "no two clients believe that they hold"
	TooEarly       Property = "no session ends before its promise"
	Immortal       Property = "a silent session ends within 2 × TTL of a leader's time (B7)"
	AckedLost      Property = "no acknowledged grant is forgotten"
	LostUpdate     Property = "no write lands on what its writer has not seen"
	WentBack       Property = "no write is accepted below an earlier one"
	ZombieWrite    Property = "no write under a token that was revoked at once"
	HolderFenced   Property = "no gate refuses who rightly holds"
	SnapshotBehind Property = "no snapshot above the durable commit index (D4)"
	NotServed      Property = "after the faults every live waiter is served"
	NoRest         Property = "nobody turns in circles"
	NotSettled     Property = "after the faults all members agree"
)

// A Violation is one property that did not hold.
type Violation struct {
	Property Property
	At       time.Duration
	Why      string
}

// A Situation is something that a run of many worlds must have met, or else it
// says little.
type Situation string

// Counts says how much went on in a world.
type Counts struct {
	Acquires, Grants, Writes, Refused, Expired, Lost, Sessions int
	// Reads were answered, and Busy tries found their lock taken.
	Reads, Busy int
	// Histories of locks were checked, of so many Operations; of Undecided
	// histories the search gave up.
	Histories, Operations, Undecided int
}

// A judge watches a world from outside. It knows what clients, gates and disks
// saw, and compares what the members applied.
type judge struct {
	w          *world
	violations []Violation
	met        map[Situation]int
	counts     Counts

	highest uint64 // number that a client was told
	log     logBook
	alive   map[core.SessionID]time.Duration // arrival of the latest call that was answered alive
	ended   map[core.SessionID]time.Duration // those that expired
	names   map[core.SessionID]int
	held    []*hold // that clients believed to hold
	office  office
	last    map[core.SessionID]heardAt // when a session was last heard, in the time of offices
	freed   map[uint64]bool            // tokens of which a grant was revoked at once
	barred  map[uint64]bool            // and after whose revoke the gate was armed

	audit      *audit
	due        *dues
	clients    promises
	tale       tale
	byOperator map[core.SessionID]bool // sessions that an operator ended
	armed      map[*resource]uint64    // the highest number that a gate was armed with
}

func newJudge(w *world) *judge {
	j := &judge{
		w: w, met: map[Situation]int{}, alive: map[core.SessionID]time.Duration{}, ended: map[core.SessionID]time.Duration{},
		names: map[core.SessionID]int{}, freed: map[uint64]bool{}, barred: map[uint64]bool{}, log: newLogBook(), last: map[core.SessionID]heardAt{},
		clients: newPromises(), tale: newTale(), byOperator: map[core.SessionID]bool{}, armed: map[*resource]uint64{},
	}
	j.audit, j.due = newAudit(j), newDues(j)
	return j
}

// object notes that a property does not hold. The world stops.
func (j *judge) object(p Property, format string, args ...any) {
	v := Violation{p, j.w.now, fmt.Sprintf(format, args...)}
	j.w.say("VIOLATION %s: %s", v.Property, v.Why)
	j.violations = append(j.violations, v)
	j.w.stopped = true
}

func (j *judge) meet(s Situation) { j.met[s]++ }

// short names a session in transcripts.
func (j *judge) short(id core.SessionID) int {
	n, ok := j.names[id]
	if !ok {
		n = len(j.names) + 1
		j.names[id] = n
	}
	return n
}

// opened notes that a client was told of its session.
func (j *judge) opened(s *session) {
	j.counts.Sessions++
	j.clients.sessions[s.id] = s
	if !j.audit.live[s.id] && s.counts() && !s.unbound() {
		j.object(GivesUpFirst, "%s is told of session %d, which does not live", s.c.name, j.short(s.id))
	}
}

// sessionSilent notes that a client will not keep its session any longer.
func (j *judge) sessionSilent(s *session) {
	for _, h := range s.sortedHolds() {
		j.stops(h)
	}
}

// answeredAlive notes a promise: the session lives for a TTL from the arrival
// of the call that is answered.
func (j *judge) answeredAlive(s *server, m message) {
	j.alive[m.session] = max(j.alive[m.session], m.read)
	if at, ok := j.ended[m.session]; ok && at-m.read < j.promised() {
		j.object(TooEarly, "%s answers a call of session %d as alive that arrived at %v, and the session expired at %v", s.name, j.short(m.session), m.read, at)
	}
}

// expired checks that a session's end comes no earlier than its promise, as
// its servers' clocks measure it.
func (j *judge) expired(id core.SessionID) {
	j.counts.Expired++
	at, ok := j.alive[id]
	j.ended[id] = j.w.now
	j.outlived(id)
	if age := j.w.now - at; ok && age < j.promised() {
		j.object(TooEarly, "session %d expires %v after the arrival of a call that was answered alive", j.short(id), age)
	}
}

// promised is how long a session lives at least, in true time, from the arrival
// of a call that is answered alive: a TTL on the fastest clock.
func (j *judge) promised() time.Duration {
	return j.w.TTL*1_000_000/time.Duration(1_000_000+j.w.Skew) - time.Millisecond
}

// granted checks a grant that reached its client.
func (j *judge) granted(h *hold, q *want) {
	j.counts.Grants++
	if h.number <= q.floor && !h.s.cloned {
		j.object(TokensRise, "%s is told of grant %d, and asked when number %d was known", h.s.c.name, h.number, q.floor)
	}
	j.highest = max(j.highest, h.number)
	j.log.told(j, h, q)
	j.clients.told(j, h)
	believes := h.believes()
	if believes {
		j.tale.told(h.number, j.w.now, j.w.Outside() || h.unbound())
	}
	if j.w.Outside() {
		return
	}
	j.held = keep(j.held, func(o *hold) bool { return o.believes() })
	if !believes || h.unbound() {
		return
	}
	for _, o := range j.held {
		both := h.token.Mode == o.token.Mode && h.token.Number == o.token.Number && h.number != o.number && h.lock.shares
		if !o.unbound() && o.lock == h.lock && o.token.Slot == h.token.Slot && !both && !j.freed[o.token.Number] && !j.freed[h.token.Number] {
			j.object(TwoHolders, "%s (grant %d) and %s (grant %d) both believe that they hold %s", o.s.c.name, o.number, h.s.c.name, h.number, h.lock.name)
		}
	}
	j.held = append(j.held, h)
}

func keep[T any](in []T, ok func(T) bool) []T {
	out := in[:0]
	for _, x := range in {
		if ok(x) {
			out = append(out, x)
		}
	}
	return out
}

// lost notes that a holder stops without wanting to.
func (j *judge) lost(h *hold, _ watchdog.Cause) { j.stops(h) }

// refused checks a refusal of a gate.
func (j *judge) refused(r *resource, h *hold) {
	j.counts.Refused++
	if !h.believes() {
		j.meet(ZombieRefused)
	}
	if h.believes() && !h.unbound() && !j.w.Outside() && !j.freed[h.token.Number] && h.s.c.up {
		j.object(HolderFenced, "%s refuses token %d of %s, which holds", r.name, h.token.Number, h.s.c.name)
	}
}

// wrote checks an accepted write.
func (j *judge) wrote(r *resource, h *hold, base int) {
	j.counts.Writes++
	if n := len(r.writes); n > 0 && r.writes[n-1].token.Number > h.token.Number {
		j.object(WentBack, "%s accepts token %d after %d", r.name, h.token.Number, r.writes[n-1].token.Number)
	}
	if base != r.version && !(h.s.cloned && r.writes[len(r.writes)-1].token == h.token) {
		j.object(LostUpdate, "%s writes %s, which has version %d, and knows version %d", h.s.c.name, r.name, r.version, base)
	}
	if h.token.Number < j.armed[r] {
		j.object(WentBack, "%s accepts token %d, and was armed with %d", r.name, h.token.Number, j.armed[r])
	}
	if j.barred[h.number] {
		j.object(ZombieWrite, "%s writes %s by grant %d, which was revoked at once", h.s.c.name, r.name, h.number)
	}
}

// armedBy notes that a gate was armed by the revocation token of a grant.
func (j *judge) armedBy(_ *resource, grant uint64) { j.barred[grant] = true }

// armedFor notes that a gate told a holder that it is armed.
func (j *judge) armedFor(r *resource, h *hold) { j.armed[r] = max(j.armed[r], h.token.Number) }
