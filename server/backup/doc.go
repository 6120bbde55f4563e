// Package backup keeps a lock service's state in a file, and makes a new
// service from such a file or from what a lone survivor has on its disk.
//
// A file holds one state at one index, in core's canonical encoding, with a
// header that says what it is and a SHA-256 over all. [Write] makes it from a
// clone of a state while the service goes on; [Read] accepts it only if every
// byte is as it was written and the state in it holds core's invariants, and
// says by name what is wrong with any other.
//
// [Restore] and [Recover] are the starts that are not by quorum (PROTOCOL A4):
// they raise the epoch, so that every number given out from now on is above
// whatever the lost run gave out, void all sessions, draw a new incarnation,
// and write a data directory whose only member is a new node. The directory
// is there as a whole or not at all, whatever dies in between. ADR 0020 says
// why.
//
// The package may import server/core and server/store. It never talks to a
// running node. Start reading at [Header], then [Restore].
package backup
