package sim

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"
)

// A world is everything that happens, in one thread. Time is a queue of events;
// nothing happens between two of them.
type world struct {
	Setup                // its Seed is of all chances: that of the variant
	asked  Setup         // as it was given
	now    time.Duration // true time
	events queue
	seq    uint64

	rng     *rand.Rand // of faults
	net     network
	servers []*server
	clients []*client
	locks   []*lockPlan
	stores  []*resource
	op      *operator
	founded []*server // the members at the start
	lastID  uint64    // of a server's data
	// incarnation is the service's present one: it changes when it begins anew.
	incarnation uint64
	clones      int
	// How long the next writers stand still in their guarded step, and the
	// next writes at the resource.
	stepStops, stepHolds []time.Duration
	calm                 bool // faults are over
	undo                 []func()
	ordinal              int // of the latest fault that happened by itself, not to a message

	judge *judge

	sum     hash.Hash
	line    bytes.Buffer
	out     io.Writer // the transcript; nil: only its hash
	counts  [faults]int
	steps   uint64
	lines   int
	stopped bool // a checker objected: nothing more happens
}

// Result is what became of a world.
type Result struct {
	Setup Setup
	// Hash is of the whole transcript.
	Hash [32]byte
	// Violations are what the checkers objected to; only the first is
	// certain to be no consequence of another.
	Violations []Violation
	// Injected counts the faults that happened.
	Injected [faults]int
	// Events is the ordinal of the last fault that happened by itself.
	Events int
	// Virtual is how much time passed, Steps how many events, and Lines how
	// long the transcript is.
	Virtual time.Duration
	Steps   uint64
	Lines   int
	// Met are the named situations that occurred, with how often.
	Met map[Situation]int
	// Counts are the grants, writes and so on.
	Counts Counts
}

// Run lets one world happen. It is single-threaded and deterministic if
// crypto/rand.Reader is: raft draws its election jitter there. The caller
// seeds it for each world (testing/cryptotest in tests), and runs one world
// at a time in its process. The transcript goes to out, if not nil.
func Run(s Setup, out io.Writer) Result {
	w := newWorld(s, out)
	w.live()
	return w.result()
}

// Try is [Run], in which a panic is a violation.
func Try(s Setup, out io.Writer) Result {
	w := newWorld(s, out)
	func() {
		defer func() {
			if p := recover(); p != nil {
				w.judge.object(Panicked, "%v%s", p, frames())
			}
		}()
		w.live()
	}()
	return w.result()
}

// frames are the places of this module on the stack, without what differs from
// run to run.
func frames() string {
	var text strings.Builder
	pcs := make([]uintptr, 64)
	all := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = all.Next()
		if strings.HasPrefix(f.Function, "holdfast/") {
			fmt.Fprintf(&text, "; %s line %d", f.Function, f.Line)
		}
	}
	return text.String()
}

func newWorld(s Setup, out io.Writer) *world {
	w := &world{Setup: s, asked: s, sum: sha256.New(), out: out}
	w.Seed += s.Variant * 0x9e3779b97f4a7c15 // far from all seeds that people try
	w.rng = stream(w.Seed, "faults")
	w.judge = newJudge(w)
	return w
}

// live lets everything happen.
func (w *world) live() {
	w.build()
	w.say("%v", w.asked)
	w.judge.watchOffice()
	w.planFaults()
	end := w.Faulty + w.Calm
	if w.Until > 0 {
		end = min(end, w.Until)
	}
	w.run(min(end, w.Faulty))
	if end > w.Faulty && !w.stopped {
		w.heal()
		w.run(end)
	}
	if end == w.Faulty+w.Calm {
		w.judge.end()
	}
}

func (w *world) result() Result {
	r := Result{
		Setup: w.asked, Violations: w.judge.violations, Injected: w.counts, Events: w.ordinal, Virtual: w.now, Steps: w.steps, Lines: w.lines,
		Met: w.judge.met, Counts: w.judge.counts,
	}
	w.sum.Sum(r.Hash[:0])
	return r
}

// mostSteps is how many events a world has at most: one that has more turns
// in circles.
const mostSteps = 5_000_000

// run lets everything happen until an instant.
func (w *world) run(until time.Duration) {
	for !w.stopped {
		e, ok := w.events.next(until)
		if !ok {
			break
		}
		w.now = e.at
		w.steps++
		if w.steps > mostSteps {
			w.judge.object(NoRest, "%d events happened by %v", w.steps, w.now)
			return
		}
		e.do()
	}
	if !w.stopped {
		w.now = until
	}
}

// at lets something happen at an instant of true time.
func (w *world) at(t time.Duration, do func()) {
	w.seq++
	w.events.add(event{max(t, w.now), w.seq, do})
}

// after lets something happen after a while of true time.
func (w *world) after(d time.Duration, do func()) { w.at(w.now+d, do) }

// say adds a line to the transcript.
func (w *world) say(format string, args ...any) {
	w.lines++
	w.line.Reset()
	fmt.Fprintf(&w.line, "%12d ", w.now.Microseconds())
	fmt.Fprintf(&w.line, format, args...)
	w.line.WriteByte('\n')
	w.sum.Write(w.line.Bytes())
	if w.out != nil {
		w.out.Write(w.line.Bytes())
	}
}

// inject counts a fault and notes it.
func (w *world) inject(f Fault, format string, args ...any) {
	w.counts[f]++
	w.say(fmt.Sprintf("fault %d, ", w.ordinal)+f.String()+": "+format, args...)
}

// An event is something that will happen.
type event struct {
	at  time.Duration
	seq uint64 // of two events at one instant the one that was planned first is first
	do  func()
}

// A queue holds events, the next one first: a binary heap.
type queue []event

func (q queue) less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}

func (q *queue) add(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// next takes the next event, unless it is later than until.
func (q *queue) next(until time.Duration) (e event, ok bool) {
	h := *q
	if len(h) == 0 || h[0].at > until {
		return e, false
	}
	e = h[0]
	last := len(h) - 1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h.less(c, least) {
				least = c
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	*q = h
	return e, true
}
