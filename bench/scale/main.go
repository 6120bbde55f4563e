package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// settings are what the flags say.
type settings struct {
	binary   string
	sessions int
	locks    int // of all sessions together
	lines    int
	ttl      time.Duration
	pprof    bool
	keep     bool
}

func parseFlags(args []string, progress io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&s.binary, "holdfast", "", "the `binary` to run; none: it is built")
	flags.IntVar(&s.sessions, "sessions", 100_000, "how many sessions")
	flags.IntVar(&s.locks, "locks", 1_000_000, "how many locks they hold together")
	flags.IntVar(&s.lines, "lines", 8, "how many client processes, each one connection, the sessions belong to")
	flags.DurationVar(&s.ttl, "ttl", 10*time.Minute, "TTL of the sessions")
	flags.BoolVar(&s.pprof, "pprof", false, "let the nodes serve profiles, and print their addresses")
	flags.BoolVar(&s.keep, "keep", false, "keep the nodes' directories, and print where they are")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags; see -help", flags.Arg(0))
	case s.lines < 1 || s.sessions < s.lines || s.locks < s.sessions:
		return s, fmt.Errorf("-lines %d, -sessions %d, -locks %d: want at least one session a line, and one lock a session", s.lines, s.sessions, s.locks)
	case s.ttl < 10*time.Second:
		return s, fmt.Errorf("-ttl %v: want 10s or more", s.ttl)
	}
	return s, nil
}

// run is the program: it measures, and prints each figure as soon as it has it.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	s, err := parseFlags(args, progress)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "holdfast-scale-")
	if err != nil {
		return err
	}
	if s.keep {
		fmt.Fprintln(progress, "directories below", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	if s.binary == "" {
		s.binary = filepath.Join(dir, "holdfast")
		if text, err := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "holdfast/cmd/holdfast").CombinedOutput(); err != nil {
			return fmt.Errorf("building: %w\n%s", err, text)
		}
	}
	f, err := newFleet(s, dir)
	if err != nil {
		return err
	}
	defer f.killAll()
	t := &trial{settings: s, fleet: f, figures: figures{out: out, progress: progress, began: time.Now()}, dir: dir}
	defer t.close()
	return t.run(ctx)
}
