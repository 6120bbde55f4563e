package server

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// health is what the loop knows of its disk (D2, D3).
type health struct {
	slow   time.Duration // how long the oldest write takes, if too long; else 0
	silent bool          // it took twice too long: until a probe is synced
	probed bool          // the probe was handed over

	// least is the smallest TTL of leastOf sessions, as of leastAt.
	least, leastAt time.Duration
	leastOf        int

	spaceAsked    time.Duration
	free, reserve uint64
	low           bool // below the watermark

	stopping bool
}

// refusesGrowth says why commands that make the state or the log grow are
// refused; empty if they are not.
func (h *health) refusesGrowth() string {
	switch {
	case h.silent:
		return h.reason()
	case h.low:
		return h.reason() + "; releases and keepalives go on"
	}
	return ""
}

// starved reports whether even a follower must not let its log grow (D3).
func (h *health) starved() bool { return h.low && h.free < h.reserve/2 }

// reason says why the node is not healthy; empty if it is.
func (h *health) reason() string {
	switch {
	case h.stopping:
		return "stopping"
	case h.slow > 0:
		return fmt.Sprintf("disk: a write has not returned for %v", h.slow.Round(10*time.Millisecond))
	case h.silent:
		return "disk: a write took too long, and a probe write has not returned"
	case h.low:
		return fmt.Sprintf("disk: %d MiB are free in the data directory's file system: free space until there are %d MiB", h.free>>20, h.reserve>>20)
	}
	return ""
}

// push hands a job to the disk.
func (l *loop) push(j diskJob) {
	j.since = l.n.now()
	l.outstanding = append(l.outstanding, j.since)
	l.disk.push(j)
}

// flushDisk hands over the batches of this turn: normally one.
func (l *loop) flushDisk() {
	for i := range l.batches {
		if l.failed == nil {
			if s := l.batches[i].Snapshot; s != nil {
				l.net.received = s.GetMetadata().GetIndex()
			}
			l.push(diskJob{append: &l.batches[i]})
		}
	}
	l.batches = nil
}

// collectDisk looks at what the disk has done.
func (l *loop) collectDisk() {
	for _, r := range l.disk.results() {
		l.outstanding = l.outstanding[1:]
		if r.space {
			l.space(r)
			continue
		}
		if r.err != nil {
			l.fail(fmt.Errorf("%w: %w", ErrPoisoned, r.err))
		}
		if l.failed != nil {
			continue
		}
		switch {
		case r.append != nil:
			l.n.met.writes.Observe(r.took.Seconds())
			l.check(l.m.StorageDone(*r.append, l))
			if r.append.Snapshot != nil {
				l.n.hub.start(l.m.State().Revision())
				l.passed()
				l.checkRemoved()
				l.refreshMembers()
				l.log.Info("the state was taken from another member", "index", l.m.State().Index())
			}
		case r.snapshot != nil:
			l.snapshot.busy = false
			l.n.met.snapshots.Inc()
			l.check(l.m.SnapshotSaved(r.snapshot))
		case r.probe:
			l.health.silent, l.health.probed = false, false
			l.log.Info("the disk works again")
		}
	}
}

func (l *loop) check(err error) {
	if err != nil {
		l.fail(err)
	}
}

// space looks at the watermark.
func (l *loop) space(r diskResult) {
	if r.err != nil {
		l.log.Warn("the free space is unknown", "error", r.err)
		return
	}
	h := &l.health
	h.free, h.reserve = r.free, r.reserve
	if low := r.free < r.reserve; low != h.low {
		h.low = low
		if low {
			l.log.Warn("too little space: new sessions, locks and values are refused", "free", r.free, "want", r.reserve)
		} else {
			l.log.Info("enough space again", "free", r.free)
		}
	}
	if h.low {
		l.handOver("too little disk space")
	}
	l.n.met.free.Set(float64(r.free))
}

// checkDisk looks at how long the oldest write takes (D2). Past the limit a
// leader hands over, if there is somebody; past twice the limit the node is
// silent until a probe write was synced: it sends nothing and does not tick, so
// that others elect a leader. A lone voter says that it is not ready, and then
// takes no new work.
func (l *loop) checkDisk() {
	h := &l.health
	h.slow = 0
	if len(l.outstanding) == 0 {
		if h.silent && !h.probed {
			h.probed = true
			l.push(diskJob{probe: true})
		}
		return
	}
	age := l.n.now() - l.outstanding[0]
	if age < core.MinTTL/4 {
		return // below every limit
	}
	if limit := l.diskLimit(); age > limit {
		h.slow = age
		l.handOver("a write to the disk hangs")
		if age > 2*limit && !h.silent {
			h.silent = true
			l.log.Warn("a write hangs: the node is silent, and takes no new work, until the disk works", "for", age)
		}
	}
}

// diskLimit is min(election timeout, smallest T/4). While a snapshot is
// written, or a received one is written and decoded, which is large, it is ten
// times that.
func (l *loop) diskLimit() time.Duration {
	limit := electionTicks * l.n.cfg.Tick
	limit = min(limit, l.leastTTL()/4)
	if l.snapshot.busy || l.m.State().Index() < l.net.received {
		limit *= 10
	}
	return limit
}

// leastTTL is the smallest of all sessions. It looks at all of them, thus at
// most once a second unless there are more or fewer.
func (l *loop) leastTTL() time.Duration {
	h, now, n := &l.health, l.n.now(), l.m.State().SessionCount()
	if h.leastAt != 0 && now-h.leastAt < time.Second && h.leastOf == n {
		return h.least
	}
	h.least, h.leastAt, h.leastOf = core.MaxTTL, now, n
	l.m.State().EachSessionTiming(func(t core.SessionTiming) bool {
		h.least = min(h.least, t.TTL)
		return true
	})
	return h.least
}

// snapshotting is a snapshot under way: encoded and staged by a goroutine of
// its own, so that no batch of the log waits for its bytes, then put in its
// place by the disk's (D4).
type snapshotting struct {
	busy    bool
	encoded chan encodedSnapshot
}

type encodedSnapshot struct {
	snap *raftpb.Snapshot
	err  error // of the encoding
	disk error // of the store
	// How long each step took.
	encode, stage time.Duration
}

// snapshotDue says whether what was applied and logged since the newest snapshot
// is enough for the next one. (What was logged need not be applied yet.)
func (c *NodeConfig) snapshotDue(entries, bytes uint64) bool {
	return entries > 0 && (bytes >= c.SnapshotBytes || entries >= c.SnapshotEntries)
}

// takeSnapshot starts one when enough was logged, and hands an encoded one to
// the disk.
func (l *loop) takeSnapshot() {
	s := &l.snapshot
	select {
	case e := <-s.encoded:
		if e.err != nil {
			l.fail(&replica.HaltError{Err: fmt.Errorf("encoding a snapshot: %w", e.err)})
		} else if e.disk != nil {
			l.fail(fmt.Errorf("%w: writing a snapshot: %w", ErrPoisoned, e.disk))
		} else if e.snap.GetMetadata().GetIndex() <= l.net.received {
			s.busy = false // a received one overtook it
		} else if l.failed == nil && !l.health.stopping {
			l.n.met.steps.WithLabelValues(stepEncode).Observe(e.encode.Seconds())
			l.n.met.steps.WithLabelValues(stepWrite).Observe(e.stage.Seconds())
			l.push(diskJob{snapshot: e.snap})
		}
	default:
	}
	entries, bytes := l.m.Logged()
	due := l.n.cfg.snapshotDue(entries, bytes) || l.m.SnapshotWanted()
	if s.busy || l.failed != nil || l.health.stopping || !due {
		return
	}
	s.busy, s.encoded = true, make(chan encodedSnapshot, 1)
	view, out := l.m.View(), s.encoded
	l.workers.Go(func() {
		e, began := encodedSnapshot{}, l.n.now()
		e.snap, e.err = view.Encode()
		encoded := l.n.now()
		if e.encode = encoded - began; e.err == nil {
			e.disk = l.disk.store.StageSnapshot(e.snap)
			e.stage = l.n.now() - encoded
		}
		out <- e
		l.n.in.wake()
	})
}

// publish shows the node's present status to other goroutines.
func (l *loop) publish() {
	role, st := l.m.Role(), l.m.State()
	s := Status{
		NodeID: l.id, LeaderID: role.Leader, LeaderAddr: l.net.members[role.Leader].ClientAddr, Version: st.Version(), Term: role.Term, Role: "follower",
		Applied: st.Index(), Domain: st.Domain(), Incarnation: st.Incarnation(),
		Epoch: st.Epoch(), LastNumber: st.LastNumber(), Revision: st.Revision(), Clock: st.Clock(),
		Sessions: st.SessionCount(), Locks: st.LockCount(), Reason: l.health.reason(),
	}
	switch {
	case l.leading:
		s.Role = "leader"
	case role.Leader == 0:
		s.Role = "candidate"
	}
	switch {
	case l.failed != nil:
		s.Reason = l.failed.Error()
	case s.Reason == "" && !l.leading && role.Elected:
		s.Reason = "starting: the log is being applied"
	case s.Reason == "" && st.Index() == 0:
		s.Reason = "joining: the state has not been received yet"
	case s.Reason == "" && role.Leader == 0:
		s.Reason = "no leader is elected"
	}
	s.Ready = s.Reason == ""
	if old := l.n.status.Load(); old == nil || *old != s {
		l.n.status.Store(&s)
		l.n.met.show(s)
	}
	if l.net.port != nil {
		h := &l.health
		l.net.port.SetUnfit(h.low || h.slow > 0 || h.silent || h.stopping || l.leaving)
		l.net.port.SetNoRoom(h.starved())
	}
	if (l.leading || role.Leader != 0 && role.Leader != l.id) && !l.led {
		l.led = true
		close(l.n.led)
	}
}
