package server

import (
	"fmt"
	"testing"
	"time"

	"holdfast/server/core"
)

// TestSnapshotsOfNothing: a snapshot is of entries that were applied since the
// newest one. Bytes alone are no reason: they may have been logged and not be
// applied yet, and a second snapshot of one index is refused by the log.
func TestSnapshotsOfNothing(t *testing.T) {
	cfg := NodeConfig{SnapshotEntries: 1000, SnapshotBytes: 1}
	for _, c := range []struct {
		entries, bytes uint64
		due            bool
	}{{0, 0, false}, {0, 1, false}, {0, 1 << 40, false}, {1, 0, false}, {1, 1, true}, {1000, 0, true}} {
		if got := cfg.snapshotDue(c.entries, c.bytes); got != c.due {
			t.Errorf("%d entries, %d bytes: %v, want %v", c.entries, c.bytes, got, c.due)
		}
	}
	n := startTestNode(t, func(c *NodeConfig) { c.SnapshotEntries, c.SnapshotBytes = 1<<40, 1 })
	a := n.open("a", time.Minute)
	for i := range uint64(50) {
		g := n.granted(n.acquire(a, 0, i+1, fmt.Sprint("l", i)))
		n.do(core.Release{Session: a, Grant: g.Number})
	}
	n.restart()
	if p := n.keepalive(a); p.Err != nil {
		t.Error(p.Err)
	}
}
