package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// machine tells on what all this runs: processors, how busy they are with
// other things, and what one small write and sync costs.
func (t *trial) machine(context.Context) error {
	load, _ := os.ReadFile("/proc/loadavg")
	busy, _, _ := strings.Cut(string(load), " ")
	f, err := os.Create(filepath.Join(t.dir, "sync"))
	if err != nil {
		return err
	}
	defer f.Close()
	block, took := make([]byte, 512), make([]time.Duration, 200)
	if _, err := f.Write(make([]byte, len(block)*len(took))); err != nil {
		return err
	}
	for i := range took {
		began := time.Now()
		if _, err := f.WriteAt(block, int64(i*len(block))); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("syncing: %w", err)
		}
		took[i] = time.Since(began).Round(10 * time.Microsecond)
	}
	slices.Sort(took)
	t.tell("machine", "%s/%s, %d CPUs, load %s before the start; one write and sync %v p50, %v p99",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), busy, took[len(took)/2], took[len(took)*99/100])
	return nil
}
