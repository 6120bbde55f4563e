package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Jitter is what crypto/rand.Reader must be for a world of that seed (see
// [Run]): the same bytes as testing/cryptotest gives in tests, so that a seed is
// the same world in both.
func Jitter(seed uint64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return rand.NewChaCha8(key)
}

// Panicked is the property that [Try] adds to those of the judge.
const Panicked Property = "nothing panics"

// FaultNamed is the fault of that name.
func FaultNamed(name string) (Fault, bool) {
	i := slices.Index(faultNames[:], name)
	return Fault(max(i, 0)), i >= 0
}

// FaultNames lists the names of all faults.
func FaultNames() []string { return faultNames[:] }

// Arguments are those of "holdfast sim" that make this world: its seed, and in
// what it differs from the one that the seed gives.
func (s Setup) Arguments() []string {
	d := Draw(s.Seed)
	args := []string{"--seed", fmt.Sprint(s.Seed)}
	var without []string
	for f, n := range s.Rates {
		if n == 0 && d.Rates[f] > 0 {
			without = append(without, Fault(f).String())
		}
	}
	if without != nil {
		args = append(args, "--without", strings.Join(without, ","))
	}
	for _, n := range []struct {
		flag      string
		is, drawn int
	}{{"--clients", s.Clients, d.Clients}, {"--locks", s.Locks, d.Locks}, {"--servers", s.Servers, d.Servers}} {
		if n.is != n.drawn {
			args = append(args, n.flag, fmt.Sprint(n.is))
		}
	}
	if s.Faulty != d.Faulty {
		args = append(args, "--faulty", s.Faulty.String())
	}
	if len(s.Skip) > 0 {
		args = append(args, "--skip", s.Skip.String())
	}
	if s.Variant > 0 {
		args = append(args, "--variant", fmt.Sprint(s.Variant))
	}
	if s.Until > 0 {
		args = append(args, "--until", s.Until.String())
	}
	return args
}

// A Tally sums up what became of many worlds.
type Tally struct {
	Worlds   int
	Violated int // worlds in which a property did not hold
	Virtual  time.Duration
	Injected [faults]int
	Counts   Counts
	Met      map[Situation]int
}

// Add counts one more world.
func (t *Tally) Add(r Result) {
	t.Worlds++
	t.Virtual += r.Virtual
	if len(r.Violations) > 0 {
		t.Violated++
	}
	for f, n := range r.Injected {
		t.Injected[f] += n
	}
	to, from := reflect.ValueOf(&t.Counts).Elem(), reflect.ValueOf(r.Counts)
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
	if t.Met == nil {
		t.Met = map[Situation]int{}
	}
	for s, n := range r.Met {
		t.Met[s] += n
	}
}

// Faults is how many faults were injected, in all.
func (t *Tally) Faults() (n int) {
	for _, k := range t.Injected {
		n += k
	}
	return n
}

// Write prints the tally as a table.
func (t *Tally) Write(out io.Writer) {
	row := func(what string, n int) { fmt.Fprintf(out, "  %-64s %10d\n", what, n) }
	fmt.Fprintln(out, "faults")
	for f, n := range t.Injected {
		row(Fault(f).String(), n)
	}
	fmt.Fprintln(out, "what went on")
	counts := reflect.ValueOf(t.Counts)
	for i := range counts.NumField() {
		row(strings.ToLower(counts.Type().Field(i).Name), int(counts.Field(i).Int()))
	}
	fmt.Fprintln(out, "situations")
	for _, s := range Situations() {
		row(string(s), t.Met[s])
	}
	fmt.Fprintln(out, "worlds")
	row("in all", t.Worlds)
	row("with a violation", t.Violated)
}
