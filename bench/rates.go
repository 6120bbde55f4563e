package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// rates runs the benchmarks of engine/cluster, and prints their table.
func (s settings) rates(ctx context.Context) error {
	fmt.Fprintln(s.progress, "measuring rates; this takes about half a minute")
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", s.bench, "-benchtime", s.benchtime, "holdfast/engine/cluster")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir)
	var result bytes.Buffer
	cmd.Stdout = &result
	cmd.Stderr = s.progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go test: %w\n%s", err, result.Bytes())
	}
	lines, err := parse(&result)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "one node, a server in a process of its own\n\n")
	if err := table(s.out, lines); err != nil {
		return err
	}
	fmt.Fprintln(s.out)
	return nil
}
