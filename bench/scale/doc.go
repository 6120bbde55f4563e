// Command scale fills a cluster of three real nodes on this machine with very
// many sessions and locks, and measures what becomes of it: memory, snapshots
// and the pause they cause, restarts, a member that starts from nothing, the
// death of the leader, and a backup. make bench-scale runs it at full size,
// 100,000 sessions that hold 1,000,000 locks; docs/PERFORMANCE.md has the
// figures.
//
// The sessions are those of few client processes: each line (line.go) is one
// connection with one stream, and sends many frames a message, as the Go client
// does for the sessions of one program. It keeps them alive honestly: every
// sixth of the TTL, and at once when it meets another leader. A probe (probe.go)
// is a Go client that takes and gives back one lock all the time; the longest
// gap between two grants is what users notice. Start reading at run.
package main
