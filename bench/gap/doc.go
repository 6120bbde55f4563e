// Package gap measures how long a lock service of three nodes grants nothing
// when its leader dies: the longest gap between two successful acquires, of
// whichever worker, around a kill -9 (and around an orderly stop). make bench
// prints it for Holdfast and for etcd.
//
// Everything that decides a figure is here, once, for both services: the
// workers' loop (load.go), the clock and the sums (timeline.go), the three
// processes and what is done to them (trio.go, measure.go), the table
// (table.go). A [Service] says only how one of its nodes is started, what a
// node says of itself, and how a lock is taken with the service's own client:
// [Holdfast] through engine/cluster, [Etcd] through the process
// internal/tools/etcdlock (ADR 0028). Start reading at [Measure].
package gap
