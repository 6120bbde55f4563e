// Command holdfast is the whole of Holdfast in one binary: the lock service
// (serve, dev), the command line that guards a program with a lock (run), and
// the tools of an operator (lock, session, version).
//
// It wires packages together and holds no rule of the lock service: it may
// import any public package of the module, wire, and server with its rooms.
// There is one file, and one test, a subcommand; main_test.go starts the real
// binary for them.
//
// Start reading at newRoot in root.go. The one part with an own machinery is
// run: run.go parses and acquires, lease.go follows the grant, and three
// processes share the work (see the comment on type guardian in guard.go):
// the wrapper holds the lease, the guardian holds the process group, and the
// child is a short stub that becomes the user's program once both stand.
// schedule.go, the pure machine that decides when the group is ended, runs in
// the guardian and a second time in the wrapper, should the guardian be stopped.
package main
