package server

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// takesAll is a storage that has done what it is told.
type takesAll struct{ replica.Storage }

func (takesAll) Append(*raftpb.HardState, []*raftpb.Entry, *raftpb.Snapshot) error { return nil }
func (takesAll) Close() error                                                      { return nil }

// The state in a received snapshot is decoded by the disk's goroutine: on the
// loop a large one would stop heartbeats, and after ten seconds the process.
func TestReceivedSnapshotIsDecodedByTheDisk(t *testing.T) {
	blank, err := replica.Blank(core.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := replica.New(replica.Config{Group: 1, ID: 1, Snapshot: blank})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := replica.Bootstrap(core.New(core.Config{Domain: [16]byte{7}}), []uint64{1})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 1)
	d := startDisk(takesAll{}, func() time.Duration { return 1 }, func() { done <- struct{}{} })
	d.push(diskJob{append: &replica.Append{Snapshot: snap}})
	<-done
	snap.Data = nil // who decodes now finds nothing
	for _, r := range d.results() {
		if err := m.StorageDone(*r.append, nil); err != nil {
			t.Fatal(err)
		}
	}
	if m.State().Domain() != [16]byte{7} {
		t.Errorf("the state is not the received one: %x", m.State().Domain())
	}
	d.close()
	<-d.ended
}
