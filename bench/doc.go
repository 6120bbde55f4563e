// Command bench measures the lock service and prints one table: acquire and
// release of uncontended locks, hand-off of one contended lock, and keepalives,
// each with its rate, median and 99th percentile. make bench runs it; it takes
// less than a minute.
//
// The benchmarks themselves are Go benchmarks, in engine/cluster/bench_test.go:
// a server in a process of its own, every grant and release synced to its log
// on the disk below the temporary directory (set TMPDIR to choose another), and
// one client. bench runs them, and first measures what one write and sync cost
// on that disk, because a lone worker waits for two of them each round. It may
// import anything public. Start reading at main.
package main
