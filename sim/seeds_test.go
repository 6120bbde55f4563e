package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// failedSeeds reads testdata/seeds.txt: a seed, a tab, what it showed.
func failedSeeds(t *testing.T) (seeds []uint64) {
	t.Helper()
	text, err := os.ReadFile("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		number, why, ok := strings.Cut(line, "\t")
		seed, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil || why == "" {
			t.Fatalf("testdata/seeds.txt, line %d: %q: want a seed, a tab, and what it showed", i+1, line)
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

// Worlds that failed once do not fail again.
func TestSeedsThatFailed(t *testing.T) {
	seeds := failedSeeds(t)
	for _, seed := range seeds[max(0, len(seeds)-batchSeeds):] {
		for _, v := range runSeed(t, Draw(seed), nil).Violations {
			t.Errorf("seed %d at %v: %s: %s", seed, v.At, v.Property, v.Why)
		}
	}
}
