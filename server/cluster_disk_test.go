package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/driver/drivertest"
	"holdfast/server/core"
)

// renew sends a keepalive to a member and returns its answer; false if none
// came within the limit.
func (m *rigNode) renew(s core.SessionID, limit time.Duration) (Pulse, bool) {
	got := make(chan Pulse, 1)
	m.node.Keepalive(s, func(p Pulse) { got <- p })
	select {
	case p := <-got:
		return p, true
	case <-time.After(limit):
		return Pulse{}, false
	}
}

// renewed sends keepalives to whoever leads until one is answered.
func (r *rig) renewed(s core.SessionID, members ...*rigNode) {
	r.t.Helper()
	eventually(r.t, "a keepalive that is answered", func() bool {
		p, ok := r.leaderAmong(members...).renew(s, time.Second)
		if ok && errors.Is(p.Err, ErrSessionLost) {
			r.t.Fatalf("session %d is lost", s)
		}
		return ok && p.Err == nil
	})
}

// but are all members except one.
func (r *rig) but(out *rigNode) (rest []*rigNode) {
	for _, m := range r.nodes {
		if m != out {
			rest = append(rest, m)
		}
	}
	return rest
}

// TestCasebookC02_LeaderStuckInADiskWrite: the leader hangs in a write for twice
// a session's TTL. Another one leads, and the session is renewed there. What
// the old leader decided meanwhile has no effect, and it answers no renewal.
func TestCasebookC02_LeaderStuckInADiskWrite(t *testing.T) {
	t.Parallel()
	const ttl = core.MinTTL
	r := newCluster(t, 3)
	a := r.open("a", ttl)
	g := r.acquire(a, 1, "l")
	old := r.leader()
	rest := r.but(old)
	old.disk.door.Lock()
	open := true
	defer func() {
		if open {
			old.disk.door.Unlock()
		}
	}()
	stuck := make(chan Answer, 2)
	old.node.Submit(core.Put{Lock: "x"}, func(a Answer) { stuck <- a })
	end := time.After(2 * ttl)
	for over := false; !over; {
		r.renewed(a, rest...)
		select {
		case <-end:
			over = true
		case <-time.After(ttl / 5):
		}
		if p, ok := old.renew(a, 10*time.Millisecond); ok && p.Err == nil {
			t.Fatal("the stuck leader answered a renewal")
		}
	}
	old.disk.door.Unlock()
	open = false
	eventually(t, "it follows again", func() bool { ok, _ := old.node.Ready(); return ok })
	r.renewed(a, r.nodes...)
	r.equal()
	for _, m := range r.nodes {
		m.view(func(x Reading) {
			if h, ok := x.State.GrantByNumber(g.Number); !ok || h.Session != a {
				t.Errorf("%s: the grant is gone", rigName(m.i))
			}
		})
	}
}

// TestCasebookC03_LeadersDiskHangs: the leader's disk hangs for good, and its
// heartbeats would go on. It hands over or falls silent; log and readiness say
// why; the others serve.
func TestCasebookC03_LeadersDiskHangs(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	s := r.open("a", time.Hour)
	old := r.leader()
	rest := r.but(old)
	old.disk.door.Lock()
	defer old.disk.door.Unlock()
	old.node.Submit(core.Put{Lock: "x"}, func(Answer) {})
	lead := r.leaderAmong(rest...)
	if res, err := lead.node.Do(t.Context(), core.Acquire{Session: s, Request: core.Request{N: 1}, Lock: "l"}); err != nil || res.Status != core.Granted {
		t.Fatalf("%+v, %v", res, err)
	}
	eventually(t, "it says why it is not ready", func() bool {
		ok, why := old.node.Ready()
		return !ok && strings.Contains(why, "disk")
	})
	old.says("a write to the disk hangs")
	old.says("the node is silent")
	// It does not come back as the leader while its disk hangs.
	for range 30 {
		if st := old.node.Status(); st.Role == "leader" && st.Term > lead.node.Status().Term {
			t.Fatal("the node whose disk hangs leads again")
		}
		r.leaderAmong(rest...)
		<-time.After(clusterTick)
	}
}

// A follower whose disk hangs does not lead when the leader goes, and takes
// part again once its disk works.
func TestFollowersDiskHangs(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	lead := r.leader()
	sick := r.other(lead)
	sick.disk.door.Lock()
	s := r.open("a", time.Hour)
	sick.says("the node is silent")
	lead.stop() // now nobody has a quorum
	<-time.After(40 * clusterTick)
	for _, m := range r.but(lead) {
		if m.node.Status().Role == "leader" {
			t.Fatalf("%s leads with one disk that works", rigName(m.i))
		}
	}
	sick.disk.door.Unlock()
	r.leaderAmong(r.but(lead)...)
	r.start(lead)
	r.acquire(s, 1, "l")
	r.equal()
}

// TestCasebookC04_NodeThatCannotPersist: the leader's writes fail. Its store is
// poisoned and it ends, so that it does not stand again; the others go on.
func TestCasebookC04_NodeThatCannotPersist(t *testing.T) {
	r := newCluster(t, 3)
	s := r.open("a", time.Hour)
	g := r.acquire(s, 1, "l")
	old := r.leader()
	old.disk.failAt.Store(old.disk.calls.Load() + 1)
	old.node.Submit(core.Put{Lock: "x"}, func(Answer) {})
	select {
	case <-old.node.Done():
	case <-time.After(patience):
		t.Fatal("the node does not end")
	}
	if err := old.node.Err(); !errors.Is(err, ErrPoisoned) || !errors.Is(err, errDisk) {
		t.Errorf("it ended with %v", err)
	}
	old.node = nil
	r.leader()
	if next := r.acquire(s, 2, "m"); next.Number <= g.Number {
		t.Errorf("number %d after %d", next.Number, g.Number)
	}
	r.start(old)
	r.leader()
	r.equal()
}

// A follower is killed while it receives a snapshot, as often as one likes:
// what it had before it still has, and the next transfer brings it up.
func TestKilledWhileASnapshotComes(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3, func(c *NodeConfig) { c.SnapshotEntries, c.hooks.trailing = 60, 10 })
	s := r.open("holder", time.Hour)
	away := r.other(r.leader())
	away.stop()
	value := []byte(strings.Repeat("x", core.MaxValue))
	for i := range 130 {
		r.do(core.Put{Lock: "v" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Value: value})
	}
	r.acquire(s, 1, "l")
	for round := range 2 {
		slow := r.lines[[2]int{r.leader().i, away.i}]
		slow.Restore()
		up := make(chan error, 1)
		ctx := t.Context()
		slow.Delay(drivertest.ToServer, 30*time.Millisecond)
		go func() { up <- away.start(ctx) }()
		image := filepath.Join(t.TempDir(), "image")
		eventually(t, "a snapshot that is on its way", func() bool {
			slow.Delay(drivertest.ToServer, 30*time.Millisecond) // start restores the lines
			parts, _ := filepath.Glob(filepath.Join(away.cfg.Dir, "incoming", "*.part"))
			return len(parts) > 0
		})
		// What the disk has now is what it would have after a kill.
		away.disk.door.Lock()
		err := os.CopyFS(image, os.DirFS(away.cfg.Dir))
		away.disk.door.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := <-up; err != nil {
			t.Fatal(err)
		}
		away.stop()
		if parts, _ := filepath.Glob(filepath.Join(image, "incoming", "*.part")); len(parts) == 0 {
			t.Fatalf("round %d: the image has no part of a snapshot: the test shows nothing", round)
		}
		away.wipe()
		if err := os.Rename(image, away.cfg.Dir); err != nil {
			t.Fatal(err)
		}
	}
	r.heal()
	r.start(away)
	r.leader()
	r.equal()
	if left, _ := filepath.Glob(filepath.Join(away.cfg.Dir, "incoming", "*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

// A snapshot of its own that a received one has overtaken is dropped: the store
// would take it for a fault, and the node would end.
func TestOwnSnapshotThatIsOvertaken(t *testing.T) {
	var l *loop
	n := startTestNode(t, func(c *NodeConfig) { c.hooks.loop = func(x *loop) { l = x } })
	n.open("a", time.Hour)
	err := n.View(t.Context(), true, func(Reading) { // on the loop
		snap, err := l.m.View().Encode()
		if err != nil {
			t.Fatal(err)
		}
		l.net.received = snap.GetMetadata().GetIndex()
		l.snapshot.busy, l.snapshot.encoded = true, make(chan encodedSnapshot, 1)
		l.snapshot.encoded <- encodedSnapshot{snap: snap}
		jobs := len(l.outstanding)
		l.takeSnapshot()
		if l.snapshot.busy || len(l.outstanding) != jobs {
			t.Errorf("it went to the disk: busy %v, %d jobs more", l.snapshot.busy, len(l.outstanding)-jobs)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
