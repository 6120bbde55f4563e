// Package peer carries raft's messages between the members of a cluster, over
// a port of their own. It imports nothing of ours, knows no state and decides
// nothing about membership: whoever uses it says who the members are.
//
// A member dials each other member twice: a prompt line for votes, heartbeats
// and answers, and a bulk line for entries, so that the former never wait
// behind the latter. A line carries frames in one direction, in order; back
// come only the answers to its handshake and its pings. A snapshot travels on a
// line of its own (snapshot_send.go, snapshot_take.go). What cannot be sent is
// dropped, and raft is told: nothing here blocks the caller.
//
// Before a line carries anything its two ends compare who they are (hello.go):
// a member of another incarnation, a removed one, or one that looks for
// somebody else is refused by name, and both ends log it. The one thing that
// is answered without that is the question who listens here ([Ask]), by which
// the founders of a cluster find each other.
//
// Start reading at [Port], then [Hello].
package peer
