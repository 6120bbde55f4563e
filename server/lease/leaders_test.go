package lease

import (
	"fmt"
	"testing"
	"time"

	"holdfast/server/core"
)

// A flap is one way in which leaders change: the office of each, and the time
// without one before each.
type flap struct{ office, gap time.Duration }

// counts reports whether an office counts in the bound of B7.
func (f flap) counts(ttl, tick time.Duration) bool { return f.office >= max(ttl/8, 4*tick) }

// deadHolder opens a holder that dies after dead into its leader's office, a
// waiter that lives, and returns the rig at the holder's last sign of life.
func deadHolder(t testing.TB, ttl, dead time.Duration) *rig {
	r := newRig(t)
	r.elect(0, false)
	r.open(1, ttl)
	r.open(2, ttl)
	r.members = append(r.members, &member{id: 2, every: ttl / 3, lag: 5 * time.Millisecond})
	r.acquire(core.Acquire{Session: 1, Request: core.Request{N: 1}, Lock: "a"})
	r.acquire(core.Acquire{Session: 2, Request: core.Request{N: 1}, Lock: "a"})
	r.run(dead)
	r.keepalive(1)
	r.turn()
	return r
}

// granted runs leaders one after the other until the waiter holds the lock,
// and returns the counted time since the holder's last sign. Only commit
// latency is not counted in the bound, and is too small to matter here.
func granted(r *rig, ttl time.Duration, left time.Duration, next func(n int) flap) (counted time.Duration) {
	watch := func(d time.Duration) bool {
		for end := r.now + d; r.now < end; {
			r.run(min(10*time.Millisecond, end-r.now))
			if r.holder("a") == 2 {
				return true
			}
		}
		return false
	}
	died := r.now
	if watch(left) {
		return r.now - died
	}
	counted = left
	for n := 0; n < 2000; n++ {
		f := next(n)
		r.elect(f.gap, n%2 == 0)
		from := r.now
		if watch(f.office) {
			return counted + r.now - from
		}
		if f.counts(ttl, r.tick) {
			counted += f.office
		}
		if counted > 4*ttl {
			return counted
		}
	}
	r.t.Fatalf("not granted after 2000 leaders")
	return 0
}

// TestCasebookC14_DeadHoldersWaiterGrantedHoweverOftenLeadersChange: B7, for
// offices from one tick to 2T, and every phase in which the holder can die.
func TestCasebookC14_DeadHoldersWaiterGrantedHoweverOftenLeadersChange(t *testing.T) {
	worst, worstAt := 0.0, ""
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second, 15 * time.Second} {
		for i := 0; i <= 40; i++ {
			office := 100*time.Millisecond + time.Duration(i)*(2*ttl-100*time.Millisecond)/40
			office += 5 * time.Millisecond
			for _, left := range []time.Duration{0, office / 3, ttl/8 - 1, ttl/2 - 1, office} {
				r := deadHolder(t, ttl, 300*time.Millisecond)
				f := flap{office: office, gap: 50 * time.Millisecond}
				counted := granted(r, ttl, left, func(n int) flap {
					if !f.counts(ttl, r.tick) && n > 30 {
						return flap{office: 2 * ttl} // at last a leader that stays
					}
					return f
				})
				at := fmt.Sprintf("T %v, office %v, the first for %v more", ttl, office, left)
				if counted > 2*ttl+50*time.Millisecond {
					t.Errorf("%s: granted after %v of counted time, more than 2T", at, counted)
				}
				if x := float64(counted) / float64(ttl); x > worst {
					worst, worstAt = x, at
				}
			}
		}
	}
	t.Logf("worst: %.2f T (%s)", worst, worstAt)
}

// TestCasebookC14_TenChangesAndARestart is the case as it was reported: a
// change every T/2, ten times, and the whole cluster down once.
func TestCasebookC14_TenChangesAndARestart(t *testing.T) {
	const ttl = 4 * time.Second
	r := deadHolder(t, ttl, time.Second)
	counted := granted(r, ttl, ttl/2-time.Millisecond, func(n int) flap {
		if n == 2 {
			return flap{office: ttl / 2, gap: time.Minute}
		}
		return flap{office: ttl / 2, gap: 200 * time.Millisecond}
	})
	if counted > 2*ttl {
		t.Errorf("granted after %v with a leader, more than 2T", counted)
	}
}

// TestCasebookC15_LiveSessionsOutliveAnElection: without a leader for less and
// for more than T, no session that is renewed within T of leadership expires.
func TestCasebookC15_LiveSessionsOutliveAnElection(t *testing.T) {
	const ttl = 5 * time.Second
	for _, gap := range []time.Duration{4 * time.Second, 8 * time.Second, time.Hour} {
		for _, late := range []time.Duration{0, ttl / 4, ttl - 200*time.Millisecond} {
			r := newRig(t)
			r.elect(0, false)
			for id := core.SessionID(1); id <= 10; id++ {
				r.open(id, ttl)
				r.members = append(r.members, &member{id: id, every: ttl / 3, next: r.now, meet: late})
			}
			r.run(2 * ttl)
			r.elect(gap, true)
			r.run(4 * ttl)
			if n := r.proposed["Expire"]; n != 0 || r.st.SessionCount() != 10 {
				t.Errorf("gap %v, renewed %v after: %d expiries, %d sessions left", gap, late, n, r.st.SessionCount())
			}
			for _, c := range r.members {
				if c.deadline < r.now {
					t.Errorf("gap %v: session %d is not renewed again", gap, c.id)
				}
			}
		}
	}
}

// TestCasebookC16_WaiterOfEndedSessionIsNotGranted: a waiter's session ends
// during the wait; the one behind it is granted, in the same command.
func TestCasebookC16_WaiterOfEndedSessionIsNotGranted(t *testing.T) {
	const ttl = 2 * time.Second
	r := newRig(t)
	r.elect(0, false)
	for id := core.SessionID(1); id <= 3; id++ {
		r.open(id, ttl)
		r.acquire(core.Acquire{Session: id, Request: core.Request{N: 1}, Lock: "a"})
	}
	r.members = []*member{{id: 1, every: ttl / 3}, {id: 3, every: ttl / 3}} // 2 is frozen
	r.run(4 * ttl)
	h := r.keepalive(2)
	r.propose(nil, core.Release{Session: 1, Grant: 1})
	r.run(50 * time.Millisecond)
	if r.holder("a") != 3 {
		t.Errorf("lock is held by %d, want 3", r.holder("a"))
	}
	if r.answered[h] != Lost {
		t.Errorf("the frozen waiter is told %v, want lost", r.answered[h])
	}
}

// TestCasebookC39_DeadWaiterAtTheHead: B dies at the head of the queue; after
// A's release C waits at most T since B's death, and D does not overtake it.
func TestCasebookC39_DeadWaiterAtTheHead(t *testing.T) {
	const ttl = 2 * time.Second
	r := newRig(t)
	r.elect(0, false)
	for id := core.SessionID(1); id <= 4; id++ {
		r.open(id, ttl)
		r.acquire(core.Acquire{Session: id, Request: core.Request{N: 1}, Lock: "a"})
		r.members = append(r.members, &member{id: id, every: ttl / 3})
	}
	r.run(ttl)
	r.members[1].every = 0
	died := r.now
	r.run(100 * time.Millisecond)
	r.propose(nil, core.Release{Session: 1, Grant: 1})
	r.open(5, ttl) // B again, with a new session: at the tail
	r.members = append(r.members, &member{id: 5, every: ttl / 3})
	r.acquire(core.Acquire{Session: 5, Request: core.Request{N: 1}, Lock: "a"})
	for r.holder("a") == 2 || r.holder("a") == 1 {
		if r.now-died > ttl+10*time.Millisecond {
			t.Fatalf("still held by %d, %v after the waiter's death", r.holder("a"), r.now-died)
		}
		r.run(10 * time.Millisecond)
	}
	v, _ := r.st.Lock("a", 10)
	if r.holder("a") != 3 || len(v.Queue) != 2 || v.Queue[0].Session != 4 || v.Queue[1].Session != 5 {
		t.Errorf("holder %d, queue %v; want 3, then 4 and 5", r.holder("a"), v.Queue)
	}
}
