package sim

import (
	"bytes"
	"io"
	"testing"
	"testing/cryptotest"
)

// runSeed runs one world, as every test does.
func runSeed(t *testing.T, s Setup, out io.Writer) Result {
	t.Helper()
	cryptotest.SetGlobalRandom(t, s.Seed)
	return Run(s, out)
}

// The same seed is the same world: with and without a transcript, and after
// other worlds.
func TestSameSeedSameWorld(t *testing.T) {
	for seed := range uint64(batchSame) {
		var first, second bytes.Buffer
		a := runSeed(t, Draw(seed), &first)
		b := runSeed(t, Draw(seed), &second)
		c := runSeed(t, Draw(seed), nil)
		if a.Hash != b.Hash || a.Hash != c.Hash {
			p, q := bytes.Split(first.Bytes(), []byte("\n")), bytes.Split(second.Bytes(), []byte("\n"))
			for i := range min(len(p), len(q)) {
				if !bytes.Equal(p[i], q[i]) {
					t.Fatalf("seed %d, line %d: %q and %q", seed, i, p[i], q[i])
				}
			}
			t.Fatalf("seed %d: three runs, hashes %x, %x and %x", seed, a.Hash, b.Hash, c.Hash)
		}
	}
}

// Another seed is another world.
func TestOtherSeedOtherWorld(t *testing.T) {
	if a, b := runSeed(t, Draw(1), nil), runSeed(t, Draw(2), nil); a.Hash == b.Hash {
		t.Errorf("two seeds have one transcript: %x", a.Hash)
	}
}

// Nothing is found in a batch of worlds with all rules in.
func TestWorlds(t *testing.T) {
	var sum Counts
	for seed := range uint64(batchWorlds) {
		r := runSeed(t, Draw(seed), nil)
		sum.Grants += r.Counts.Grants
		sum.Expired += r.Counts.Expired
		sum.Refused += r.Counts.Refused
		for _, v := range r.Violations {
			t.Errorf("seed %d at %v: %s: %s", seed, v.At, v.Property, v.Why)
		}
	}
	if sum.Grants < 50*batchWorlds || sum.Expired < 2*batchWorlds || batchWorlds >= 20 && sum.Refused == 0 {
		t.Errorf("little happened: %+v", sum)
	}
	t.Logf("%+v", sum)
}
