package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program: it measures, and prints the table.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	duration := flags.String("benchtime", "2s", "how long each benchmark runs, as go test -benchtime takes it")
	pattern := flags.String("bench", "^Benchmark(Uncontended|HandOff|Keepalives)$", "which benchmarks, as go test -bench takes it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: there are only flags; see -help", flags.Arg(0))
	}
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sync, err := measureSync(dir)
	if err != nil {
		return fmt.Errorf("measuring the disk: %w", err)
	}
	fmt.Fprintln(progress, "measuring; this takes about half a minute")
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", *pattern, "-benchtime", *duration, "holdfast/engine/cluster")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var result bytes.Buffer
	cmd.Stdout = &result
	cmd.Stderr = progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go test: %w\n%s", err, result.Bytes())
	}
	lines, err := parse(&result)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "one node, %s/%s, %d CPUs, data in %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), os.TempDir())
	fmt.Fprintf(out, "one write and sync of this disk: %v p50, %v p99\n\n", sync.p50, sync.p99)
	return table(out, lines)
}
