package explore

import (
	"testing"
	"time"

	"holdfast/server/lease"
)

// worstFlap sweeps the ways to flap, until enough, and returns the longest time
// to the grant, in T, and the way; immortal reports that some way has no end
// within limit.
func worstFlap(cfg Config, step, limit time.Duration, enough func(worst float64, immortal bool) bool) (worst float64, at Flapping, immortal bool) {
	ttl := cfg.TTL[0]
	for office := cfg.Tick; office <= 2*ttl; office += step {
		for _, left := range []time.Duration{0, ttl / 4, ttl/2 - cfg.Unit, ttl * 3 / 4, ttl} {
			f := Flapping{Left: left, Office: office, Gap: cfg.Unit}
			if f.Office < max(ttl/8, 4*cfg.Tick) {
				continue // counts as no leader
			}
			took, ok := Flap(cfg, f, limit)
			if x := float64(took) / float64(ttl); x > worst {
				worst, at = x, f
			}
			if immortal = immortal || !ok; enough(worst, immortal) {
				return
			}
		}
	}
	return worst, at, immortal
}

// TestFlapsFindEachRuleTakenOut: directed search with a long horizon.
func TestFlapsFindEachRuleTakenOut(t *testing.T) {
	for _, w := range []struct {
		name     string
		weak     lease.Weakening
		immortal bool // else: later than 2T
		uptimes  []time.Duration
	}{
		{name: "B2 starts its clock at its uptime", uptimes: []time.Duration{24 * time.Hour, 0}},
		{"B4 expires without a suspicion", lease.Weakening{ExpireWithoutSuspicion: true}, true, nil},
		{"B6 suspects at T/2 only", lease.Weakening{SuspectAtHalfOnly: true}, true, nil},
		{"B6 logs no ticks", lease.Weakening{NoTicks: true}, true, nil},
		{"B6 ticks every T/8 only", lease.Weakening{CoarseTicks: true}, false, nil},
	} {
		t.Run(w.name, func(t *testing.T) {
			cfg := Fine()
			cfg.TTL[0] = 4 * time.Second
			cfg.Unit = 100 * time.Millisecond
			cfg.Lease, cfg.Uptimes = w.weak, w.uptimes
			worst, at, immortal := worstFlap(cfg, cfg.Tick/4, 10*cfg.TTL[0], func(worst float64, immortal bool) bool {
				return immortal || !w.immortal && worst > 2.1
			})
			t.Logf("worst %.2f T, no end: %t, %+v", worst, immortal, at)
			if immortal != w.immortal || worst <= 2 {
				t.Errorf("worst %.2f T, no end: %t; want no end: %t", worst, immortal, w.immortal)
			}
		})
	}
}

func stalls() []Stalled {
	var out []Stalled
	for _, every := range []time.Duration{300 * time.Millisecond, 475 * time.Millisecond, 2 * time.Second} {
		for _, span := range []time.Duration{225 * time.Millisecond, time.Second, 5 * time.Second} {
			out = append(out, Stalled{Every: every, Stall: span, Times: 20})
		}
	}
	return out
}

func TestHealthySessionOutlivesStalls(t *testing.T) {
	for _, s := range stalls() {
		if !Stall(Fine(), s) {
			t.Errorf("the session expired: %+v", s)
		}
	}
}

func TestStallsFindTheRuleTakenOut(t *testing.T) {
	cfg := Fine()
	cfg.Lease = lease.Weakening{CountStalls: true}
	for _, s := range stalls() {
		if !Stall(cfg, s) {
			t.Logf("B9 counts stalls: a healthy session expired: %+v", s)
			return
		}
	}
	t.Error("no healthy session expired though stalls count")
}

// TestMaximumHoldEnds: at its maximum the holder is asked, and one that never
// answers loses its grant T later; then the lock-delay runs, and no longer.
func TestMaximumHoldEnds(t *testing.T) {
	cfg := Fine()
	cfg.Terms.MaxHold, cfg.Terms.LockDelay = 3*time.Second, time.Second
	least, most := cfg.Terms.MaxHold, cfg.Terms.MaxHold+cfg.TTL[0]+cfg.Terms.LockDelay+4*cfg.Tick
	if got := Patience(cfg, time.Minute); got < least || got > most {
		t.Errorf("the waiter waits %v, want %v to %v", got, least, most)
	}
	cfg.Lease.ForgetEnds = true
	if got := Patience(cfg, time.Minute); got < time.Minute {
		t.Errorf("B8 forgets the end: the waiter waits only %v", got)
	}
}
