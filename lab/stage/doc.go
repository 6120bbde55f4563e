// Package stage holds what the drill (holdfast drill) and the lab (holdfast
// lab) are played with: the resource, the workers that fight for it, and the
// broom.
//
//   - A [Ledger] is a table in SQLite behind the real gate, with the one switch
//     that matters: whether tokens are compared. [Corruption] judges it. The
//     drill also plays with one in PostgreSQL and one that is a file.
//   - A [Worker] holds the lock and writes. It is told word by word what to do
//     (words.go) and tells what it did ([Said]), so that it can be stopped
//     between any two steps, as under a debugger. [RunWorker] is its program;
//     [StartProcess] runs that in a process of its own, which SIGSTOP pauses
//     for real; [StartInProcess] runs the same program in this process, for
//     systems without such signals, with its line and its clock made to stand
//     still.
//   - A [Node] is a process of a lock service that is a cluster of several.
//   - A [Sweeper] is a process that removes a directory of [MakeDir] when the
//     program that started it has ended, however it ended.
//
// A worker's steps, and what it says, in order:
//
//	acquire  → queued, if it must wait → acquired (its gate is armed, and the
//	           ledger's last line is read), or gave-up after a release while
//	           it waits, or error and then gave-up
//	write    → looked, then at once wrote or refused
//	poise    → looked, and it stands before the write; nothing is asked again:
//	           go → wrote or refused
//	release  → released
//
// In between come pulse, at each renewal, and lost, when the watchdog gives
// up. A worker whose look says that it holds nothing any more does not write;
// one that is poised has looked already, and that is the whole lesson.
//
// The package may be imported by lab and cmd/holdfast. It imports what a user
// would: engine/cluster, gate/sqlgate, gate/filegate, fence. Start reading at words.go, then
// program.go.
package stage
