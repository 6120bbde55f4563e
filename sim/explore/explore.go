package explore

import (
	"fmt"
	"strings"
	"time"
)

// newestWorld is the instant at which every world starts: not 0, because a
// machine's instants are positive.
const newestWorld = time.Hour

func timeUnits(n int) time.Duration { return time.Duration(n) }

// A Report is what an exploration found.
type Report struct {
	// Violation is the property that was broken, or empty; Story is the
	// shortest way there, one event a line.
	Violation string
	Why       string
	Story     []string
	// States is how many different states were seen; Depth is how many
	// events deep all of them were tried.
	States, Depth int
	// Complete: there was nothing left to try, or Depth was reached; else
	// States ran out.
	Complete bool
}

// String is the report for a person.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states, depth %d", r.States, r.Depth)
	if !r.Complete {
		b.WriteString(" (not all of it)")
	}
	if r.Violation != "" {
		fmt.Fprintf(&b, "\n%s: %s, after", r.Violation, r.Why)
		for i, line := range r.Story {
			fmt.Fprintf(&b, "\n%3d  %s", i+1, line)
		}
	}
	return b.String()
}

// A step is how a state was reached first.
type step struct {
	from int // place in steps; -1 for the start
	name func() string
}

// Explore tries every order of events from the start, breadth first, and stops
// at the first violation, whose story is then a shortest one.
func Explore(cfg Config) Report {
	return exploreFrom(&cfg, newWorld(&cfg), nil)
}

// exploreFrom explores from w, which was reached by the story so far.
func exploreFrom(cfg *Config, w *world, story []string) Report {
	type reached struct {
		w    *world
		step int
	}
	steps := []step{}
	seen := map[[16]byte]struct{}{}
	var buf []byte
	h, buf := w.hash(buf)
	seen[h] = struct{}{}
	frontier := []reached{{w, -1}}
	r := Report{}
	tell := func(s int) []string {
		var back []string
		for ; s >= 0; s = steps[s].from {
			back = append(back, steps[s].name())
		}
		out := append([]string{}, story...)
		for i := len(back) - 1; i >= 0; i-- {
			out = append(out, back[i])
		}
		return out
	}
	for r.Depth = 0; len(frontier) > 0 && r.Depth < cfg.Depth; r.Depth++ {
		var next []reached
		for i, at := range frontier {
			frontier[i].w = nil
			for _, a := range at.w.actions() {
				to := at.w.clone()
				a.do(to)
				to.check()
				to.sweep()
				if to.broken == "" {
					if h, buf = to.hash(buf); has(seen, h) {
						continue
					}
					seen[h] = struct{}{}
				}
				steps = append(steps, step{at.step, a.name})
				if to.broken != "" {
					r.Violation, r.Why, r.Story = to.broken, to.why, tell(len(steps)-1)
					r.States, r.Complete = len(seen), true
					r.Depth++
					return r
				}
				if !to.spent() {
					next = append(next, reached{to, len(steps) - 1})
				}
			}
			if cfg.States > 0 && len(seen) >= cfg.States {
				r.States = len(seen)
				return r
			}
		}
		frontier = next
	}
	r.States, r.Complete = len(seen), true
	return r
}

func has(seen map[[16]byte]struct{}, h [16]byte) bool {
	_, ok := seen[h]
	return ok
}
