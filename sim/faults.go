package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Fault is one way in which a world is ill, or something that an operator
// does to it.
type Fault uint8

// The faults. The first happen to single messages; their rate is in millionths
// of all messages. The others are events; their rate is in events a virtual
// hour.
const (
	Drop         Fault = iota // a message is lost
	Delay                     // a message takes up to two TTLs
	Duplicate                 // a message arrives twice
	Reorder                   // a message overtakes those before it
	Partition                 // some servers cannot reach some others, perhaps one way only
	CutClient                 // a client and some servers cannot reach each other
	SlowLink                  // all messages of one pair take long
	LoseCall                  // the next few messages of one kind are lost: an acquire, the answer to a release, …
	RepeatCall                // the next few messages of one kind arrive twice
	Crash                     // a server's machine dies; what it had not synced may be lost
	CrashAll                  // all servers die at once
	Kill                      // a server's process dies; what it wrote stays
	ShutDown                  // a server is stopped, hands over, and comes back
	DiskError                 // a call of a server's store fails
	DiskFull                  // a server's disk has little or no space for a while
	DiskSlow                  // each write of a server takes long for a while
	DiskHang                  // a server's write does not return for a while
	StopServer                // a server stands still (SIGSTOP)
	StopAll                   // all servers stand still at once
	StopClient                // a client stands still
	StopLong                  // a client stands still for many TTLs, and goes on
	StopInStep                // a client stands still between its last look and its write
	HoldWrite                 // a write stands still at the resource, before or inside the guarded step
	Sleep                     // a machine sleeps: a server's clock stands still as well
	Freeze                    // a client's machine is frozen, and its clock does not count it
	Rate                      // a clock's rate changes
	Jump                      // a clock leaps forward
	Flap                      // leadership moves, again and again for a while
	Overload                  // a crowd of requests
	Restart                   // a client dies and comes back without its memory
	Clone                     // a client becomes two, with one memory
	RevokeNow                 // an operator frees a grant at once
	RevokeAsk                 // an operator asks a holder for a grant
	EndSession                // an operator ends somebody's session
	Transfer                  // an operator moves leadership
	AddMember                 // an operator adds a member
	RemoveMember              // an operator removes a member
	Wipe                      // a machine loses its data, and comes back as a new member
	Upgrade                   // a server gets a release that knows a newer cluster version
	Backup                    // an operator takes a backup
	Restore                   // the service is lost, and restored from a backup
	Copy                      // a backup is restored as a copy beside the service, with a domain of its own
	Recover                   // all servers but one are lost, and it goes on alone
	faults
)

var faultNames = [faults]string{
	"drop", "delay", "duplicate", "reorder", "partition", "cut-client", "slow-link", "lose-call", "repeat-call", "crash", "crash-all",
	"kill", "shut-down", "disk-error", "disk-full", "disk-slow", "disk-hang", "stop-server", "stop-all", "stop-client", "stop-long",
	"stop-in-step", "hold-write", "sleep", "freeze", "rate", "jump", "flap", "overload", "restart", "clone", "revoke-now", "revoke-ask",
	"end-session", "transfer", "add-member", "remove-member", "wipe", "upgrade", "backup", "restore", "copy", "recover",
}

// String returns the fault's name.
func (f Fault) String() string { return faultNames[f] }

// ofMessages reports that the fault happens to single messages.
func (f Fault) ofMessages() bool { return f <= Reorder }

// rare are faults of which a world has few: they begin much anew.
func (f Fault) rare() bool { return f == Restore || f == Recover || f == Freeze || f == StopLong }

// Rates says how often each fault happens.
type Rates [faults]int

// drawRates draws which faults a world has: a part of them, so that each world
// is ill in its own way.
func drawRates(r *rand.Rand) (out Rates) {
	if r.IntN(20) == 0 {
		return out // a healthy world: it must be a dull one
	}
	for f := range faults {
		has := r.IntN(4) == 0
		if f.rare() {
			has = r.IntN(12) == 0
		}
		switch {
		case !has:
		case f.ofMessages():
			out[f] = pick(r, 100, 2_000, 20_000, 100_000)
		case f.rare():
			out[f] = pick(r, 60, 180)
		default:
			out[f] = pick(r, 60, 240, 900)
		}
	}
	if out[Restore]+out[Copy] > 0 {
		out[Backup] = max(out[Backup], 600) // a restore needs one
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
