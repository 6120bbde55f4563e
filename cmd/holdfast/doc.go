// Command holdfast is the whole of Holdfast in one binary: the lock service
// (serve, dev), the command lines that guard a program with a lock (run, elect),
// and the tools of an operator (lock, session, version).
//
// It wires packages together and holds no rule of the lock service: it may
// import any public package of the module, wire, and server with its rooms.
// There is one file, and one test, a subcommand; main_test.go starts the real
// binary for them.
//
// Start reading at newRoot in root.go. The one part with an own machinery is
// run, which needs Linux: run.go parses, acquires and releases, and three
// processes share the work (see the comment on type guardian in guard.go): the
// wrapper (wrapper.go) follows the lease, the guardian (guard.go) ends the
// process group, and the child is a short stub (spawn.go) that becomes the
// user's program once both stand. schedule.go, the pure machine that decides
// when the group is ended, runs in the guardian and a second time in the
// wrapper, should the guardian be stopped. tty.go is the terminal's part.
// elect starts such a wrapper for each time in office; guarded.go is what it and
// run have in common.
package main
