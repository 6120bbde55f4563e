package wire

import (
	"math"
	"strconv"
	"time"
)

// DefaultPort is where a server listens for clients unless told otherwise.
const DefaultPort = 7433

// MaxFrame is the longest message, in bytes, that either end reads (DESIGN
// §3).
const MaxFrame = 4 << 20

// MaxPageSize and DefaultPageSize bound the pages of the list calls.
const (
	MaxPageSize     = 1000
	DefaultPageSize = 100
)

// MaxPollWait is the longest wait of one Poll.
const MaxPollWait = time.Minute

// MaxWait is the longest wait_ms of an acquire.
const MaxWait = 24 * time.Hour

// MaxFramesPerRequest is how many frames one SessionRequest may carry.
const MaxFramesPerRequest = 20_000

// Millis is d in whole milliseconds for the wire, rounded down; what is
// negative is 0.
func Millis(d time.Duration) uint64 {
	return uint64(max(d, 0) / time.Millisecond)
}

// MillisUp is [Millis] rounded up, for spans that somebody will wait out.
func MillisUp(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/time.Millisecond) + 1
}

// FromMillis is the duration of ms milliseconds; what no duration can hold is
// the longest one.
func FromMillis(ms uint64) time.Duration {
	if ms > math.MaxInt64/uint64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// FormatID is the text form of a session ID or grant number, as it stands in
// JSON and in driver types.
func FormatID(id uint64) string { return strconv.FormatUint(id, 10) }

// ParseID is the inverse of [FormatID]; it accepts the canonical text of a
// number above 0 and nothing else.
func ParseID(s string) (uint64, bool) {
	id, err := strconv.ParseUint(s, 10, 64)
	return id, err == nil && id > 0 && FormatID(id) == s
}
