package lease

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"holdfast/server/core"
)

// TestCasebookC18_TTLLeftIsAlwaysWithinTTL polls through 20 changes of leader.
func TestCasebookC18_TTLLeftIsAlwaysWithinTTL(t *testing.T) {
	const ttl = time.Second
	r := newRig(t)
	r.elect(0, false)
	r.open(1, ttl)
	r.open(2, ttl)
	r.members = []*member{{id: 1, every: ttl / 3}}
	polls := 0
	poll := func(at Instant) {
		for _, id := range []core.SessionID{1, 2, 3} {
			left, ok := r.m.TTLLeft(at, r.st, id)
			if left < 0 || left > ttl || !ok && left != 0 {
				t.Fatalf("session %d has %v left, %t", id, left, ok)
			}
			if ok != r.st.HasSession(id) {
				t.Fatalf("session %d: an answer is given: %t", id, ok)
			}
			polls++
		}
	}
	for n := range 20 {
		r.elect(time.Duration(n)*100*time.Millisecond, n%2 == 0)
		for range 200 {
			r.run(time.Millisecond)
			poll(r.now)
		}
		poll(r.now + time.Hour) // a reader that comes long after the turn
		poll(r.now - time.Hour)
		old := r.m
		r.depose(true)
		if left, ok := old.TTLLeft(r.now, r.st, 1); ok || left != 0 {
			t.Fatalf("a deposed leader answers %v", left)
		}
	}
	if polls < 10_000 {
		t.Errorf("only %d polls", polls)
	}
}

// TestCasebookC38_EntriesHoldDurationsOnly plays one story on machines whose
// clocks started at different instants: the log is the same to the byte, so no
// instant of any machine is in it, and no step of a wall clock can matter
// (C37: nor can another machine's).
func TestCasebookC38_EntriesHoldDurationsOnly(t *testing.T) {
	story := func(origin Instant) []byte {
		r := newRig(t)
		r.now = origin
		var log bytes.Buffer
		r.elect(0, false)
		r.check = func() {
			for _, f := range r.flying {
				b, err := json.Marshal(f.entry)
				if err != nil {
					t.Fatal(err)
				}
				log.Write(b)
			}
		}
		for id := core.SessionID(1); id <= 20; id++ {
			r.open(id, time.Second)
			if id%2 == 0 {
				r.members = append(r.members, &member{id: id, every: 300 * time.Millisecond, next: r.now})
			}
		}
		r.acquire(core.Acquire{Session: 1, Request: core.Request{N: 1}, Lock: "a", LockDelay: time.Second})
		r.acquire(core.Acquire{Session: 2, Request: core.Request{N: 1}, Lock: "a", MaxHold: 2 * time.Second})
		r.run(700 * time.Millisecond)
		r.elect(time.Second, true)
		r.run(3 * time.Second)
		r.stall(3 * time.Second)
		r.run(3 * time.Second)
		if r.st.SessionCount() != 10 {
			t.Errorf("%d sessions left, want the 10 that live", r.st.SessionCount())
		}
		return log.Bytes()
	}
	first := story(time.Second)
	for _, origin := range []Instant{time.Hour, 24 * time.Hour, 20 * 365 * 24 * time.Hour} {
		if !bytes.Equal(first, story(origin)) {
			t.Errorf("a machine whose clock shows %v writes another log", origin)
		}
	}
}

// TestHealthySessionsOutliveStalls: B9, for stalls of all lengths, in rows.
func TestHealthySessionsOutliveStalls(t *testing.T) {
	const ttl = time.Second
	for _, span := range []time.Duration{150 * time.Millisecond, 250 * time.Millisecond, ttl, 10 * ttl, time.Hour} {
		r := newRig(t)
		r.drain = 20 * time.Millisecond
		r.elect(0, false)
		for id := core.SessionID(1); id <= 100; id++ {
			r.open(id, ttl)
			r.members = append(r.members, &member{id: id, every: ttl / 3, next: r.now})
		}
		for n := range 20 {
			r.stall(span)
			r.run(time.Duration(n*37) * time.Millisecond)
		}
		if r.st.SessionCount() != 100 {
			t.Errorf("stalls of %v: %d of 100 sessions left", span, r.st.SessionCount())
		}
		if span > 5*time.Second && r.transfers == 0 {
			t.Errorf("stalls of %v: no transfer", span)
		}
		if span < 200*time.Millisecond && r.transfers != 0 {
			t.Errorf("stalls of %v: %d transfers", span, r.transfers)
		}
		r.members = nil // now all die
		r.run(2 * ttl)
		if n := r.st.SessionCount(); n != 0 {
			t.Errorf("stalls of %v: %d dead sessions left", span, n)
		}
	}
}

// TestArrivalsDuringAStallCount: a keepalive that was stamped in the middle of
// a stall of the loop counts from the clock at which the stall began.
func TestArrivalsDuringAStallCount(t *testing.T) {
	const ttl = time.Second
	r := newRig(t)
	r.elect(0, false)
	r.open(1, ttl)
	at := r.m.Clock(r.now)
	arrived := r.now + 10*time.Second
	r.now += time.Minute
	r.m.Keepalive(1, 1, arrived)
	r.turn()
	if ago, ok := r.m.Heard(r.now, 1); !ok || ago != 50*time.Second {
		t.Errorf("heard %v ago, %t", ago, ok)
	}
	if c := r.m.sessions[1].heardClock; c < at || c > at+core.Clock(250*time.Millisecond) {
		t.Errorf("heard at clock %v, before the stall it was %v", c, at)
	}
	r.run(ttl / 3)
	if r.proposed["Suspect"] != 0 {
		t.Error("suspected by the time that was lost in the stall")
	}
}

// TestClockNeverOutrunsTime: whatever is asked when, the clock does not run
// faster than the machine's own, and never falls.
func TestClockNeverOutrunsTime(t *testing.T) {
	r := newRig(t)
	r.elect(0, false)
	start, last := r.now, core.Clock(0)
	for n := range 2000 {
		step := time.Duration(n*n%997) * time.Millisecond
		if n%3 != 0 {
			step %= 50 * time.Millisecond
		}
		r.now += step
		c := r.m.Clock(r.now)
		if n%2 == 0 {
			r.m.Turn(r.now)
		}
		if c < last || time.Duration(c) > r.now-start {
			t.Fatalf("step %d: clock %v after %v, %v real", n, c, last, r.now-start)
		}
		if d := r.m.Clock(r.now); d < c {
			t.Fatalf("step %d: the clock fell from %v to %v", n, c, d)
		}
		last = c
	}
}
