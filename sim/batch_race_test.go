//go:build race

package sim

// How many worlds the tests run: there is no goroutine in a world for the race
// detector to watch, and it makes them ten times slower.
const (
	batchWorlds = 4
	batchSame   = 2 // three times
	batchSeeds  = 3 // of testdata/seeds.txt, the newest
)
