package explore

import (
	"time"

	"holdfast/server/core"
	"holdfast/server/lease"
)

// A Config says which world is explored, and which rules are taken out of it.
type Config struct {
	// Unit is the step of time. Tick is the lease machine's: a stall is a gap
	// above twice that.
	Unit, Tick time.Duration
	// TTL is each client's. One that is far longer than the story makes a
	// client that needs no keepalives: a patient waiter.
	TTL []time.Duration
	// Units bounds how much time passes, Depth how many events happen, and
	// States how many different states are seen (0: no bound).
	Units, Depth, States int
	// InFlight is how many messages of a client are kept each way; of more
	// the oldest is lost.
	InFlight int
	// StepDowns lets a deposed leader learn of it.
	StepDowns bool
	// Warm starts when the first client holds its first lock and the others
	// wait for theirs, or hold them.
	Warm bool
	// Wants lists, for each client, the locks that it acquires, in order.
	Wants [][]string
	// What may happen at most so many times.
	LeaderChanges, Stalls, Duplicates, Revokes, Releases int
	// RevokeNow revokes at once instead of politely, and arms the gate with
	// the revocation token.
	RevokeNow bool
	// Writes lets holders arm, read and write; a shared holder reads twice
	// instead.
	Writes bool
	// Shared makes the acquires of a client shared; nil: none.
	Shared []bool
	// Terms is what every acquire asks for: LockDelay, OncePer, RetryFailed,
	// MaxHold.
	Terms core.Acquire
	// SecondOpens is how often the first client's open may arrive again, at a
	// leader that has drawn another session ID for it.
	SecondOpens int

	// Only, if set, is the one property that counts.
	Only string
	// Deep follows a world only while two clients can still hold or write:
	// property 2 is not looked for in what comes after.
	Deep bool

	// Rules taken out:

	// NoGate lets every write pass.
	NoGate bool
	// NoBurn leaves the gate as it was after a revoke (against B11).
	NoBurn bool
	// EarlyLead starts a leader at its election, before it has applied what
	// it inherited (against B3).
	EarlyLead bool
	// OwnTermOnly lets a new leader pass over what its predecessor proposed
	// (against B1).
	OwnTermOnly bool
	// Uptimes starts each node's clock at its own uptime instead of the
	// state's clock: what this says, more than the time since the world's
	// start (against B2).
	Uptimes []time.Duration
	// ZeroHeaders leaves the clock out of the headers of what clients ask
	// for. It does no harm: apply takes the maximum (B2).
	ZeroHeaders bool
	// OwnTokens gives each shared holder its own number as its token (against
	// A1).
	OwnTokens bool
	Lease     lease.Weakening
	Client    ClientWeakening
	Rewrite   Rewrite
}

// revokes reports whether grants may be taken back.
func (c *Config) revokes() bool { return c.Revokes > 0 || c.Terms.MaxHold > 0 }

// A ClientWeakening takes rules out of the clients.
type ClientWeakening struct {
	// FromAnswer counts the lease from the arrival of the answer (against
	// B10).
	FromAnswer bool
	// OpenLate is how much later than its session was opened a client
	// counts the lease of the open (an open that was tried again and counts
	// from the second try, against B10).
	OpenLate time.Duration
	// Suspends is how many units of time may pass of which the first
	// client's clock knows nothing, as CLOCK_MONOTONIC on Linux knows
	// nothing of a suspend (against B10).
	Suspends int
}

// The properties, as package explore explains them.
const (
	TwoHolders  = "two holders"
	TooEarly    = "ended too early"
	LostWrite   = "lost write"
	ZombieWrite = "write under a revoked token"
	Unread      = "expired with a keepalive unread"
	Diverged    = "replicas differ"
	OpenedEarly = "granted while closed"
	Orphan      = "a session of nobody"
	ShutTooLong = "closed too long"
	Unordered   = "out of order"
	Fenced      = "a holder is fenced"
	Broken      = "broken state"
)

// Small is the standard world, from a cold start: two clients that both want
// two locks, one change of leader. T is four units.
func Small() Config {
	const unit = 250 * time.Millisecond
	return Config{
		Unit: unit, Tick: unit / 2, TTL: []time.Duration{4 * unit, 4 * unit},
		Units: 7, Depth: 8, InFlight: 2,
		Wants:         [][]string{{"x", "y"}, {"x", "y"}},
		LeaderChanges: 1,
	}
}

// Warm is the world in which rules are taken out: A holds x, and B waits for
// it, patiently.
func Warm() Config {
	c := Small()
	c.Warm, c.TTL[1] = true, 400*c.Unit
	c.Wants = [][]string{{"x"}, {"x"}}
	c.Depth, c.Deep = 16, true
	return c
}
