//go:build planted

package sim

import "time"

// A bug is one that can be planted: a rule taken out, or a weaker version put
// in its place.
type bug struct {
	name string // the rule of docs/PROTOCOL.md or the invariant of DESIGN §3 (I…), and what is wrong
	what string // is weaker
	// within is the number of worlds in which a checker must have objected.
	within int
	// focus, if not nil, makes worlds in which the rule is needed more often.
	// It changes nothing but sizes and rates.
	focus func(*Setup)
	// quick bugs are planted in every run of the tests.
	quick bool
	// says is what focus does, for people.
	says string
}

// world is the setup of a seed with the bug's focus.
func (b bug) world(seed uint64) Setup {
	s := Draw(seed)
	if b.focus != nil {
		b.focus(&s)
	}
	return s
}

// ill makes worlds that have these faults for certain, often.
func ill(fs ...Fault) func(*Setup) {
	return func(s *Setup) {
		for _, f := range fs {
			if f.ofMessages() {
				s.Rates[f] = max(s.Rates[f], 20_000)
			} else {
				s.Rates[f] = max(s.Rates[f], 1800)
			}
		}
	}
}

// only is ill, without any other fault.
func only(fs ...Fault) func(*Setup) {
	return func(s *Setup) {
		s.Rates = Rates{}
		ill(fs...)(s)
	}
}

func several(s *Setup) {
	if s.Servers == 1 {
		s.Servers = 3
	}
}

func all(fs ...func(*Setup)) func(*Setup) {
	return func(s *Setup) {
		for _, f := range fs {
			f(s)
		}
	}
}

// inside makes clocks that differ by less than the margin allows for.
func inside(s *Setup) { s.Skew, s.Rates[Freeze] = min(s.Skew, 45_000), 0 }

// skewed makes clocks that differ by almost as much as the margin allows for.
func skewed(s *Setup) { s.Skew, s.Rates[Freeze] = 45_000, 0 }

// flaps makes leaders change often, with ticks short enough that offices count.
func flaps(s *Setup) {
	several(s)
	s.TTL, s.Tick = 3*time.Second, 20*time.Millisecond
	s.Margin = s.TTL / 10
	s.Rates = Rates{}
	ill(Flap, Restart, CutClient)(s)
	s.Rates[Flap] = 3600
}
