// Package core is the lock service as a pure function: an entry of the log
// goes in, results and events come out. It reads no clock, draws no random
// number, starts no goroutine, logs nothing, and lets no map order reach an
// output, so equal logs give equal states on every replica (invariant 8).
//
// Time is only data here: the log says what the leader decided about silent
// sessions and timed grants (package server/lease), and core does as it is
// told. It imports nothing of ours.
//
// Start reading at [Command] and [State.Apply], then the numbered invariants
// on the types in items.go and at [State.Check]. One file a concern: session,
// lane (request identity), acquire, queue, grant, release, revoke, closing,
// value, events; codec*.go are the bytes of entries and snapshots, view.go is
// what others may see. testdata/transcripts shows each rule at work.
package core
