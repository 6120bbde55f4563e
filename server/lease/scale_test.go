package lease

import (
	"testing"
	"time"

	"holdfast/server/core"
)

// crowd is a leader with n sessions that were all heard once.
func crowd(t testing.TB, n int) *rig {
	r := newRig(t)
	for i := 1; i <= n; i++ {
		_, err := r.st.Apply(core.Entry{Index: uint64(i), Term: 1, Commands: []core.Command{core.Open{
			ID: core.SessionID(i), SecretHash: [32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, Instance: [16]byte{1}, TTL: 15 * time.Second,
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.term = 1
	r.elect(0, false)
	for i := 1; i <= n; i++ {
		r.keepalive(core.SessionID(i))
	}
	r.turn()
	r.run(10 * time.Millisecond)
	return r
}

// TestOneSuspicionListsMany: after a change of leader 30,000 sessions that
// were never heard take a few commands, and turns stay short.
func TestOneSuspicionListsMany(t *testing.T) {
	const n = 30_000
	r := crowd(t, n)
	r.lines = nil
	r.elect(0, false)
	r.proposed = map[string]int{}
	r.run(2 * time.Second)
	if got := r.proposed["Suspect"]; got != n/maxListed {
		t.Errorf("%d commands to suspect %d sessions, want %d", got, n, n/maxListed)
	}
	for i := 1; i <= n; i++ {
		r.keepalive(core.SessionID(i))
	}
	r.turn()
	r.run(10 * time.Millisecond)
	if got := r.proposed["Clear"]; got != n/maxListed {
		t.Errorf("%d commands to clear %d sessions, want %d", got, n, n/maxListed)
	}
	most := 0
	r.check = func() {
		for _, f := range r.flying {
			most = max(most, len(f.entry.Commands))
		}
	}
	r.run(15*time.Second + 100*time.Millisecond)
	if r.st.SessionCount() != 0 {
		t.Errorf("%d dead sessions left after T", r.st.SessionCount())
	}
	if most > maxProposed+1 {
		t.Errorf("a turn proposed %d commands, the limit is %d", most, maxProposed)
	}
}

// TestAQuietTurnScansNothing: a turn in which nothing is due costs the same
// with a thousand sessions and with a hundred thousand, and allocates nothing.
func TestAQuietTurnScansNothing(t *testing.T) {
	r := crowd(t, 100_000)
	now := r.now
	per := testing.AllocsPerRun(1000, func() {
		now += 10 * time.Microsecond
		r.m.Turn(now)
	})
	if per > 0 {
		t.Errorf("%v allocations in a turn with nothing to do", per)
	}
}

// BenchmarkTurn is a turn that takes 20 keepalives of 100,000 sessions, one
// confirmation for all, and answers them.
func BenchmarkTurn(b *testing.B) {
	r := crowd(b, 100_000)
	now, id := r.now, 0
	for b.Loop() {
		now += time.Millisecond
		for range 20 {
			id = id%100_000 + 1
			r.m.Keepalive(Handle(id), core.SessionID(id), now)
		}
		r.m.Turn(now)
		r.m.Confirmed(now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20, "ns/keepalive")
}
