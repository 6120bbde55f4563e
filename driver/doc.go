// Package driver is what an engine implements so that package holdfast can
// offer its lockers on it: a few calls on sessions, and errors that say what
// became of the call. It knows package fence and nothing else of ours. Users of
// Holdfast do not need it.
//
// An engine moves requests and answers; it keeps no lease. The watchdog in
// package holdfast decides when to keep alive, when to retry and when a grant
// is lost. Package drivertest is the contract as a test suite: an engine is
// done when drivertest.Fenced passes. Start reading at [Driver].
package driver
