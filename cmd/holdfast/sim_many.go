package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"holdfast/sim"
)

// plantFlag adds the flag that plants a bug; it is set in builds that can.
var plantFlag func(f *pflag.FlagSet, bug *string)

const (
	simMostFailures = 10 // after which a run ends
	simMostShrunk   = 3  // failures that are shrunk
	simMostLines    = 300
)

// A simRun is a run of many worlds.
type simRun struct {
	flags    simFlags
	out      io.Writer
	progress simProgress
	tally    sim.Tally
	failed   []uint64
	started  time.Time
}

// runWorlds is holdfast sim without --seed.
func runWorlds(ctx context.Context, o simFlags, out, errs io.Writer) error {
	if !o.fromGiven {
		if o.from = 1; o.seeds == 0 {
			o.from = rand.Uint64N(math.MaxUint32) // short to type again
		}
	}
	r := simRun{flags: o, out: out, progress: simProgress{out: errs, terminal: isTerminalWriter(errs)}, started: time.Now()}
	fmt.Fprintf(out, "worlds from seed %d on, %d at a time\n", o.from, o.processes)
	err := r.run(ctx)
	r.progress.clear()
	r.tally.Write(out)
	fmt.Fprintf(out, "%s\n", r.summary())
	why := context.Cause(ctx)
	asked := why != nil && o.seeds == 0 && o.minutes == 0 && exitCode(why) != exitSignal+13
	switch {
	case r.failed != nil:
		return errViolated
	case err != nil:
		return err
	case why != nil && !asked:
		return why
	}
	return r.unmet()
}

// run runs worlds until there were enough.
func (r *simRun) run(ctx context.Context) (err error) {
	o := r.flags
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var end time.Time
	if o.minutes > 0 {
		end = r.started.Add(time.Duration(o.minutes * float64(time.Minute)))
	}
	given, shrunk, enough := 0, 0, make(chan struct{})
	fleet := simFleet{outcomes: make(chan simOutcome)}
	fleet.next = func() (simOrder, bool) {
		select {
		case <-enough:
			return simOrder{}, false
		default:
		}
		if given == o.seeds && o.seeds > 0 || !end.IsZero() && time.Now().After(end) {
			return simOrder{}, false
		}
		given++
		return simOrder{Setup: o.setup(o.from + uint64(given-1)), Bug: o.bug}, true
	}
	fleet.shrink = func() bool { shrunk++; return shrunk <= simMostShrunk }
	fleet.start(ctx, o.processes)
	tick := time.NewTicker(r.progress.every())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.progress.show(r.line())
		case done, ok := <-fleet.outcomes:
			if !ok {
				return err
			}
			if _, not := errors.AsType[*simStartError](done.err); not {
				err = fmt.Errorf("sim: no process for worlds: %w", done.err)
				stop()
				continue
			}
			r.take(done)
			if len(r.failed) == simMostFailures {
				close(enough)
			}
		}
	}
}

// take counts a world, and prints it if a property was violated.
func (r *simRun) take(done simOutcome) {
	if done.err == nil {
		r.tally.Add(done.report.Result)
	}
	if done.err == nil && len(done.report.Result.Violations) == 0 {
		return
	}
	r.failed = append(r.failed, done.seed)
	r.progress.clear()
	done.print(r.out, simOrder{Setup: r.flags.setup(done.seed), Bug: r.flags.bug})
}

// line says how far a run is.
func (r *simRun) line() string {
	t := &r.tally
	return fmt.Sprintf("%d worlds, %.0f a minute; %.1f virtual hours; %d faults; %d of %d situations; %d violated",
		t.Worlds, float64(t.Worlds)/time.Since(r.started).Minutes(), t.Virtual.Hours(), t.Faults(), len(t.Met), len(sim.Situations()), len(r.failed))
}

func (r *simRun) summary() string {
	text := r.line() + fmt.Sprintf("; %v", time.Since(r.started).Round(100*time.Millisecond))
	if r.failed != nil {
		text += "\nseeds in which a property was violated: " + strings.Trim(fmt.Sprint(r.failed), "[]")
	}
	return text
}

// unmet names the situations that a run should have met and has not.
func (r *simRun) unmet() error {
	var never []string
	for _, s := range sim.Situations() {
		if r.tally.Met[s] == 0 {
			never = append(never, string(s))
		}
	}
	if never == nil {
		return nil
	}
	fmt.Fprintf(r.out, "never met: %s\n", strings.Join(never, "; "))
	if r.tally.Worlds < simSituationsFrom {
		return nil
	}
	return withCode(exitUnmet, fmt.Errorf("%d worlds, and %d situations were never met: what the run says of them is nothing", r.tally.Worlds, len(never)))
}

// print tells of a world that failed.
func (d simOutcome) print(out io.Writer, order simOrder) {
	fmt.Fprintf(out, "\nFAILED: %s\n", strings.ReplaceAll(order.Setup.String(), "; ", "\n  "))
	if d.err != nil {
		fmt.Fprintf(out, "%v\nreplay it with:\n  %s\n", d.err, simLine(order.Setup, order.Bug))
		return
	}
	for _, v := range d.report.Result.Violations {
		fmt.Fprintf(out, "at %v: %s: %s\n", v.At, v.Property, v.Why)
	}
	short := d.report.Shrunk
	if short == nil {
		fmt.Fprintf(out, "not shrunk: %d failures before it were; replay and shrink it with:\n  %s\n", simMostShrunk, simLine(order.Setup, order.Bug))
		return
	}
	if !short.Same {
		fmt.Fprintln(out, "NOT THE SAME EACH TIME: the simulator itself is at fault, the same world went two ways")
	}
	if short.Tried == 0 { // a world that was shrunk before
		printTranscript(out, short.Transcript)
		return
	}
	fmt.Fprintf(out, "shrunk from %d lines of transcript to %d in %d worlds: %s\n", d.report.Result.Lines, short.Result.Lines, short.Tried, strings.ReplaceAll(short.Result.Setup.String(), "; ", "\n  "))
	printTranscript(out, short.Transcript)
	fmt.Fprintf(out, "replay it with:\n  %s\nand the whole world with:\n  %s\n", simLine(short.Result.Setup, order.Bug), simLine(order.Setup, order.Bug))
}

// simLine is the command line for a world.
func simLine(s sim.Setup, bug string) string {
	line := "holdfast sim " + strings.Join(s.Arguments(), " ")
	if bug != "" {
		line += " --plant " + bug
	}
	return line
}

// printTranscript prints a transcript, and of a long one its beginning and end.
func printTranscript(out io.Writer, text string) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if left := len(lines) - simMostLines; left > 0 {
		const first = simMostLines / 10
		gap := fmt.Sprintf("… %d lines, which --transcript FILE writes …", left)
		lines = append(append(lines[:first:first], gap), lines[len(lines)-simMostLines+first:]...)
	}
	for _, l := range lines {
		fmt.Fprintf(out, "  | %s\n", printable(l))
	}
}

// simProgress is the line that says how far a run is: on a terminal always the
// same one, elsewhere a new one from time to time.
type simProgress struct {
	out      io.Writer
	terminal bool
	shown    bool
}

func (p *simProgress) every() time.Duration {
	if p.terminal {
		return 500 * time.Millisecond
	}
	return 10 * time.Second
}

func (p *simProgress) show(line string) {
	if p.terminal {
		p.shown = true
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// clear makes room for what is printed for good.
func (p *simProgress) clear() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

func isTerminalWriter(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && isTerminal(int(file.Fd()))
}
