package lease

import (
	"testing"
	"time"
)

// round goes through all sessions once, and says how many steps that took.
func (r *rig) round(w *Watch) (found Overdue, steps int) {
	for {
		steps++
		if found, done := w.Step(r.now, r.m, r.st); done {
			return found, steps
		}
	}
}

// TestWatchFindsWhatDoesNotEnd: sessions whose end never comes are found once
// they are T past their deadline, whether their suspicion or their expiry got
// lost, and whoever leads; those that are heard are not, and none is while all
// works.
func TestWatchFindsWhatDoesNotEnd(t *testing.T) {
	const n, ttl = 2500, 15 * time.Second
	for _, c := range []struct {
		name string
		lost string // which command never gets into the log
	}{
		{"all is well", ""},
		{"suspicions are lost", "Suspect"},
		{"expiries are lost", "Expire"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := crowd(t, n)
			r.lose = c.lost
			r.members = append(r.members, &member{id: 7, every: ttl / 6, next: r.now})
			var w Watch
			for range 11 { // nearly 2 T
				r.run(ttl / 6)
				if found, _ := r.round(&w); found.Sessions != 0 {
					t.Fatalf("%v past the start: %+v", r.now-time.Hour, found)
				}
			}
			r.run(ttl/6 + time.Second)
			found, steps := r.round(&w)
			want := n - 1
			if c.lost == "" {
				want = 0
			} else if steps != 3 {
				t.Errorf("%d steps for %d sessions, want 3", steps, n)
			}
			if found.Sessions != want || want > 0 && (found.Past < ttl || found.Past > 2*ttl || found.Worst == 0 || found.Worst == 7) {
				t.Errorf("found %+v, want %d sessions", found, want)
			}
			if c.lost != "Expire" {
				return
			}
			r.lose = ""
			r.elect(0, true) // it proposes again what got lost
			r.run(ttl)
			if found, _ := r.round(&w); found.Sessions != 0 || r.st.SessionCount() != 1 {
				t.Errorf("after it works again: %+v, and %d sessions", found, r.st.SessionCount())
			}
		})
	}
}

// TestWatchLeavesNobodyOut: the steps of one round see each session once,
// wherever a step ends.
func TestWatchLeavesNobodyOut(t *testing.T) {
	for _, n := range []int{1, watchLeast - 1, watchLeast, watchLeast + 1, 2 * watchLeast} {
		r := crowd(t, n)
		r.lose = "Suspect"
		r.run(31 * time.Second)
		var w Watch
		for range 2 {
			if found, _ := r.round(&w); found.Sessions != n {
				t.Errorf("%d of %d sessions found", found.Sessions, n)
			}
		}
		r.depose(false)
		if found, done := w.Step(r.now, New(Config{}), r.st); !done || found != (Overdue{}) {
			t.Errorf("who does not lead finds %+v, %v", found, done)
		}
	}
}
