package explore

import (
	"fmt"
	"slices"
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

// A step is how a state was reached first: by which action of which state. It
// is small, because there is one for every state; the words of a story are
// found by going the way again.
type step struct {
	from   int32 // place in steps; -1 for the start
	action uint16
}

// Explore tries every order of events from the start, breadth first, and stops
// at the first violation, whose story is then a shortest one.
func Explore(cfg Config) Report {
	start := newWorld(&cfg)
	x := exploration{cfg: &cfg, start: start, seen: map[[16]byte]struct{}{}}
	x.isNew(start)
	return x.run()
}

// An exploration keeps a digest of each state that it saw, the way to it, and
// the worlds of one depth only.
type exploration struct {
	cfg   *Config
	start *world
	steps []step
	seen  map[[16]byte]struct{}
	buf   []byte
}

type reached struct {
	w    *world
	step int32
}

func (x *exploration) run() Report {
	frontier := []reached{{x.start, -1}}
	r := Report{}
	for r.Depth = 0; len(frontier) > 0 && r.Depth < x.cfg.Depth; r.Depth++ {
		var next []reached
		for i, at := range frontier {
			frontier[i].w = nil // it is not needed again
			for k, a := range at.w.actions() {
				to := at.w.after(a)
				if to.broken == "" && !x.isNew(to) {
					continue
				}
				x.steps = append(x.steps, step{at.step, uint16(k)})
				last := int32(len(x.steps) - 1)
				if to.broken != "" {
					r.Violation, r.Why, r.Story = to.broken, to.why, x.tell(last)
					r.States, r.Complete = len(x.seen), true
					r.Depth++
					return r
				}
				if !to.spent() {
					next = append(next, reached{to, last})
				}
			}
			if x.cfg.States > 0 && len(x.seen) >= x.cfg.States {
				r.States = len(x.seen)
				return r
			}
		}
		frontier = next
	}
	r.States, r.Complete = len(x.seen), true
	return r
}

// after is the world after an action of w.
func (w *world) after(a action) *world {
	to := w.clone()
	a.do(to)
	to.check()
	to.sweep()
	return to
}

// isNew notes w's state, and reports whether it was not seen before.
func (x *exploration) isNew(w *world) bool {
	var h [16]byte
	h, x.buf = w.hash(x.buf)
	if _, ok := x.seen[h]; ok {
		return false
	}
	x.seen[h] = struct{}{}
	return true
}

// tell goes the way to a step again, and says what happens.
func (x *exploration) tell(s int32) []string {
	var way []uint16
	for ; s >= 0; s = x.steps[s].from {
		way = append(way, x.steps[s].action)
	}
	slices.Reverse(way)
	w := x.start
	var story []string
	for _, k := range way {
		a := w.actions()[k]
		story = append(story, a.name())
		w = w.after(a)
	}
	return story
}
