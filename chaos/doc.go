// Command chaos breaks a real cluster on a real network and judges from outside
// what came of it. make chaos runs it.
//
// It starts three and then five servers, each a process in a network namespace
// of its own, and client processes, likewise, that take locks and write through
// real gates (PostgreSQL and files) into a ledger. It kills, stops, cuts off,
// delays and fills up what it can for the time it is given, waits after each
// fault until everybody is served again, and then compares what the clients
// noted, what the ledger holds, what the service told a watcher, and the
// servers' own states. It knows nothing of the inside of the service.
//
// How it is divided:
//
//   - main.go, run.go: the flags; one run from its set-up to its table;
//   - network.go, cable.go, process.go, server.go, disk.go, certs.go: what is
//     broken, and the means to break it;
//   - faults.go: the faults; each says what it does and undoes it;
//   - worker.go, ledger.go: a client process, which is this program called as
//     "chaos worker SPEC";
//   - history.go, watch.go, readback.go: what the clients noted, what the service
//     told, what the resources hold;
//   - check.go, linear.go, table.go: the judgement, which is pure, and the table.
//
// Without root there are no namespaces: then all run on the loopback, and the
// faults of the network are left out, which the run says. Everything that a run
// makes carries its process's number, and the next run removes what one that was
// killed left behind (sweep.go).
//
// It may import anything public, wire, server's rooms, and internal/pgtest (ADR
// 0033). Start reading at main, then run.go.
package main
