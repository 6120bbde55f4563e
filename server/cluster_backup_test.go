package server

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"holdfast/server/backup"
	"holdfast/server/core"
)

// A backup is taken where the cluster leads; a follower says where that is,
// unless whatever it has is good enough.
func TestBackupOfACluster(t *testing.T) {
	r := newCluster(t, 3)
	s := r.open("a", time.Minute)
	r.acquire(s, 1, "l")
	r.equal()
	leader := r.leader()
	follower := r.other(leader)
	_, err := follower.node.Image(t.Context(), false)
	var away *NotLeaderError
	if !errors.As(err, &away) || away.Leader != leader.node.Status().NodeID || away.Addr != leader.cfg.Peers.ClientAddr {
		t.Errorf("a follower answers %v", err)
	}
	stale, err := follower.node.Image(t.Context(), true)
	if err != nil || !stale.Info.Stale {
		t.Fatalf("%+v, %v", stale.Info, err)
	}
	image, err := leader.node.Image(t.Context(), false)
	if err != nil || image.Info.Stale || image.State.LastNumber() != stale.State.LastNumber() {
		t.Fatalf("%+v, %v", image.Info, err)
	}
	if image.State.Index() == stale.State.Index() && image.State.Hash() != stale.State.Hash() {
		t.Error("two images of one entry differ")
	}
}

// alone starts a node on a directory that was restored or recovered, with the
// name and the addresses of the first member of a new rig.
func alone(t *testing.T, dir string) *rig {
	t.Helper()
	r := newClusterRig(t, 1)
	r.nodes[0].cfg.Dir = dir
	r.nodes[0].cfg.Peers.Founders = nil
	r.start(r.nodes[0])
	r.leader()
	return r
}

// The disk of one member of three, which had all that was acknowledged, goes
// on as a service of its own; what the other two still give out lies below.
func TestLoneSurvivorOfAClusterGoesOn(t *testing.T) {
	r := newCluster(t, 3)
	s := r.open("a", time.Minute)
	held := r.acquire(s, 1, "paper")
	r.do(core.Put{Lock: "kept", Value: []byte("stays")})
	r.equal()
	survivor := r.other(r.leader())
	survivor.stop()
	late := r.acquire(s, 2, "elsewhere") // not on the survivor's disk
	lost := r.leader().node.Status()
	for _, m := range r.nodes {
		m.stop()
	}
	o := backup.Options{Dir: filepath.Join(t.TempDir(), "data"), Today: time.Now(), Logger: quietLog}
	found, begun, err := backup.Recover(survivor.cfg.Dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Others) != 2 || found.Others[0].Name == "" || found.Last < found.Committed {
		t.Errorf("found %+v", found)
	}
	anew := alone(t, o.Dir)
	st := anew.leader().node.Status()
	if st.Domain != lost.Domain || st.Incarnation == lost.Incarnation || st.Sessions != 0 || st.NodeID != begun.NodeID || st.Epoch != begun.Epoch {
		t.Errorf("status %+v", st)
	}
	anew.leader().view(func(x Reading) {
		if l, ok := x.State.Lock("kept", 0); !ok || string(l.Value) != "stays" {
			t.Errorf("the value: %+v", l)
		}
	})
	next := anew.acquire(anew.open("b", time.Minute), 1, "paper")
	if next.Number <= held.Number || next.Number <= late.Number {
		t.Errorf("%d after %d and %d", next.Number, held.Number, late.Number)
	}
}
