package lab

import (
	"encoding/json"
	"math"
	"time"
)

// The kinds of events in a world's journal.
const (
	kindRound     = "round"   // a round begins; who reads drops what it knew
	kindStarted   = "started" // a worker process runs
	kindValue     = "value"   // the visitor changed what a worker writes
	kindCompare   = "compare" // the gate's switch was turned
	kindQueued    = "queued"  // a worker asks for the lock
	kindAcquired  = "acquired"
	kindPulse     = "pulse"  // a keepalive of a worker was answered
	kindLooked    = "looked" // a worker looked at its own lease and believes it
	kindPaused    = "paused"
	kindWoken     = "woken"
	kindWrote     = "wrote"
	kindRefused   = "refused" // the gate refused a worker's token
	kindReleased  = "released"
	kindGaveUp    = "gave-up" // a worker waits no more
	kindLost      = "lost"
	kindKilled    = "killed"
	kindEnded     = "ended" // a worker process ended by itself
	kindError     = "error"
	kindCorrupted = "corrupted"

	kindServiceQueued  = "svc-queued"
	kindServiceGranted = "svc-granted"
	kindServiceFreed   = "svc-freed"
	kindServiceLeft    = "svc-left"
	kindHeard          = "heard" // the service's own view of a renewal
)

// Who an event is about, other than a worker.
const (
	whoService = "service"
	whoGate    = "gate"
	whoLab     = "lab"
)

// An event is one thing that happened in a world, as the page and the
// downloaded log have it. Fields are there only when they apply to the kind.
// Durations are milliseconds.
type event struct {
	// 1. Seq rises by one with each event of a world, over all its rounds.
	// 2. AtMS is the time since the round began, by the lab's monotonic
	//    clock; it never falls within a round.
	// The journal sets both.
	Seq  uint64  `json:"seq"`
	AtMS float64 `json:"atMs"`
	Kind string  `json:"kind"`
	Who  string  `json:"who"`

	// round
	Round     int               `json:"round,omitempty"`
	TTLMS     int64             `json:"ttlMs,omitempty"`
	Signals   *bool             `json:"signals,omitempty"`
	Values    map[string]string `json:"values,omitempty"`
	LastToken uint64            `json:"lastToken,omitempty"`
	Earlier   []earlierLine     `json:"earlier,omitempty"`
	LineCount int64             `json:"-"` // shown as lines
	Lock      string            `json:"lock,omitempty"`
	Service   string            `json:"service,omitempty"`

	PID      int      `json:"pid,omitempty"`
	Value    string   `json:"value,omitempty"`
	On       *bool    `json:"on,omitempty"`
	Compare  *bool    `json:"compare,omitempty"`
	Token    uint64   `json:"token,omitempty"`
	Mark     uint64   `json:"mark,omitempty"`
	TookMS   *float64 `json:"tookMs,omitempty"`
	LeftMS   *float64 `json:"leftMs,omitempty"`
	Poised   *bool    `json:"poised,omitempty"`
	PausedMS *float64 `json:"pausedMs,omitempty"`
	Line     int64    `json:"line,omitempty"`
	Basis    int64    `json:"basis,omitempty"`
	Text     string   `json:"text,omitempty"`
	Texts    []string `json:"texts,omitempty"`
	BadLines []int64  `json:"-"` // corrupted: shown as lines
	Worker   string   `json:"worker,omitempty"`
	Cause    string   `json:"cause,omitempty"`
	// TTLLeftMS is how long the service would still wait, by its own view.
	TTLLeftMS *float64 `json:"ttlLeftMs,omitempty"`
}

// An earlierLine is a line of the ledger from before the round.
type earlierLine struct {
	Line   int64  `json:"line"`
	Worker string `json:"worker"`
	Token  uint64 `json:"token"`
	Value  string `json:"value"`
}

// MarshalJSON shows the two things that are called lines: in a round their
// number, in a finding which ones they are.
func (e event) MarshalJSON() ([]byte, error) {
	type plain event
	var lines any
	switch {
	case e.Kind == kindRound:
		lines = e.LineCount
	case len(e.BadLines) > 0:
		lines = e.BadLines
	}
	return json.Marshal(struct {
		plain
		Lines any `json:"lines,omitempty"`
	}{plain(e), lines})
}

// millis is a duration as an event shows it: in milliseconds, to the
// microsecond.
func millis(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}
