// Package replica is the lock service under consensus: package core driven by
// raft (go.etcd.io/raft/v3), as a pure step machine. Ticks, messages,
// proposals, read requests and finished disk writes come in by method calls;
// what is to be done comes out of [Machine.Advance] in order, through
// [Effects]. It starts no goroutine, reads no clock and does no I/O (only
// raft's own election jitter is random), so the simulator runs it as it is.
// Its goroutine shell is in package server.
//
// It imports core and raft. The disk stands behind [Storage], which package
// store implements; the shell, not the machine, calls it. Everything carries a
// group ID, so that one process can run many groups one day.
//
// Start reading at [Machine], then [Effects].
package replica
