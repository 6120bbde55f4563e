//go:build race

package explore

import "testing"

// TestASmallPartUnderTheRaceDetector is no substitute for the exhaustive
// tests, which a run with the race detector leaves out: it shows that the
// explorer works there, finds what is wrong near the start, and finds nothing
// wrong where nothing is.
func TestASmallPartUnderTheRaceDetector(t *testing.T) {
	cfg := Warm()
	cfg.Depth, cfg.States, cfg.Writes = 9, mostStates, true
	if r := Explore(cfg); r.Violation != "" || !r.Complete || r.Depth != 9 || r.States < 5000 {
		t.Errorf("all rules in: %v", r)
	}
	for _, w := range []struct {
		wants string
		out   func(*Config)
	}{
		{TwoHolders, func(c *Config) { c.Client.OpenLate = c.Unit }},
		{ZombieWrite, func(c *Config) { c.NoBurn, c.Writes, c.Revokes, c.RevokeNow = true, true, 1, true }},
	} {
		cfg := Warm()
		w.out(&cfg)
		cfg.Only = w.wants
		if r := Explore(cfg); r.Violation != w.wants {
			t.Errorf("found %v, want %q", r, w.wants)
		}
	}
}
