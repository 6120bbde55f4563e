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
	{"headers without a clock", 9, func(c *Config) { c.ZeroHeaders, c.Releases = true, 1 }},
	{"a second open", 8, func(c *Config) { c.SecondOpens = 2 }},
	{"lock-delay", 8, func(c *Config) { lockDelay(c); c.Revokes, c.RevokeNow = 1, true }},
	{"once-per and lock-delay", 8, func(c *Config) { oncePer(c); c.Revokes, c.RevokeNow, c.Releases = 1, true, 1 }},
	{"once-per, retry-failed", 7, func(c *Config) { retryFailed(c); c.Releases = 2 }},
	{"a maximum hold", 10, maxHold},
	{"two readers, and a writer who waits", 40, func(c *Config) { readers(c); c.Duplicates = 1 }},
	{"two readers, and a writer who waits, one change of leader", 40, func(c *Config) { readers(c); c.LeaderChanges = 1 }},
	{"two readers, and a writer who waits, one of them impatient", 8, func(c *Config) {
		readers(c)
		c.Writes, c.LeaderChanges, c.Units, c.TTL[0] = true, 1, 7, 4*c.Unit
	}},
	{"a writer, and two readers who wait", 40, func(c *Config) { readers(c); c.Duplicates, c.Shared = 1, []bool{false, true, true} }},
}

func lockDelay(c *Config) { c.Terms.LockDelay, c.Deep = 2*c.Unit, false }

// oncePer: the period's closing ends after 0.9 of a unit, a lock-delay later.
// B, told "closed" at the start, asks again.
func oncePer(c *Config) {
	c.Terms.OncePer, c.Terms.LockDelay = c.Unit, 3*c.Unit
	c.Wants, c.LeaderChanges, c.Deep = [][]string{{"x"}, {"x", "x"}}, 0, false
}

func retryFailed(c *Config) {
	c.Terms.OncePer, c.Terms.RetryFailed = 4*c.Unit, true
	c.Wants = [][]string{{"x", "x"}, {"x"}}
}

func maxHold(c *Config) {
	c.Terms.MaxHold, c.Terms.LockDelay, c.Deep = c.Unit, 2*c.Unit, false
}

// readers: A and B hold x shared, C waits for it alone, B will ask again. No
// time passes.
func readers(c *Config) {
	c.Wants, c.Shared = [][]string{{"x"}, {"x", "x"}, {"x"}}, []bool{true, true, false}
	c.TTL = []time.Duration{c.TTL[1], c.TTL[1], c.TTL[1]}
	c.Releases, c.Units, c.LeaderChanges = 3, 0, 0
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
			if said := inDoc(t, w.name); said[0] != r.Depth || said[1] < r.States*3/4 || said[1] > r.States*5/4 {
				t.Errorf("sim/doc.go must say (states within a quarter): %d  %d  %s", r.Depth, r.States, w.name)
			}
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
	{"A1 each reader has a token of its own", Fenced, func(c *Config) { readers(c); c.Writes, c.OwnTokens = true, true }},
	{"B1 passes over another term's entries", Diverged, func(c *Config) { c.OwnTermOnly, c.Releases = true, 1 }},
	{"B1 passes over another term's entries: two holders", TwoHolders, func(c *Config) {
		c.OwnTermOnly, c.Warm, c.Units = true, false, 1
	}},
	{"B2 starts its clock at its uptime", TooEarly, func(c *Config) {
		c.Uptimes, c.Deep = []time.Duration{0, 2 * time.Hour}, false
	}},
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
	{"B8 a reopen opens any closing", OpenedEarly, func(c *Config) {
		oncePer(c)
		c.Rewrite, c.Revokes, c.RevokeNow = ReopenAny, 1, true
	}},
	{"B8 no lock-delay after an expiry", OpenedEarly, func(c *Config) { lockDelay(c); c.Rewrite = ExpiryConfirms }},
	{"B8 no lock-delay after a revoke at once", OpenedEarly, func(c *Config) {
		lockDelay(c)
		c.Rewrite, c.Revokes, c.RevokeNow = RevokeConfirms, 1, true
	}},
	{"B8 no lock-delay after a maximum hold", OpenedEarly, func(c *Config) { maxHold(c); c.Rewrite = RevokeConfirms }},
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
	{"B12 each open starts a session", Orphan, func(c *Config) { c.Rewrite, c.SecondOpens = OpenAnew, 1 }},
	{"B13 a run that did not succeed does not close", OpenedEarly, func(c *Config) {
		c.Terms.OncePer, c.Rewrite, c.Releases = 4*c.Unit, CloseOnSuccess, 1
	}},
	{"B13 counts from the end of the run", ShutTooLong, func(c *Config) {
		c.Terms.OncePer, c.Rewrite, c.Releases = 2*c.Unit, CloseFromEnd, 1
	}},
	{"B13 a failed run closes in spite of retry-failed", ShutTooLong, func(c *Config) {
		retryFailed(c)
		c.Rewrite, c.Releases = FailureCloses, 1
	}},
	{"B13 retry-failed closes at the grant", ShutTooLong, func(c *Config) {
		retryFailed(c)
		c.Rewrite, c.Warm = GrantCloses, false
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
