// Package memlock is the Holdfast lock service within one process: the same
// lock state machine and the same lease machine as the server, without a log,
// a disk or a network. It is for tests, and for programs whose goroutines need
// fenced locks among themselves. When the process ends, everything is
// forgotten; a new service has a fence domain of its own, so that gates refuse
// its tokens until an operator moves them.
//
// All time comes from package time, so a [Service] made in a testing/synctest
// bubble runs on virtual time; give its lockers a Clock that does, too.
//
// It imports holdfast, driver, fence, server/core and server/lease. Start
// reading at [Service.Locker], then service.go.
package memlock
