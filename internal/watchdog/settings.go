package watchdog

import (
	"fmt"
	"time"
)

// Limits and defaults of [Settings].
const (
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 15 * time.Second
	// MinInterval is the least keepalive interval and call timeout.
	MinInterval = time.Millisecond
	// DefaultGrace is the default grace period of guarded work, unless a
	// third of the TTL is less.
	DefaultGrace = 5 * time.Second
)

// Settings are the durations of one session. They are checked against each
// other, and never corrected.
type Settings struct {
	// TTL is how long the service keeps the session after it heard of it.
	TTL time.Duration
	// Margin is how much earlier than the TTL the client gives up (B10).
	Margin time.Duration
	// Interval is the time from one keepalive to the next.
	Interval time.Duration
	// CallTimeout bounds one call.
	CallTimeout time.Duration
}

// WithDefaults returns s with zero fields set: TTL 15 s, Margin TTL/10,
// Interval TTL/6, CallTimeout as Interval.
func (s Settings) WithDefaults() Settings {
	if s.TTL == 0 {
		s.TTL = DefaultTTL
	}
	if s.Margin == 0 {
		s.Margin = s.TTL / 10
	}
	if s.Interval == 0 {
		s.Interval = s.TTL / 6
	}
	if s.CallTimeout == 0 {
		s.CallTimeout = s.Interval
	}
	return s
}

// Validate returns an error that shows the broken inequality unless s can
// work. A value equal to a limit is accepted.
func (s Settings) Validate() error {
	switch {
	case s.TTL < MinTTL || s.TTL > MaxTTL:
		return fmt.Errorf("TTL %v: %v ≤ TTL ≤ %v must hold", s.TTL, MinTTL, MaxTTL)
	case s.Margin <= 0 || s.Margin >= s.TTL:
		return fmt.Errorf("margin %v, TTL %v: 0 < margin < TTL must hold", s.Margin, s.TTL)
	case s.Interval < MinInterval || s.Interval >= s.TTL:
		return fmt.Errorf("keepalive interval %v, TTL %v: %v ≤ interval < TTL must hold", s.Interval, s.TTL, MinInterval)
	case s.CallTimeout < MinInterval || s.CallTimeout >= s.TTL:
		return fmt.Errorf("call timeout %v, TTL %v: %v ≤ call timeout < TTL must hold", s.CallTimeout, s.TTL, MinInterval)
	case s.Interval+2*s.CallTimeout > s.TTL-s.Margin:
		return fmt.Errorf("interval + 2 × call timeout ≤ TTL − margin must hold, so that one keepalive may fail: %v + 2 × %v = %v is above %v − %v = %v",
			s.Interval, s.CallTimeout, s.Interval+2*s.CallTimeout, s.TTL, s.Margin, s.TTL-s.Margin)
	}
	return nil
}

// CheckGrace returns an error that shows the broken inequality unless s is
// valid and leaves room for a grace period (F1): two keepalives may fail
// before the guarded work is asked to stop at deadline − grace.
func (s Settings) CheckGrace(grace time.Duration) error {
	if err := s.Validate(); err != nil {
		return err
	}
	switch {
	case grace <= 0 || grace > s.TTL/2:
		return fmt.Errorf("grace %v, TTL %v: 0 < grace ≤ TTL ÷ 2 must hold", grace, s.TTL)
	case s.CallTimeout > s.Interval:
		return fmt.Errorf("call timeout %v, keepalive interval %v: call timeout ≤ interval must hold with a grace period", s.CallTimeout, s.Interval)
	case s.Interval > s.TTL/3 || s.Margin+grace+3*s.Interval > s.TTL:
		return fmt.Errorf("margin + grace + 3 × interval ≤ TTL must hold, so that two keepalives may fail before the work is stopped: %v + %v + 3 × %v = %v is above %v",
			s.Margin, grace, s.Interval, s.Margin+grace+3*s.Interval, s.TTL)
	}
	return nil
}

// ForGrace derives settings from a TTL (0: the default) and a grace period
// (0: the smaller of 5 s and TTL/3), and returns them with the grace that
// counts. The interval is what F1 leaves, and at most its default.
func ForGrace(ttl, grace time.Duration) (Settings, time.Duration, error) {
	s := Settings{TTL: ttl}.WithDefaults()
	if err := s.Validate(); err != nil {
		return Settings{}, 0, err
	}
	if grace == 0 {
		grace = min(DefaultGrace, s.TTL/3)
	}
	if grace > 0 && grace <= s.TTL/2 {
		s.Interval = min(s.Interval, (s.TTL-s.Margin-grace)/3)
		s.CallTimeout = s.Interval
	}
	if err := s.CheckGrace(grace); err != nil {
		return Settings{}, 0, err
	}
	return s, grace, nil
}
