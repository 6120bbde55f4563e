package watchdog

import (
	"strings"
	"testing"
	"time"
)

func TestCasebookC35_SettingsThatCannotWork(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	good := Settings{TTL: 10 * s, Margin: s, Interval: 3 * s, CallTimeout: 3 * s} // at the limit
	if err := good.Validate(); err != nil {
		t.Errorf("%+v: %v", good, err)
	}
	for _, c := range []struct {
		change func(*Settings)
		broken string // "" if the settings are good
	}{
		{func(x *Settings) { x.TTL = s - 1 }, "1s ≤ TTL ≤ 24h0m0s must hold"},
		{func(x *Settings) { *x = Settings{TTL: s}.WithDefaults() }, ""},
		{func(x *Settings) { x.TTL = 24*time.Hour + 1 }, "1s ≤ TTL ≤ 24h0m0s must hold"},
		{func(x *Settings) { *x = Settings{TTL: 24 * time.Hour}.WithDefaults() }, ""},
		{func(x *Settings) { x.TTL = -s }, "1s ≤ TTL ≤ 24h0m0s must hold"},
		{func(x *Settings) { x.Margin = -1 }, "0 < margin < TTL must hold"},
		{func(x *Settings) { x.Margin = 0 }, "0 < margin < TTL must hold"},
		{func(x *Settings) { x.Margin = 10 * s }, "0 < margin < TTL must hold"},
		{func(x *Settings) { x.Margin = 1 }, ""},
		{func(x *Settings) { x.Margin = s + 1 }, "3s + 2 × 3s = 9s is above 10s − 1.000000001s = 8.999999999s"},
		{func(x *Settings) { x.Interval = -s }, "1ms ≤ interval < TTL must hold"},
		{func(x *Settings) { x.Interval = ms - 1 }, "1ms ≤ interval < TTL must hold"},
		{func(x *Settings) { x.Interval = ms }, ""},
		{func(x *Settings) { x.Interval = 10 * s }, "1ms ≤ interval < TTL must hold"},
		{func(x *Settings) { x.Interval = 3*s + 1 }, "interval + 2 × call timeout ≤ TTL − margin must hold"},
		{func(x *Settings) { x.Interval = 1<<63 - 1 }, "1ms ≤ interval < TTL must hold"},
		{func(x *Settings) { x.CallTimeout = ms }, ""},
		{func(x *Settings) { x.CallTimeout = 0 }, "1ms ≤ call timeout < TTL must hold"},
		{func(x *Settings) { x.CallTimeout = 3*s + 1 }, "interval + 2 × call timeout ≤ TTL − margin must hold"},
		{func(x *Settings) { x.CallTimeout = 1<<63 - 1 }, "1ms ≤ call timeout < TTL must hold"},
	} {
		x := good
		c.change(&x)
		err := x.Validate()
		switch {
		case c.broken == "" && err != nil:
			t.Errorf("%+v: refused: %v", x, err)
		case c.broken != "" && (err == nil || !strings.Contains(err.Error(), c.broken)):
			t.Errorf("%+v: %v, want %q", x, err, c.broken)
		}
	}
}

func TestCasebookC35_GraceThatCannotWork(t *testing.T) {
	const s = time.Second
	x := Settings{TTL: 15 * s, Margin: s, Interval: 3 * s, CallTimeout: 3 * s}
	for _, c := range []struct {
		change func(*Settings)
		grace  time.Duration
		broken string
	}{
		{nil, 5 * s, ""}, // 1 + 5 + 3 × 3 = 15
		{nil, 5*s + 1, "margin + grace + 3 × interval ≤ TTL must hold"},
		{nil, 7500*time.Millisecond + 1, "0 < grace ≤ TTL ÷ 2 must hold"},
		{func(x *Settings) { x.Interval, x.CallTimeout = 2*s, 2*s }, 7500 * time.Millisecond, ""},
		{nil, 0, "0 < grace ≤ TTL ÷ 2 must hold"},
		{nil, -s, "0 < grace ≤ TTL ÷ 2 must hold"},
		{nil, 1<<63 - 1, "0 < grace ≤ TTL ÷ 2 must hold"},
		{func(x *Settings) { x.CallTimeout = 4 * s }, s, "call timeout ≤ interval must hold"},
		{func(x *Settings) { x.Margin = 20 * s }, s, "0 < margin < TTL must hold"},
	} {
		y := x
		if c.change != nil {
			c.change(&y)
		}
		err := y.CheckGrace(c.grace)
		switch {
		case c.broken == "" && err != nil:
			t.Errorf("%+v, grace %v: refused: %v", y, c.grace, err)
		case c.broken != "" && (err == nil || !strings.Contains(err.Error(), c.broken)):
			t.Errorf("%+v, grace %v: %v, want %q", y, c.grace, err, c.broken)
		}
	}
}

// TestForGrace: what is derived is valid, for every TTL and grace that are.
func TestForGrace(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Second, 2 * time.Second, 15 * time.Second, time.Minute, MaxTTL} {
		effective := ttl
		if ttl == 0 {
			effective = DefaultTTL
		}
		for _, grace := range []time.Duration{0, 1, effective / 10, effective / 3, effective / 2} {
			s, g, err := ForGrace(ttl, grace)
			if err != nil {
				t.Errorf("TTL %v, grace %v: %v", ttl, grace, err)
				continue
			}
			if err := s.CheckGrace(g); err != nil || s.TTL != effective || grace != 0 && g != grace {
				t.Errorf("TTL %v, grace %v gave %+v, %v: %v", ttl, grace, s, g, err)
			}
		}
		if _, _, err := ForGrace(ttl, effective/2+1); err == nil {
			t.Errorf("TTL %v: a grace above half of it was accepted", ttl)
		}
	}
	if s, g, _ := ForGrace(0, 0); g != 5*time.Second || s.Interval != 2500*time.Millisecond {
		t.Errorf("defaults are %+v, %v", s, g)
	}
	for _, ttl := range []time.Duration{-1, 1, MaxTTL + 1} {
		if _, _, err := ForGrace(ttl, 0); err == nil {
			t.Errorf("TTL %v was accepted", ttl)
		}
	}
}
