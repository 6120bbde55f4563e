// Package explore tries every order of events of a small world of real
// machines: server/core and server/lease as the nodes, internal/watchdog as
// the clients, fence.Judge as the gate. [Explore] is exhaustive to a depth and
// returns the shortest story that breaks a property; [Flap], [Stall] and
// [Patience] tell long stories under one policy, for failures that need a long
// time rather than an odd order.
//
// The properties:
//
//  1. Two holders: no two clients believe at one instant that they hold one
//     exclusive lock, however messages and nodes are delayed. All clocks run at
//     one rate, so the clients' margin is next to nothing here.
//  2. Ended too early: no session expires less than T after the arrival of a
//     keepalive that was answered "alive".
//  3. Lost write: no write lands on a resource that another's write changed
//     since it was read.
//  4. Write under a revoked token: after a revoke at once, and arming with the
//     token that it returned, no write of the old grant lands.
//  5. Expired with a keepalive unread: no leader expires a session while a
//     keepalive of it lies in a socket of that leader.
//  6. Broken state: every state passes core's own check, and the log's clock
//     never falls.
//  7. Replicas differ: two nodes that applied the same entries have the same
//     state.
//  8. Granted while closed: no grant before the end of the closing that a grant,
//     a release or an unconfirmed end calls for.
//  9. Closed too long: no lock is closed for longer than that.
//  10. A session of nobody: there are never more sessions than clients.
//  11. Out of order: grants follow the queue, the head of a queue that has room
//     is granted at once, numbers and tokens rise, a shared run has one token.
//  12. A holder is fenced: no gate refuses a token while its holder rightly
//     believes that it holds.
//
// What is invented: time passes in equal units. A message may be delivered in
// any order, late, never, or twice; of each client the two youngest a way are
// kept, an older one is lost. The raft group is a log: a leader's entries are
// committed in order, at any time later; a new leader inherits what is
// committed, and any more of what its predecessor had appended; the old one
// may go on unawares, apply what was inherited, answer, and be confirmed only
// by what was asked before the change. A client's pause needs no event of its
// own: a client whose messages are all late is a client that does not run, its
// belief is read from its clock, and a worker between its check and its write
// may stay there for ever.
//
// Rules are taken out by [Config]: lease.Weakening, [ClientWeakening], and
// [Rewrite] for core, which changes what a command says before it is applied.
//
// Which rule is found missing by which test, and how deep each world with all
// rules in is explored, stands in package sim. Within B7 the worst that the
// sweep finds with all rules in is 1.7 T.
//
// With [Config].Deep a world in which only one client can still hold or write
// is not followed any further; that is what makes the deeper runs affordable.
//
// Everything is deterministic; there are no goroutines. Start reading at
// [Explore], then [world.actions].
package explore
