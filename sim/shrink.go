package sim

import "time"

// Shrink looks for a world that violates the same property with a shorter
// transcript: fewer kinds of faults, fewer clients, locks and servers, less
// time, other chances, fewer single faults. found is what became of the world of that setup;
// run lets a world happen, and seeds raft's randomness before. It ends when
// nothing more can be left out, or when stop says so.
//
// A world with something left out is another world from then on, so what is
// found need not have the same cause: it breaks the same property.
func Shrink(found Result, run func(Setup) Result, stop func() bool) Result {
	if len(found.Violations) == 0 {
		return found
	}
	k := shrinker{best: found, run: run, stop: stop}
	k.cut()
	for k.again = true; k.again && !stop(); {
		k.again = false
		k.kinds()
		k.sizes()
		k.shorter()
	}
	k.variants()
	k.kinds() // before single faults: these are numbered over all kinds
	k.events()
	k.sizes()
	return k.best
}

type shrinker struct {
	best  Result
	run   func(Setup) Result
	stop  func() bool
	again bool // something was left out since the round began
}

// violates reports whether a world violates the property.
func (r Result) violates(p Property) bool {
	return len(r.Violations) > 0 && r.Violations[0].Property == p
}

// try keeps a world if it violates the same property and is no longer than the
// best one.
func (k *shrinker) try(s Setup) bool {
	if k.stop() {
		return false
	}
	r := k.run(s)
	if !r.violates(k.best.Violations[0].Property) || r.Lines > k.best.Lines {
		return false
	}
	k.best, k.again = r, true
	k.cut()
	return true
}

// cut ends the best world where its violation is: what comes later does not
// matter, and attempts end sooner.
func (k *shrinker) cut() { k.best.Setup.Until = k.best.Violations[0].At }

// kinds leaves out whole kinds of faults.
func (k *shrinker) kinds() {
	for f := range faults {
		if s := k.best.Setup; s.Rates[f] > 0 {
			s.Rates[f] = 0
			k.try(s)
		}
	}
}

// sizes makes the world smaller.
func (k *shrinker) sizes() {
	for _, part := range []struct {
		of   func(*Setup) *int
		want []int
	}{
		{func(s *Setup) *int { return &s.Clients }, []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}},
		{func(s *Setup) *int { return &s.Locks }, []int{1, 2, 3, 5, 8, 12}},
		{func(s *Setup) *int { return &s.Servers }, []int{1, 3, 5}},
	} {
		for _, n := range part.want {
			s := k.best.Setup
			if *part.of(&s) <= n {
				break
			}
			*part.of(&s) = n
			if k.try(s) {
				break
			}
		}
	}
}

// shorter ends the faults earlier, and with them the world.
func (k *shrinker) shorter() {
	for _, eighths := range []time.Duration{1, 2, 4, 6} {
		s := k.best.Setup
		if s.Faulty = (s.Faulty * eighths / 8).Round(time.Millisecond); s.Faulty == 0 || s.Faulty >= s.Until {
			continue // then it ends before the faults do
		}
		s.Until = 0
		if k.try(s) {
			return
		}
	}
}

// Variants are tried until the transcript is short enough to be read, or so
// many did not help.
const (
	shortEnough = 40 // lines
	mostVain    = 150
)

// variants looks whether the property is violated sooner by other chances, in
// a world of the same size or a smaller one.
func (k *shrinker) variants() {
	vain := 0
	for v := uint64(1); vain < mostVain && k.best.Lines > shortEnough && !k.stop(); v++ {
		s := k.best.Setup
		s.Variant, s.Skip = v, nil
		switch v % 4 {
		case 1:
			s.Clients, s.Locks, s.Servers = min(s.Clients, 2), 1, min(s.Servers, 3)
		case 2:
			s.Clients, s.Locks, s.Servers = min(s.Clients, 4), min(s.Locks, 2), min(s.Servers, 3)
		case 3:
			s.Clients, s.Locks = (s.Clients+1)/2, (s.Locks+1)/2
		}
		was := k.best.Lines
		if vain++; k.try(s) && k.best.Lines < was {
			vain = 0
		}
	}
}

// events leaves out single faults: first halves of all, then smaller and
// smaller groups.
func (k *shrinker) events() {
	for size := k.best.Events; size > 0 && !k.stop(); size /= 2 {
		for from := 1; from <= k.best.Events; from += size {
			var group []int
			for n := from; n < from+size && n <= k.best.Events; n++ {
				if !k.best.Setup.Skip.Has(n) {
					group = append(group, n)
				}
			}
			if len(group) > 0 {
				s := k.best.Setup
				s.Skip = s.Skip.With(group...)
				k.try(s)
			}
		}
	}
}
