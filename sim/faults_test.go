package sim

import (
	"testing"
	"testing/cryptotest"
	"time"
)

// alone is a small world in which one fault happens often, and no other.
func alone(f Fault) Setup {
	s := Draw(7)
	s.Servers, s.Clients, s.Locks = 3, 5, 2
	s.TTL, s.Margin, s.Tick, s.Skew = time.Second, 100*time.Millisecond, 50*time.Millisecond, 1000
	s.Faulty, s.Calm, s.SnapshotEvery = 12*time.Second, 12*time.Second, 50
	s.Rates = Rates{}
	s.Rates[f] = 3600
	if f.ofMessages() {
		s.Rates[f] = 20_000
	}
	if f == Restore || f == Copy {
		s.Rates[Backup] = 3600
	}
	s.Release = 2
	if f == Upgrade {
		s.Release = 1
	}
	return s
}

// Each fault happens, nothing is found under it alone, it is undone when faults
// end, and the same seed gives the same world.
func TestEachFaultHappensAndIsUndone(t *testing.T) {
	for f := range faults {
		t.Run(f.String(), func(t *testing.T) {
			s := alone(f)
			cryptotest.SetGlobalRandom(t, s.Seed)
			w := newWorld(s, nil)
			w.live()
			r := w.result()
			if r.Injected[f] == 0 {
				t.Errorf("it never happened: %v", r.Setup)
			}
			for _, v := range r.Violations {
				t.Errorf("at %v: %s: %s", v.At, v.Property, v.Why)
			}
			if r.Counts.Grants < 5 {
				t.Errorf("little went on: %+v", r.Counts)
			}
			undone(t, w)
			if again := runSeed(t, s, nil); again.Hash != r.Hash {
				t.Errorf("the same seed gave %x and then %x", r.Hash, again.Hash)
			}
		})
	}
}

// undone checks that nothing is left of any fault.
func undone(t *testing.T, w *world) {
	t.Helper()
	for at, l := range w.net.links {
		if l.cuts != 0 || l.slow != 0 {
			t.Errorf("the line from %s to %s has %d cuts, and is slow by %v", at.from.name, at.to.name, l.cuts, l.slow)
		}
	}
	for _, s := range w.servers {
		if !s.up || s.still != 0 || s.joining {
			t.Errorf("%s: up %v, stands still %d times, joining %v", s.name, s.up, s.still, s.joining)
		}
		if d := s.disk; d.full.level() != 0 || d.hung != 0 || d.slow != 0 {
			t.Errorf("the disk of %s: full %v, hung %d, slow by %v", s.name, d.full, d.hung, d.slow)
		}
	}
	for _, c := range w.clients {
		if !c.up || c.still != 0 {
			t.Errorf("%s: up %v, stands still %d times", c.name, c.up, c.still)
		}
	}
	for _, x := range w.stores {
		if x.held || len(x.waiting) > 0 {
			t.Errorf("%s: the door is held %v, and %d wait", x.name, x.held, len(x.waiting))
		}
	}
}

// All faults have names, each another.
func TestFaultsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for f := range faults {
		if f.String() == "" || seen[f.String()] {
			t.Errorf("fault %d is called %q", f, f)
		}
		seen[f.String()] = true
	}
}
