package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"holdfast/server/core"
)

// A Setup is all that a world is made from. Equal setups give equal worlds,
// step by step, as long as crypto/rand.Reader is seeded alike (see [Run]).
type Setup struct {
	Seed    uint64
	Servers int // 1, 3, 5 or 7 voters at the start
	Clients int // 2–50
	Locks   int // 1–20
	// Faulty is how long faults happen, and Calm how long the world is left
	// alone after that.
	Faulty, Calm time.Duration
	// TTL and Margin are of every session; Tick is raft's.
	TTL, Margin, Tick time.Duration
	// Skew is by how much the rate of a clock may differ from true time, in
	// millionths. Two clocks differ by at most twice that.
	Skew int
	// Rates are the faults, each with how often it happens.
	Rates Rates
	// EntryCommands, EntryEnds and Pending are the server's bounds of one entry
	// and of what waits, small enough to be met.
	EntryCommands, EntryEnds, Pending int
	// Release is the cluster version that all servers know at the start.
	Release uint32
	// SnapshotEvery is after how many entries a server takes a snapshot.
	SnapshotEvery uint64
	// Skip are the faults, by their ordinals in the transcript, that do not
	// happen; Until, if not 0, is when the world stops; Variant, if not 0,
	// gives the same world other chances. They make a failure shorter (see
	// [Shrink]).
	Skip    Ordinals
	Until   time.Duration
	Variant uint64
}

// Outside reports that clocks may differ by more than the margin allows for:
// then two clients may believe at once that they hold, and gates must do (B10).
func (s Setup) Outside() bool {
	return 2*int64(s.Skew)*int64(s.TTL) >= int64(s.Margin)*1_000_000 || s.Rates[Freeze] > 0
}

// Draw makes the setup of a seed: how large the world is and how ill.
func Draw(seed uint64) Setup {
	r := stream(seed, "setup")
	s := Setup{
		Seed: seed, Servers: pick(r, 1, 3, 3, 3, 3, 5, 5, 7), Clients: 2 + r.IntN(10), Locks: 1 + r.IntN(4),
		Faulty: 40 * time.Second, Calm: 20 * time.Second,
		TTL: time.Duration(pick(r, 1, 1, 2, 3)) * time.Second, Tick: time.Duration(pick(r, 20, 50, 100)) * time.Millisecond,
		SnapshotEvery: uint64(pick(r, 20, 100, 1000)),
	}
	if r.IntN(4) == 0 {
		s.Clients, s.Locks = 2+r.IntN(49), 1+r.IntN(20)
	}
	s.Margin = s.TTL / 10
	// Inside: two clocks differ by less than margin ÷ TTL = 10 %.
	s.Skew = pick(r, 0, 100, 10_000, 45_000, 45_000, 250_000)
	s.Rates = drawRates(r)
	s.EntryCommands, s.EntryEnds, s.Pending = pick(r, 2, 8, 1024, 1024), pick(r, 2, 10_000), pick(r, 16, 65_536, 65_536)
	s.Release = core.SupportedVersion
	if r.IntN(3) == 0 {
		s.Release = 1
		s.Rates[Upgrade] = pick(r, 240, 900)
	}
	return s
}

// stream is a source of random numbers of its own for one purpose, so that one
// purpose that draws more does not change what another one gets.
func stream(seed uint64, purpose string) *rand.Rand {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for _, c := range []byte(purpose) {
		h = (h ^ uint64(c)) * prime
	}
	return rand.New(rand.NewPCG(seed, h))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// between draws a duration from a range.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// chance is true n times in a million.
func chance(r *rand.Rand, n int) bool { return n > 0 && r.IntN(1_000_000) < n }

// String shows the setup on one line, as a run prints it first.
func (s Setup) String() string {
	text := fmt.Sprintf("seed %d: %d servers, %d clients, %d locks, TTL %v, margin %v, tick %v, skew ±%d ppm, snapshot every %d, %d/%d/%d at most, release %d; %v",
		s.Seed, s.Servers, s.Clients, s.Locks, s.TTL, s.Margin, s.Tick, s.Skew, s.SnapshotEvery, s.EntryCommands, s.EntryEnds, s.Pending, s.Release, s.Rates)
	if len(s.Skip) > 0 {
		text += fmt.Sprintf("; without the faults %v", s.Skip)
	}
	if s.Variant > 0 {
		text += fmt.Sprintf("; variant %d", s.Variant)
	}
	if s.Until > 0 {
		text += fmt.Sprintf("; until %v", s.Until)
	}
	return text
}
