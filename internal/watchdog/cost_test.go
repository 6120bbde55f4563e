package watchdog

import (
	"fmt"
	"testing"
	"time"
)

// TestInputsCostTheSameWhateverIsUnsettled compares what an input costs beside
// 10 waits and grants with what it costs beside 10,000 of each. It looks for
// work that grows with their number, which would be a thousand times as dear;
// memory that is no longer in the cache is forgiven.
func TestInputsCostTheSameWhateverIsUnsettled(t *testing.T) {
	const most = 25
	small, big := crowd(t, 10), crowd(t, MaxLanes-1)
	for name, input := range map[string]func(*Machine, Moment, int){
		"acquire and release": func(m *Machine, now Moment, i int) {
			_, acts, err := m.Begin(now, false)
			if err != nil {
				t.Fatal(err)
			}
			id := fmt.Sprint("new", i)
			m.Settle(now, acts[len(acts)-1].Call, Reply{Verdict: Done, Grant: id})
			acts = m.Release(now, id, false)
			m.Settle(now, acts[len(acts)-1].Call, Reply{Verdict: Done})
		},
		"acquire and abandon": func(m *Machine, now Moment, _ int) {
			id, _, err := m.Begin(now, false)
			if err != nil {
				t.Fatal(err)
			}
			acts := m.Abandon(now, id)
			m.Settle(now, acts[len(acts)-1].Call, Reply{Verdict: Done})
		},
		"keepalive": func(m *Machine, now Moment, i int) {
			acts := m.Hurry(now)
			m.Settle(now, acts[len(acts)-1].Call, Reply{Verdict: Done, Contended: []string{"g1", "g2"}})
		},
		"tick and look": func(m *Machine, now Moment, _ int) {
			m.Tick(now)
			m.Wake()
			m.State(now.At, "g5")
		},
	} {
		a, b := cost(small, input), cost(big, input)
		t.Logf("%s: %v beside 10 waits and grants, %v beside 10,000", name, a, b)
		if b > most*a {
			t.Errorf("%s: %v beside 10 waits and grants, and %v beside 10,000", name, a, b)
		}
	}
}

// crowd returns a machine with n waits and n grants, of which g0 to g9 are
// contended.
func crowd(t *testing.T, n int) *Machine {
	t.Helper()
	m := New(Settings{}.WithDefaults(), 0)
	for i := range n {
		_, acts, err := m.Begin(Moment{}, false)
		if err != nil {
			t.Fatal(err)
		}
		m.Settle(Moment{}, acts[len(acts)-1].Call, Reply{Verdict: Done, Grant: fmt.Sprint("g", i)})
	}
	for range n {
		if _, _, err := m.Begin(Moment{}, false); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// cost is what one input costs at best: what disturbs only adds to it.
func cost(m *Machine, input func(*Machine, Moment, int)) time.Duration {
	best := time.Hour
	for batch := range 40 {
		const inputs = 50
		began := time.Now()
		for i := range inputs {
			input(m, Moment{}, batch*inputs+i)
		}
		best = min(best, time.Since(began)/inputs)
	}
	return max(best, 1)
}
