package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"holdfast/bench/gap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are what the flags say.
type settings struct {
	only             string
	benchtime, bench string
	holdfast         string
	etcd, etcdClient string
	kills, stops     int
	workers          int
	attempt          time.Duration
	dir              string // for all data; removed at the end
	out, progress    io.Writer
}

// run is the program: it measures, and prints the tables.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	s := settings{out: out, progress: progress}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&s.only, "only", "", "one part only: rates or gap")
	flags.StringVar(&s.benchtime, "benchtime", "2s", "rates: how long each benchmark runs, as go test -benchtime takes it")
	flags.StringVar(&s.bench, "bench", "^Benchmark(Uncontended|HandOff|Keepalives)$", "rates: which benchmarks, as go test -bench takes it")
	flags.StringVar(&s.holdfast, "holdfast", "bin/holdfast", "gap: the program of Holdfast")
	flags.StringVar(&s.etcd, "etcd", "bin/etcd", "gap: the program of etcd; empty to leave it out")
	flags.StringVar(&s.etcdClient, "etcdlock", "bin/etcdlock", "gap: the program that takes locks in etcd")
	flags.IntVar(&s.kills, "kills", 20, "gap: how many times the leader is killed")
	flags.IntVar(&s.stops, "stops", 5, "gap: how many times the leader is then stopped in order")
	flags.IntVar(&s.workers, "workers", 16, "gap: how many locks are taken at the same time")
	flags.DurationVar(&s.attempt, "attempt", 10*time.Second, "gap: how long one try to take a lock may last")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("argument %q: there are only flags; see -help", flags.Arg(0))
	case s.only != "" && s.only != "rates" && s.only != "gap":
		return fmt.Errorf("-only %q: want rates or gap", s.only)
	case s.kills < 1 || s.stops < 0 || s.workers < 1 || s.attempt <= 0:
		return fmt.Errorf("-kills %d -stops %d -workers %d -attempt %v: want 1, 0, 1 and 1ms or more", s.kills, s.stops, s.workers, s.attempt)
	}
	return s.all(ctx)
}

// all measures what was asked for.
func (s settings) all(ctx context.Context) error {
	var err error
	if s.dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	sync, err := measureSync(s.dir)
	if err != nil {
		return fmt.Errorf("measuring the disk: %w", err)
	}
	fmt.Fprintf(s.out, "%s/%s, %d CPUs, data in %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), os.TempDir())
	fmt.Fprintf(s.out, "one write and sync of this disk: %v p50, %v p99\n\n", sync.p50, sync.p99)
	if s.only != "gap" {
		if err := s.rates(ctx); err != nil {
			return err
		}
	}
	if s.only != "rates" {
		return s.gap(ctx)
	}
	return nil
}

// gap prints the longest gaps without a successful acquire.
func (s settings) gap(ctx context.Context) error {
	services := []gap.Service{gap.Holdfast{Binary: s.holdfast}}
	if s.etcd != "" {
		services = append(services, gap.Etcd{Binary: s.etcd, Client: s.etcdClient})
	}
	const round = 6 * time.Second // of Holdfast less, of etcd more
	fmt.Fprintf(s.progress, "killing leaders; this takes about %v\n", (round * time.Duration(len(services)*(s.kills+s.stops))).Round(time.Second))
	var results []gap.Result
	for _, service := range services {
		r, err := gap.Measure(ctx, service, gap.Options{
			Kills: s.kills, Stops: s.stops, Workers: s.workers, Attempt: s.attempt, Dir: s.dir, Progress: s.progress,
		})
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Fprintf(s.out, "three nodes, the longest gap without a successful acquire, %d workers, each with a lock of its own;\n", s.workers)
	fmt.Fprintf(s.out, "elections with the services' defaults, which are the same: heartbeat 100ms, time-out 1–2s;\n")
	fmt.Fprintf(s.out, "from the end of the old leader: until a node said that it leads, and until every worker was served again\n\n")
	return gap.WriteTable(s.out, results)
}
