package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/sim"
)

func init() { moreCommands = append(moreCommands, newSimCommand) }

// simSituationsFrom is from how many worlds on a run must have met each named
// situation.
const simSituationsFrom = 1000

// errViolated means that a property did not hold; the report was printed.
var errViolated = errors.New("a property was violated; the report and the command that replays it are above")

type simFlags struct {
	seed, from      uint64
	variant         uint64
	seeds           int
	minutes         float64
	one, fromGiven  bool
	transcript, bug string
	processes       int
	without         []sim.Fault
	skip            sim.Ordinals
	clients, locks  int
	servers         int
	faulty, until   time.Duration
}

func newSimCommand() *cobra.Command {
	var o simFlags
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run the lock service in invented worlds, each from one seed, and break it",
		Long: `sim runs the real state machine, deadline machine, replica and client of
Holdfast under virtual time, in worlds that it invents: servers with disks,
clients, locks, gates, an operator, and the faults that happen to them. Each
world comes from one 64-bit seed; the same seed is the same world, step by step.
Checkers outside the system compare what clients, gates and disks saw with what
Holdfast promises.

With --seed it runs one world and prints what it is made of, how often each
fault happens in it, and what became of it. Without, it runs many, one process a
core: --seeds N of them, for --minutes M, or until it is stopped (SIGINT or
SIGTERM), and prints a table at the end.

When a property is violated it prints the seed, the shortest transcript that it
finds in ` + simShrinkTime.String() + ` and the command that replays it. --without, --clients, --locks,
--servers, --faulty, --skip, --variant and --until make a world smaller than its seed says;
such commands have them.

It needs no server, opens no port and writes no file but that of --transcript.
What the checkers see, how to read a transcript, and what the simulator cannot
find is told in docs/sim.md.

` + simExitTable,
		Example: "  holdfast sim --seed 42\n  holdfast sim --seed 42 --transcript world.txt\n  holdfast sim --seeds 1000\n" +
			"  holdfast sim --seeds 200 --from 5000 --without flap,overload\n  holdfast sim --minutes 10",
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			flag := cmd.Flags().Changed
			o.one, o.fromGiven = flag("seed"), flag("from")
			if err := o.validate(flag); err != nil {
				return err
			}
			ctx, end, stop := untilAsked(cmd.Context())
			defer stop()
			out := listened{cmd.OutOrStdout(), end}
			if o.one {
				return runOneWorld(ctx, o, out)
			}
			return runWorlds(ctx, o, out, cmd.ErrOrStderr())
		},
	}
	o.register(cmd)
	return cmd
}

func (o *simFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	o.processes = runtime.NumCPU()
	f.Var(&seedValue{&o.seed}, "seed", "run the world of this seed alone")
	f.Var(&intValue{&o.seeds, 1, math.MaxInt32}, "seeds", "how many worlds to run")
	f.Var(&seedValue{&o.from}, "from", "the first seed of many (default 1 with --seeds, else drawn and printed)")
	f.Var(&minutesValue{&o.minutes}, "minutes", "for how many minutes to run worlds")
	f.Var(&intValue{&o.processes, 1, 1024}, "processes", "how many worlds to run at a time, each in a process (default: one a core)")
	f.StringVar(&o.transcript, "transcript", "", "with --seed: the `FILE` to which everything that happens is written; - is standard output")
	f.Var(&faultsValue{&o.without}, "without", "faults, by name, that do not happen: "+strings.Join(sim.FaultNames(), ", "))
	f.Var(&intValue{&o.clients, 1, 50}, "clients", "how many clients, instead of what the seed says")
	f.Var(&intValue{&o.locks, 1, 20}, "locks", "how many locks, instead of what the seed says")
	f.Var(&intValue{&o.servers, 1, 7}, "servers", "how many servers, instead of what the seed says")
	f.Var(&durationValue{d: &o.faulty, min: time.Millisecond, max: time.Hour}, "faulty", "how long faults happen, instead of what the seed says")
	f.Var(&durationValue{d: &o.until, min: time.Nanosecond, max: 2 * time.Hour}, "until", "with --seed: when the world stops, in its own time")
	f.Var(&skipValue{&o.skip}, "skip", "with --seed: faults, by their numbers in the transcript, that do not happen, such as 3,7-12")
	f.Var(&seedValue{&o.variant}, "variant", "with --seed: the same world with other chances")
	if plantFlag != nil {
		plantFlag(f, &o.bug)
	}
}

func (o simFlags) validate(given func(string) bool) error {
	if o.one {
		for _, flag := range []string{"seeds", "from", "minutes", "processes"} {
			if given(flag) {
				return usagef("--seed is one world, and --%s is for many: give one of them", flag)
			}
		}
		return nil
	}
	for _, flag := range []string{"transcript", "skip", "variant", "until"} {
		if given(flag) {
			return usagef("--%s is about one world: give its --seed", flag)
		}
	}
	if given("seeds") && given("minutes") {
		return usagef("--seeds and --minutes both say when to end: give one of them")
	}
	return nil
}

// setup is the setup of a seed, with what the flags change.
func (o simFlags) setup(seed uint64) sim.Setup {
	s := sim.Draw(seed)
	for _, f := range o.without {
		s.Rates[f] = 0
	}
	for _, n := range []struct {
		to   *int
		want int
	}{{&s.Clients, o.clients}, {&s.Locks, o.locks}, {&s.Servers, o.servers}} {
		if n.want > 0 {
			*n.to = n.want
		}
	}
	if o.faulty > 0 {
		s.Faulty = o.faulty
	}
	s.Skip, s.Variant, s.Until = o.skip, o.variant, o.until
	return s
}

// runOneWorld is holdfast sim --seed.
func runOneWorld(ctx context.Context, o simFlags, out io.Writer) (err error) {
	order := simOrder{Setup: o.setup(o.seed), Shrink: true, Bug: o.bug}
	file, done, err := transcriptFile(o.transcript, out)
	if err != nil {
		return err
	}
	order.Transcript = file != nil
	fmt.Fprintln(out, strings.ReplaceAll(order.Setup.String(), "; ", "\n  "))
	p, err := startSimProcess(file)
	if err != nil {
		return errors.Join(fmt.Errorf("sim: no process for the world: %w", err), done())
	}
	stop := context.AfterFunc(ctx, func() { p.in.Close() })
	r, err := p.run(order)
	stop()
	p.end()
	if why := context.Cause(ctx); why != nil {
		return errors.Join(why, done())
	}
	if failed := done(); failed != nil {
		return fmt.Errorf("sim: the transcript: %w", failed)
	}
	outcome := simOutcome{seed: o.seed, report: r, err: err}
	if err == nil {
		fmt.Fprintf(out, "%v of virtual time, %d events, %d faults; the transcript has %d lines and the hash %x\n",
			r.Result.Virtual, r.Result.Steps, faultsOf(r.Result), r.Result.Lines, r.Result.Hash[:8])
		if len(r.Result.Violations) == 0 {
			fmt.Fprintln(out, "nothing was violated")
			return nil
		}
	}
	outcome.print(out, order)
	return errViolated
}

func faultsOf(r sim.Result) int {
	var t sim.Tally
	t.Add(r)
	return t.Faults()
}

// transcriptFile is what the world writes to; nil if no transcript is wanted.
func transcriptFile(name string, out io.Writer) (file *os.File, done func() error, err error) {
	switch name {
	case "":
		return nil, func() error { return nil }, nil
	case "-":
		return copiedTo(out)
	}
	file, err = os.Create(name)
	if err != nil {
		return nil, nil, withCode(exitUsage, fmt.Errorf("--transcript: %w", err))
	}
	return file, file.Close, nil
}

// copiedTo is a pipe to a writer.
func copiedTo(out io.Writer) (*os.File, func() error, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("sim: %w", err)
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, from)
		copied <- errors.Join(err, from.Close())
	}()
	return to, func() error { return errors.Join(to.Close(), <-copied) }, nil
}

// seedValue is a seed.
type seedValue struct{ n *uint64 }

func (v *seedValue) String() string {
	if v.n == nil || *v.n == 0 {
		return ""
	}
	return strconv.FormatUint(*v.n, 10)
}

func (v *seedValue) Type() string { return "N" }

func (v *seedValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return errors.New("want a whole number from 0 to 2^64-1, decimal or with 0x")
	}
	*v.n = n
	return nil
}

// minutesValue is a number of minutes.
type minutesValue struct{ n *float64 }

func (v *minutesValue) String() string {
	if v.n == nil || *v.n == 0 {
		return "0"
	}
	return strconv.FormatFloat(*v.n, 'g', -1, 64)
}

func (v *minutesValue) Type() string { return "M" }

func (v *minutesValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n > 0 && n <= 1e6) {
		return errors.New("want a number of minutes above 0 and up to a million, such as 10 or 0.5")
	}
	*v.n = n
	return nil
}

// faultsValue is a list of faults.
type faultsValue struct{ list *[]sim.Fault }

func (v *faultsValue) String() string { return "" }
func (v *faultsValue) Type() string   { return "FAULT,…" }

func (v *faultsValue) Set(s string) error {
	for name := range strings.SplitSeq(s, ",") {
		f, ok := sim.FaultNamed(name)
		if !ok {
			return fmt.Errorf("%q is no fault: want some of %s", name, strings.Join(sim.FaultNames(), ", "))
		}
		*v.list = append(*v.list, f)
	}
	return nil
}

// skipValue is a list of ordinals of faults.
type skipValue struct{ list *sim.Ordinals }

func (v *skipValue) String() string { return "" }
func (v *skipValue) Type() string   { return "N,…" }

func (v *skipValue) Set(s string) error {
	o, err := sim.ParseOrdinals(s)
	if err == nil {
		*v.list = v.list.With(o...)
	}
	return err
}
