package watchdog

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// witness checks the machine's promises from outside: it knows only what went
// in and what came out.
type witness struct {
	t   *rapid.T
	m   *Machine
	set Settings
	now Instant

	good     Instant // the latest answered call's sending
	sent     map[CallID]Action
	sentAt   map[CallID]Instant
	open     map[Request]bool // begun, without a final answer
	given    map[Request]bool // abandoned or given up
	lastN    map[uint32]uint64
	cancels  map[Request]bool // a cancel was sent
	held     map[string]bool  // granted, neither lost nor released
	lost     map[string]bool
	known    map[string]bool // granted, and not confirmed as released
	asked    map[string]bool
	failed   map[string]bool
	over     bool
	finished bool
	grants   int
}

func newWitness(t *rapid.T) *witness {
	s := Settings{TTL: 10 * time.Second}.WithDefaults()
	s.Interval = time.Duration(rapid.IntRange(1, 30).Draw(t, "interval")) * 100 * time.Millisecond
	s.CallTimeout = time.Duration(rapid.IntRange(1, 30).Draw(t, "timeout")) * 100 * time.Millisecond
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return &witness{
		t: t, m: New(s, 0), set: s,
		sent: map[CallID]Action{}, sentAt: map[CallID]Instant{},
		open: map[Request]bool{}, given: map[Request]bool{}, lastN: map[uint32]uint64{}, cancels: map[Request]bool{},
		held: map[string]bool{}, lost: map[string]bool{}, known: map[string]bool{}, asked: map[string]bool{}, failed: map[string]bool{},
	}
}

func (w *witness) moment() Moment {
	return Moment{At: w.now, Jitter: rapid.Uint16().Draw(w.t, "jitter")}
}

func (w *witness) deadline() Instant { return w.good + w.set.TTL - w.set.Margin }

// see checks every action against the promises.
func (w *witness) see(acts []Action) {
	for _, a := range acts {
		if w.finished {
			w.t.Fatalf("%s after finished", describe(a))
		}
		switch a.Kind {
		case Send:
			w.seeSend(a)
		case Granted:
			w.final(a)
			w.held[a.Grant], w.known[a.Grant] = true, true
		case Declined:
			w.final(a)
		case GaveUp:
			w.given[a.Request] = true
		case Settled:
			if !w.open[a.Request] || !w.given[a.Request] {
				w.t.Fatalf("%s: it was not to be cancelled", describe(a))
			}
			delete(w.open, a.Request)
		case GrantLost:
			if !w.held[a.Grant] {
				w.t.Fatalf("%s: it was not held (promise 3)", describe(a))
			}
			delete(w.held, a.Grant)
			w.lost[a.Grant] = true
		case GrantReleased:
			if !w.known[a.Grant] || !w.asked[a.Grant] && !w.failed[a.Grant] {
				w.t.Fatalf("%s: nobody gave it back", describe(a))
			}
			delete(w.known, a.Grant)
		case SessionOver:
			w.over = true
			w.open = map[Request]bool{}
		case Finished:
			w.finished = true
		}
	}
	w.check()
}

// final: a request has one final answer, and none after its cancel (promise 4).
func (w *witness) final(a Action) {
	switch {
	case w.over:
		w.t.Fatalf("%s: the session is over (promise 2)", describe(a))
	case !w.open[a.Request]:
		w.t.Fatalf("%s: it has its final answer", describe(a))
	case w.given[a.Request] || w.cancels[a.Request]:
		w.t.Fatalf("%s: it is being cancelled (C2)", describe(a))
	}
	delete(w.open, a.Request)
}

func (w *witness) seeSend(a Action) {
	w.sent[a.Call], w.sentAt[a.Call] = a, w.now
	switch a.Send {
	case CallKeepalive:
		if !w.needed() {
			w.t.Fatal("a keepalive with nothing held or waited for (promise 6)")
		}
	case CallCancel:
		w.cancels[a.Request] = true
	case CallRelease:
		if w.held[a.Grant] {
			w.t.Fatalf("%s: its owner holds it", describe(a))
		}
	}
	if w.over && a.Send != CallEnd {
		w.t.Fatalf("%s: the session is over", describe(a))
	}
}

func (w *witness) needed() bool {
	for r := range w.open {
		if !w.given[r] {
			return true
		}
	}
	for id := range w.known {
		if !w.asked[id] && !w.failed[id] {
			return true
		}
	}
	return false
}

// check looks at the machine after each input.
func (w *witness) check() {
	if w.m.Good() != w.good {
		w.t.Fatalf("good is %v, want %v (promise 1)", w.m.Good(), w.good)
	}
	if _, over := w.m.Over(); over != w.over {
		w.t.Fatalf("over is %v, and told %v", over, w.over)
	}
	if !w.over && w.now >= w.deadline() {
		w.t.Fatalf("not over at %v, past the deadline %v (promise 2)", w.now, w.deadline())
	}
	for id := range w.held {
		if w.asked[id] || w.over {
			w.t.Fatalf("grant %s is held", id)
		}
		if st := w.m.State(w.now, id); st != Held && st != Jeopardy {
			w.t.Fatalf("grant %s is %v, and nobody was told", id, st)
		}
	}
	for id := range w.lost {
		if st := w.m.State(w.now, id); st != Lost && st != Released {
			w.t.Fatalf("lost grant %s is %v (promise 3)", id, st)
		}
	}
	for id := range w.known {
		if st := w.m.State(w.now, id); st == Released && !w.finished {
			w.t.Fatalf("grant %s is forgotten before its release is confirmed (promise 5)", id)
		}
	}
}

func (w *witness) begin(t *rapid.T) {
	id, acts, err := w.m.Begin(w.moment(), rapid.Bool().Draw(t, "try"))
	if err == nil {
		for r := range w.open {
			if r.Lane == id.Lane {
				t.Fatalf("request %v on the lane of %v, which is open (promise 4)", id, r)
			}
		}
		if id.N != w.lastN[id.Lane]+1 {
			t.Fatalf("request %v after number %d", id, w.lastN[id.Lane])
		}
		w.lastN[id.Lane], w.open[id] = id.N, true
	}
	w.see(acts)
}

func (w *witness) settle(t *rapid.T) {
	ids := make([]CallID, 0, len(w.sent))
	for id := range w.sent {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(t, "call")
	a := w.sent[id]
	delete(w.sent, id)
	r := Reply{Verdict: rapid.SampledFrom([]Verdict{Retry, Retry, Done, Done, Done, Done, Refused, SessionLost}).Draw(t, "verdict")}
	if r.Verdict == SessionLost && rapid.IntRange(0, 9).Draw(t, "rare") > 0 {
		r.Verdict = Done
	}
	switch {
	case r.Verdict == Done && a.Send == CallAcquire:
		r.Grant = fmt.Sprintf("%d/%d", a.Request.Lane, a.Request.N) // the same however often it is asked
		w.grants++
	case r.Verdict == Done && a.Send == CallKeepalive:
		if !w.over && w.now < w.deadline() {
			w.good = max(w.good, w.sentAt[id])
		}
		for _, g := range slices.Sorted(maps.Keys(w.known)) {
			if g == rapid.SampledFrom([]string{"0/1", "1/1", "0/2", ""}).Draw(t, "revoked") {
				r.Revoked = append(r.Revoked, Revocation{Grant: g, Cause: Revoked})
			}
		}
	}
	w.see(w.m.Settle(w.moment(), id, r))
}

func (w *witness) end(t *rapid.T) {
	id := rapid.SampledFrom([]string{"0/1", "1/1", "0/2", "1/2", "2/1", "0/3"}).Draw(t, "grant")
	if rapid.Bool().Draw(t, "fails") {
		if w.held[id] && w.now < w.deadline() {
			w.failed[id] = true
		}
		w.see(w.m.Fail(w.moment(), id, Liveness))
		return
	}
	if w.known[id] {
		if w.now < w.deadline() {
			delete(w.held, id) // else it is lost first
			w.asked[id] = true
			w.see(w.m.Release(w.moment(), id, false))
			return
		}
		w.asked[id] = true
	}
	w.see(w.m.Release(w.moment(), id, false))
}

func (w *witness) abandon(t *rapid.T) {
	r := Request{uint32(rapid.IntRange(0, 2).Draw(t, "lane")), uint64(rapid.IntRange(1, 3).Draw(t, "n"))}
	if w.open[r] && w.now < w.deadline() {
		w.given[r] = true
	}
	w.see(w.m.Abandon(w.moment(), r))
}

// tick goes to the next wake, or less far, or well past it; then the machine
// must have something to wait for.
func (w *witness) tick(t *rapid.T) {
	wake, ok := w.m.Wake()
	switch {
	case !ok:
		return
	case wake < w.now:
		wake = w.now
	}
	step := rapid.SampledFrom([]Instant{0, 0, 0, 0, -time.Millisecond, time.Second, 30 * time.Second}).Draw(t, "step")
	w.now = max(w.now, wake+step)
	w.see(w.m.Tick(w.moment()))
	if next, ok := w.m.Wake(); ok && next <= w.now {
		t.Fatalf("at %v the machine wants to be called at %v, again and again", w.now, next)
	}
}

// recount compares what the machine counts and expects with a look at all that
// it has.
func (w *witness) recount() {
	m, needing, out := w.m, 0, 0
	at := m.Deadline()
	for _, l := range m.lanes {
		if q := l.request; l.busy {
			if !q.cancelling {
				needing++
			}
			if q.call != 0 {
				at = min(at, q.callAt+m.patience(&q))
			} else {
				at = min(at, q.retryAt)
			}
		}
	}
	grants := 0
	for i, g := range m.grants {
		if !g.known {
			continue
		}
		grants++
		if m.slots[g.id] != i {
			w.t.Fatalf("grant %s is in slot %d, and looked for in slot %d", g.id, i, m.slots[g.id])
		}
		if !g.asked {
			out++
		}
		if !g.asked && (g.lost == 0 || g.lingers) {
			needing++
		}
		switch {
		case g.call != 0:
			at = min(at, g.callAt+m.set.CallTimeout)
		case g.release:
			at = min(at, g.retryAt)
		case g.lingers:
			at = min(at, g.lostAt+m.set.TTL)
		}
	}
	if needing != m.needing || out != m.out || grants != len(m.slots) {
		w.t.Fatalf("counted %d needing, %d out, %d grants; there are %d, %d, %d", m.needing, m.out, len(m.slots), needing, out, grants)
	}
	if wake, _ := m.Wake(); !w.over && wake > at {
		w.t.Fatalf("wake at %v, too late for %v", wake, at)
	}
}

func TestPromisesUnderRandomInputs(t *testing.T) {
	var grants, overs int
	rapid.Check(t, func(t *rapid.T) {
		w := newWitness(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 20).Draw(t, "input") {
			case 0, 1, 2:
				w.begin(t)
			case 3, 4, 5, 6, 7, 8, 9, 10:
				w.settle(t)
			case 11, 12:
				w.end(t)
			case 13:
				w.abandon(t)
			case 14:
				w.see(w.m.Hurry(w.moment()))
			case 15:
				if rapid.IntRange(0, 9).Draw(t, "close") == 0 {
					w.see(w.m.Close(w.moment()))
				}
			default:
				w.tick(t)
			}
			if clone := w.m.Clone(); fmt.Sprintf("%+v", *clone) != fmt.Sprintf("%+v", *w.m) {
				t.Fatal("a clone differs")
			}
			w.recount()
		}
		grants += w.grants
		if w.over {
			overs++
		}
	})
	if grants == 0 || overs == 0 {
		t.Fatalf("%d grants, %d sessions over: the test tests nothing", grants, overs)
	}
}

func TestTooManyUnsettledRequests(t *testing.T) {
	m := New(Settings{}.WithDefaults(), 0)
	var last CallID
	for range MaxLanes {
		_, acts, err := m.Begin(Moment{}, false)
		if err != nil {
			t.Fatal(err)
		}
		last = acts[len(acts)-1].Call
	}
	if _, _, err := m.Begin(Moment{}, false); err != ErrTooMany {
		t.Errorf("begin on a full session: %v, want ErrTooMany", err)
	}
	m.Settle(Moment{}, last, Reply{Verdict: Refused})
	if r, _, err := m.Begin(Moment{}, false); err != nil || r != (Request{Lane: MaxLanes - 1, N: 2}) {
		t.Errorf("begin on the last free lane: %v, %v", r, err)
	}
}
