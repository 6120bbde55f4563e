package lab

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The two workers of a world.
const (
	workerA = "A"
	workerB = "B"
)

var cast = []string{workerA, workerB}

// The limits of what a visitor can set.
const (
	minTTL     = 2 * time.Second
	maxTTL     = 10 * time.Second
	defaultTTL = 4 * time.Second
	// maxValue is the longest value that a worker writes, in characters.
	maxValue = 80
)

// settings are how a round begins.
type settings struct {
	ttl     time.Duration
	compare bool // the gate compares tokens
	values  map[string]string
}

func defaultSettings() settings {
	return settings{
		ttl:    defaultTTL,
		values: map[string]string{workerA: "invoice 4711: 100 EUR", workerB: "invoice 4711: 250 EUR"},
	}
}

// settingsBody is what a visitor may say of them; what is left out stays.
type settingsBody struct {
	TTLMS   *int64 `json:"ttlMs"`
	Compare *bool  `json:"compare"`
	Values  *struct {
		A *string `json:"A"`
		B *string `json:"B"`
	} `json:"values"`
}

var settingsFields = []string{"ttlMs", "compare", "values", workerA, workerB}

// apply returns s with what the body changes, or which rule it breaks.
func (b settingsBody) apply(s settings) (settings, error) {
	if b.TTLMS != nil {
		if *b.TTLMS < minTTL.Milliseconds() || *b.TTLMS > maxTTL.Milliseconds() {
			return s, badf("ttlMs is %d: want %d to %d", *b.TTLMS, minTTL.Milliseconds(), maxTTL.Milliseconds())
		}
		s.ttl = time.Duration(*b.TTLMS) * time.Millisecond
	}
	if b.Compare != nil {
		s.compare = *b.Compare
	}
	s.values = map[string]string{workerA: s.values[workerA], workerB: s.values[workerB]}
	if b.Values == nil {
		return s, nil
	}
	for i, value := range []*string{b.Values.A, b.Values.B} {
		if value == nil {
			continue
		}
		if err := checkValue(*value); err != nil {
			return s, err
		}
		s.values[cast[i]] = *value
	}
	return s, nil
}

// checkValue refuses what cannot be shown as one line of text. What looks like
// markup is text.
func checkValue(v string) error {
	const rule = "want 1 to %d characters that can be seen on one line"
	switch n := utf8.RuneCountInString(v); {
	case strings.TrimSpace(v) == "":
		return badf("the value is empty: "+rule, maxValue)
	case n > maxValue:
		return badf("the value has %d characters: "+rule, n, maxValue)
	}
	for _, r := range v {
		// U+FFFD stands for what was no character when it was sent.
		if !unicode.IsGraphic(r) || r == utf8.RuneError {
			return badf("the value has the character %U: "+rule, r, maxValue)
		}
	}
	return nil
}
