package server

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"holdfast/server/backup"
	"holdfast/server/core"
)

// grow adds members to a service that began anew, until it has three, and
// checks that all have one state.
func (r *rig) grow(incarnation uint64) {
	r.t.Helper()
	eventually(r.t, "the node's own name in the log", func() (told bool) {
		r.nodes[0].view(func(x Reading) {
			members, _ := x.State.Members()
			told = members[0].Name == "a"
		})
		return told
	})
	for _, all := range []string{"ab", "abc"} {
		r.add(r.joiner())
		r.voters(all)
	}
	r.equal()
	for _, m := range r.nodes {
		if st := m.node.Status(); st.Incarnation != incarnation {
			r.t.Errorf("%s is of incarnation %x, want %x", rigName(m.i), st.Incarnation, incarnation)
		}
	}
}

// A backup of a cluster, restored: one node, which then grows to three.
func TestRestoredServiceGrowsToThree(t *testing.T) {
	r := newCluster(t, 3)
	s := r.open("a", time.Minute)
	held := r.acquire(s, 1, "paper")
	r.do(core.Put{Lock: "kept", Value: []byte("stays")})
	image, err := r.leader().node.Image(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := backup.Write(&file, image.State, backup.Info{Term: image.Term, TakenAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	o := backup.Options{Dir: filepath.Join(t.TempDir(), "data"), Today: time.Now(), Logger: quietLog}
	_, begun, err := backup.Restore(&file, o)
	if err != nil {
		t.Fatal(err)
	}
	anew := alone(t, o.Dir)
	anew.grow(begun.Incarnation)
	// The founder of the new run goes: the two that joined have it all.
	first := anew.nodes[0]
	first.stop()
	anew.leader().view(func(x Reading) {
		if l, ok := x.State.Lock("kept", 0); !ok || string(l.Value) != "stays" || x.State.Epoch() != begun.Epoch || x.State.SessionCount() != 0 {
			t.Errorf("epoch %d, %+v", x.State.Epoch(), l)
		}
	})
	if g := anew.acquire(anew.open("b", time.Minute), 1, "paper"); g.Number <= held.Number || g.Number < begun.Lowest {
		t.Errorf("%d after %d", g.Number, held.Number)
	}
}
