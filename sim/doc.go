// Package sim is the room in which the real machines of the house meet under
// time, networks and failures that a program invents: no sockets, no
// goroutines, no clock. It holds no code of its own yet; its parts are
//
//   - explore: every order of events of a small world (two sessions, two
//     locks, one change of leader), to a stated depth, and long stories under
//     a policy; it must find nothing with all rules in, and each failure that
//     the protocol names when its rule is taken out.
//
// The room may import server/core, server/lease, server/replica,
// internal/watchdog, fence and gate/memgate: the real ones. What is invented
// here (time, network, disk, the raft group as far as a part does without it)
// must be able to do everything that the real thing can do, and nothing that it
// cannot; each part's doc says where it falls short of that.
//
// Start reading at package explore.
package sim
