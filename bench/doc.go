// Command bench measures the lock service and prints two tables. make bench
// runs it; it says beforehand how long each part takes, some eight minutes in
// all.
//
// The first is of rates: acquire and release of uncontended locks, hand-off of
// one contended lock, and keepalives, each with its rate, median and 99th
// percentile. These are Go benchmarks, in engine/cluster/bench_test.go: a
// server in a process of its own, every grant and release synced to its log on
// the disk below the temporary directory (set TMPDIR to choose another), and
// one client. bench runs them, and first measures what one write and sync cost
// on that disk, because a lone worker waits for two of them each round.
//
// The second is of the longest gap without a successful acquire when the leader
// of three nodes is killed, beside that of etcd (bench/gap).
//
// It may import anything public. Start reading at main.
package main
