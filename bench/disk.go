package main

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// syncCost is what one small write and sync costs.
type syncCost struct{ p50, p99 time.Duration }

// measureSync writes and syncs a block as large as a small log record, some
// hundred times, into space that the file has already.
func measureSync(dir string) (syncCost, error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return syncCost{}, err
	}
	defer f.Close()
	const rounds, size = 300, 512
	if _, err := f.Write(make([]byte, rounds*size)); err != nil {
		return syncCost{}, err
	}
	if err := f.Sync(); err != nil {
		return syncCost{}, err
	}
	took := make([]time.Duration, rounds)
	block := make([]byte, size)
	for i := range took {
		began := time.Now()
		if _, err := f.WriteAt(block, int64(i*size)); err != nil {
			return syncCost{}, err
		}
		if err := f.Sync(); err != nil {
			return syncCost{}, err
		}
		took[i] = time.Since(began).Round(time.Microsecond)
	}
	slices.Sort(took)
	return syncCost{p50: took[rounds/2], p99: took[rounds*99/100]}, nil
}
