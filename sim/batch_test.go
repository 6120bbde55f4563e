//go:build !race

package sim

// How many worlds the tests run.
const (
	batchWorlds = 20
	batchSame   = 4    // three times
	batchSeeds  = 1000 // of testdata/seeds.txt, the newest
)
