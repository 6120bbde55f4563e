// Package lease is the leader's deadline machine: it decides, and core only
// records, when a silent session is suspected, cleared and expired, when a
// closed lock opens again, and when a grant is taken back (PROTOCOL B1–B11,
// and the timing of B13).
//
// It is pure. Instants, arrivals, applied entries and raft's answers come in by
// method calls; proposals, answers to keepalives and the instant of the next
// turn go out of [Machine.Turn]. It reads no clock, starts no goroutine, draws
// no random number and imports server/core only. One goroutine owns a Machine.
//
// Two kinds of time meet here, and are never mixed. An [Instant] is this
// machine's CLOCK_MONOTONIC, meaningless elsewhere; a core.Clock is the log's
// duration, which all leaders continue in turn. The map between them is in
// clock.go: it never runs faster than real time, and stands still while the
// process was stalled (B9). No wall time occurs at all.
//
// How a shell drives it: after any batch of calls it calls Turn once, does what
// the [Effects] say, and comes back by Effects.Wake at the latest.
//
// Start reading at [Machine.Turn], then keepalive.go for who is answered when,
// then deadlines.go for what is proposed when.
package lease
