//go:build !race

// The exhaustive tests. There is no goroutine here for the race detector to
// watch, and it makes them ten times as slow: "make test" runs them without it,
// to the same depths everywhere. What is left for a run with it is smoke_test.go.

package explore

import (
	"strings"
	"testing"
	"time"

	"holdfast/server/lease"
)

// worlds are explored with all rules in. The depth of each is what fits into a
// test; deeper is only a matter of time.
var worlds = []struct {
	name  string
	depth int
	set   func(*Config)
}{
	{"cold: two sessions, two locks", 8, func(c *Config) { *c = Small() }},
	{"two locks", 10, func(c *Config) { c.Wants = [][]string{{"x", "y"}, {"x"}} }},
	{"one change of leader", 16, func(c *Config) {}},
	{"two changes of leader, step-downs", 10, func(c *Config) { c.LeaderChanges, c.StepDowns = 2, true }},
	{"duplicates", 9, func(c *Config) { c.Duplicates = 2 }},
	{"writes", 10, func(c *Config) { c.Writes = true }},
	{"releases and writes", 8, func(c *Config) { c.Writes, c.Releases, c.Wants = true, 2, [][]string{{"x", "x"}, {"x"}} }},
	{"a stall", 11, func(c *Config) { c.Stalls = 1 }},
	{"a polite revoke", 10, func(c *Config) { c.Revokes = 1 }},
	{"a revoke at once", 8, func(c *Config) { c.Revokes, c.RevokeNow, c.Writes = 1, true, true }},
	{"both impatient", 10, func(c *Config) { c.TTL[1] = c.TTL[0] }},
}

func TestNothingIsFoundWithAllRulesIn(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			cfg := Warm()
			w.set(&cfg)
			cfg.Depth, cfg.States = w.depth, mostStates
			s := time.Now()
			r := Explore(cfg)
			if r.Violation != "" || !r.Complete {
				t.Errorf("%v", r)
			}
			t.Logf("%v in %v", r, time.Since(s).Round(10*time.Millisecond))
		})
	}
}

// weaker is one rule taken out of the warm world, and what must then be found.
type weaker struct {
	name  string
	wants string
	out   func(*Config)
}

// weakers are found by exhaustive search. Those that only make a dead session
// immortal, or a healthy one expire in a long run, are in long_test.go.
var weakers = []weaker{
	{"no gate", LostWrite, func(c *Config) { c.NoGate, c.Writes = true, true }},
	{"B3 keeps its memory", TooEarly, func(c *Config) {
		c.Lease, c.LeaderChanges, c.Wants, c.Deep, c.Units = lease.Weakening{KeepMemory: true}, 2, c.Wants[:1], false, 4
	}},
	{"B3 leads before it applied", TooEarly, func(c *Config) {
		c.EarlyLead, c.LeaderChanges, c.Wants, c.Deep, c.Units = true, 2, c.Wants[:1], false, 4
	}},
	{"B4 expires whatever the log says", TooEarly, func(c *Config) {
		c.Deep = false
		c.Lease, c.Rewrite = lease.Weakening{ExpireDespiteClear: true}, ExpireAny
	}},
	{"B5 answers without a clear", TwoHolders, func(c *Config) { c.Lease = lease.Weakening{AnswerWithoutClear: true} }},
	{"B5 forgets what is in flight", TwoHolders, func(c *Config) { c.Lease = lease.Weakening{ForgetInFlight: true} }},
	{"B5 lease reads", TwoHolders, func(c *Config) { c.Lease = lease.Weakening{LeaseReads: true} }},
	{"B9 expires at once after a stall", Unread, func(c *Config) {
		c.Lease, c.Stalls = lease.Weakening{ExpireAfterStallAtOnce: true}, 1
	}},
	{"B10 counts from the answer", TwoHolders, func(c *Config) { c.Client.FromAnswer = true }},
	{"B10 counts a second open", TwoHolders, func(c *Config) { c.Client.OpenLate = c.Unit }},
	{"B10 clock stops in a suspend", TwoHolders, func(c *Config) { c.Client.Suspends = 1 }},
	{"B11 frees at once", TwoHolders, func(c *Config) { c.Lease, c.Revokes = lease.Weakening{FreeAtOnce: true}, 1 }},
	{"B11 forgets a revoke in flight", TwoHolders, func(c *Config) { c.Lease, c.Revokes = lease.Weakening{ForgetRevokes: true}, 1 }},
	{"B11 burns no number", ZombieWrite, func(c *Config) {
		c.NoBurn, c.Writes, c.Revokes, c.RevokeNow = true, true, 1, true
	}},
}

func TestEachRuleTakenOutIsFound(t *testing.T) {
	for _, w := range weakers {
		t.Run(w.name, func(t *testing.T) {
			cfg := Warm()
			w.out(&cfg)
			cfg.Only, cfg.States = w.wants, mostStates
			s := time.Now()
			r := Explore(cfg)
			if r.Violation != w.wants {
				t.Errorf("found %q, want %q", r.Violation, w.wants)
			}
			t.Logf("%v in %v", r, time.Since(s).Round(10*time.Millisecond))
		})
	}
}

// TestRuleB4IsEnough: proposing an expiry although a clear is in flight does
// no harm as long as the expiry names its suspicion.
func TestRuleB4IsEnough(t *testing.T) {
	cfg := Warm()
	cfg.Lease, cfg.Depth, cfg.Deep = lease.Weakening{ExpireDespiteClear: true}, 9, false
	if r := Explore(cfg); r.Violation != "" {
		t.Errorf("%v", r)
	}
}

func TestExplorationIsDeterministic(t *testing.T) {
	cfg := Warm()
	cfg.Lease, cfg.Only = lease.Weakening{AnswerWithoutClear: true}, TwoHolders
	first := Explore(cfg).String()
	if !strings.Contains(first, "\n  1  ") {
		t.Errorf("no story is told: %s", first)
	}
	if again := Explore(cfg).String(); again != first {
		t.Errorf("two runs differ:\n%s\n%s", first, again)
	}
}

func TestDeadHolderIsFreedWithin2T(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second} {
		cfg := Fine()
		cfg.TTL[0] = ttl
		cfg.Unit = ttl / 40
		worst, at, immortal := worstFlap(cfg, cfg.Tick/4, 3*ttl, func(float64, bool) bool { return false })
		t.Logf("T %v: worst %.2f T, %+v", ttl, worst, at)
		if worst > 2 || immortal {
			t.Errorf("T %v: the waiter is granted after %.2f T (%+v)", ttl, worst, at)
		}
	}
}
