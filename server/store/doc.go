// Package store keeps one member's raft log, hard state and snapshots on
// disk. It is a thin wrapper on etcd's write-ahead log and snapshot files: it
// adds what these leave to their user, and stands behind the Storage seam
// that package replica declares.
//
// What it adds: one owner a directory; a first start that a crash cannot leave
// half done; errors that are sticky (the first failed call poisons the store,
// because after a failed fsync the page cache reads well what the disk never
// got); a fresh copy of the last segment at every open, for the same reason;
// a check at every open that the log continues its snapshot, has no hole, and
// reaches as far as was ever acknowledged; and an order of snapshot, record
// and purge in which a crash at any point leaves a complete store (D3, D4).
//
// A directory holds
//
//	LOCK              locked by the process that uses the directory
//	META              format version, node, group and incarnation
//	group-…/wal/      segments of the log (etcd's format)
//	group-…/snap/     snapshots (etcd's format)
//	group-…/mark      how far the log was synced
//
// The package imports nothing of ours. Start reading at [Open], then
// [Store.Append].
package store
