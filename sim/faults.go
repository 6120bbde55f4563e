package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Fault is one way in which a world is ill.
type Fault uint8

// The faults. The first happen to single messages; their rate is in millionths
// of all messages. The others are events; their rate is in events a virtual
// hour.
const (
	Drop       Fault = iota // a message is lost
	Delay                   // a message takes up to two TTLs
	Duplicate               // a message arrives twice
	Reorder                 // a message overtakes those before it
	Partition               // some servers cannot reach some others, perhaps one way only
	CutClient               // a client and some servers cannot reach each other
	SlowLink                // all messages of one pair take long
	Crash                   // a server dies; what it had not synced may be lost
	CrashAll                // all servers die at once
	DiskError               // a call of a server's store fails
	DiskFull                // a server's disk has no space for a while
	DiskSlow                // each write of a server takes long for a while
	DiskHang                // a server's write does not return for a while
	StopServer              // a server stands still (SIGSTOP)
	StopAll                 // all servers stand still at once
	StopClient              // a client stands still
	Sleep                   // a machine sleeps: its monotonic clock stands still as well
	Rate                    // a clock's rate changes
	Flap                    // leadership moves, again and again for a while
	Overload                // a crowd of requests
	Restart                 // a client dies and comes back without its memory
	RevokeNow               // an operator frees a grant at once
	RevokeAsk               // an operator asks a holder for a grant
	faults
)

var faultNames = [faults]string{
	"drop", "delay", "duplicate", "reorder", "partition", "cut-client", "slow-link", "crash", "crash-all",
	"disk-error", "disk-full", "disk-slow", "disk-hang", "stop-server", "stop-all", "stop-client", "sleep",
	"rate", "flap", "overload", "restart", "revoke-now", "revoke-ask",
}

// String returns the fault's name.
func (f Fault) String() string { return faultNames[f] }

// ofMessages reports that the fault happens to single messages.
func (f Fault) ofMessages() bool { return f <= Reorder }

// Rates says how often each fault happens.
type Rates [faults]int

// drawRates draws which faults a world has: about a third of them, so that
// each world is ill in its own way.
func drawRates(r *rand.Rand) (out Rates) {
	if r.IntN(20) == 0 {
		return out // a healthy world: it must be a dull one
	}
	for f := range faults {
		if r.IntN(3) != 0 {
			continue
		}
		if f.ofMessages() {
			out[f] = pick(r, 100, 2_000, 20_000, 100_000)
		} else {
			out[f] = pick(r, 60, 240, 900)
		}
	}
	return out
}

// String names the faults that happen, with their rates.
func (r Rates) String() string {
	var parts []string
	for f, n := range r {
		switch {
		case n == 0:
		case Fault(f).ofMessages():
			parts = append(parts, fmt.Sprintf("%v %d/million", Fault(f), n))
		default:
			parts = append(parts, fmt.Sprintf("%v %d/h", Fault(f), n))
		}
	}
	if parts == nil {
		return "no faults"
	}
	return strings.Join(parts, ", ")
}
