package sim

import (
	"bytes"
	"crypto/rand"
	"io"
	"strings"
	"testing"
	"testing/cryptotest"
)

// A seed is the same world in tests and in the command.
func TestJitterIsThatOfTests(t *testing.T) {
	for _, seed := range []uint64{0, 1, 0x0123456789abcdef} {
		cryptotest.SetGlobalRandom(t, seed)
		want, got := make([]byte, 1000), make([]byte, 1000)
		if _, err := rand.Read(want); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(Jitter(seed), got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("seed %d: %x…, want %x… (%v)", seed, got[:8], want[:8], err)
		}
	}
}

// A panic is a violation, and the same one each time.
func TestPanicIsAViolation(t *testing.T) {
	broken := Draw(1)
	broken.Servers = 0 // no world has none
	a, b := Try(broken, nil), Try(broken, nil)
	if !a.violates(Panicked) || a.Hash != b.Hash || !strings.Contains(a.Violations[0].Why, "; holdfast/sim.") {
		t.Errorf("twice: %v and %v", a.Violations, b.Violations)
	}
}

func TestArguments(t *testing.T) {
	s := Draw(5)
	if got := strings.Join(s.Arguments(), " "); got != "--seed 5" {
		t.Errorf("of a whole world: %s", got)
	}
	s.Rates = Rates{}
	s.Clients, s.Locks, s.Servers, s.Skip, s.Faulty, s.Until = 60, 30, 9, Ordinals{2, 3, 9}, 5e9, 7e9
	s.Variant = 4
	want := "--seed 5 "
	if names := drawnFaults(Draw(5)); names != nil {
		want += "--without " + strings.Join(names, ",") + " "
	}
	want += "--clients 60 --locks 30 --servers 9 --faulty 5s --skip 2-3,9 --variant 4 --until 7s"
	if got := strings.Join(s.Arguments(), " "); got != want {
		t.Errorf("of a shrunk world: %s, want %s", got, want)
	}
}

func drawnFaults(s Setup) (names []string) {
	for f, n := range s.Rates {
		if n > 0 {
			names = append(names, Fault(f).String())
		}
	}
	return names
}

func TestTally(t *testing.T) {
	var sum Tally
	r := Result{Virtual: 60, Counts: Counts{Grants: 3, Writes: 2}, Met: map[Situation]int{SilentNode: 1}}
	r.Injected[Crash] = 4
	sum.Add(r)
	r.Violations = []Violation{{Property: TooEarly}}
	sum.Add(r)
	if sum.Worlds != 2 || sum.Violated != 1 || sum.Faults() != 8 || sum.Counts.Grants != 6 || sum.Counts.Writes != 4 || sum.Met[SilentNode] != 2 {
		t.Errorf("%+v", sum)
	}
	var out bytes.Buffer
	sum.Write(&out)
	for _, want := range []string{"crash ", "grants ", "with a violation ", string(SilentNode)} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
