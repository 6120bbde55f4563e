// Package drivertest is the contract of engines as test suites: an engine with
// fencing tokens is done when [Fenced] passes, one without when [Efficiency]
// does. No case can be skipped; a difference between engines is a type, so
// engines whose operators can take grants back also pass [Revocable].
//
// The suites drive package holdfast, the client that users get, over a [Link]
// that loses, delays and refuses calls, and check what came of it: the ledger
// of a resource, the queue, and the other clients. A harness runs them on
// virtual time in testing/synctest bubbles, or on real time.
//
// It imports fence, driver and holdfast. Start reading at [World]; then
// fenced.go lists the cases.
package drivertest
