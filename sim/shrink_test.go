package sim

import (
	"slices"
	"testing"
	"time"
)

// A world that needs crashes, one of them the 7th fault, three clients and
// nothing else is shrunk to just that.
func TestShrinkLeavesWhatIsNeeded(t *testing.T) {
	s := Draw(1)
	s.Servers, s.Clients, s.Locks, s.Rates = 5, 20, 8, Rates{}
	for _, f := range []Fault{Drop, Partition, Crash, Restart} {
		s.Rates[f] = 100
	}
	other := false
	run := func(s Setup) Result {
		r := Result{Setup: s, Events: 20, Lines: s.Clients + s.Locks + s.Servers + int(s.Faulty/time.Second) + 1000 - 10*len(s.Skip)}
		for _, n := range s.Rates {
			r.Lines += n
		}
		switch {
		case s.Rates[Crash] > 0 && !s.Skip.Has(7) && s.Clients >= 3 && s.Faulty >= 10*time.Second:
			r.Violations = []Violation{{Property: LostUpdate, At: s.Faulty + time.Second}}
		case s.Rates[Crash] > 0:
			other = true
			r.Violations = []Violation{{Property: TooEarly, At: time.Second}}
		}
		return r
	}
	best := Shrink(run(s), run, func() bool { return false })
	got, want := best.Setup, Ordinals{}
	for n := 1; n <= 20; n++ {
		if n != 7 {
			want = append(want, n)
		}
	}
	if got.Clients != 3 || got.Locks != 1 || got.Servers != 1 || got.Faulty != 10*time.Second || got.Rates != (Rates{Crash: 100}) || !slices.Equal(got.Skip, want) {
		t.Errorf("shrunk to %v", got)
	}
	if got.Until != got.Faulty+time.Second || !best.violates(LostUpdate) || !other {
		t.Errorf("until %v, violations %v, met another violation %v", got.Until, best.Violations, other)
	}
	if again := Shrink(run(s), run, func() bool { return true }); again.Setup.Clients != 20 {
		t.Errorf("shrunk although it was to stop: %v", again.Setup)
	}
}

func TestOrdinals(t *testing.T) {
	for text, want := range map[string]string{"3": "3", "3,7-9": "3,7-9", "9,8,7,3,3": "3,7-9", "1-2,2-4": "1-4"} {
		if o, err := ParseOrdinals(text); err != nil || o.String() != want {
			t.Errorf("%q is %q, %v; want %q", text, o, err, want)
		}
	}
	for _, text := range []string{"", "0", "a", "3-", "-3", "4-3", "1-100001"} {
		if o, err := ParseOrdinals(text); err == nil {
			t.Errorf("%q is read as %v", text, o)
		}
	}
	if o := (Ordinals{3, 7, 8}); !o.Has(7) || o.Has(4) || (Ordinals(nil)).Has(1) {
		t.Error("Has is wrong")
	}
}
