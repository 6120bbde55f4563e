package main

import (
	"path/filepath"
	"testing"

	"holdfast/engine/cluster"
)

// What a killed server left on its disk goes on as a new service, above
// everything that it gave out; the old directory stays, and no server may be
// using it.
func TestRecoverFromAKilledServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "old")
	s := serveOn(t, data)
	client := s.connect(t)
	if _, err := client.Put(t.Context(), "kept", []byte("stays"), cluster.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	last := take(t, client, "paper").Token()
	args := []string{"recover", data, "--data", filepath.Join(dir, "new"), "--i-am-the-only-one", "--keep-domain"}
	run(t, 1, nil, args...).says("in use")
	s.kill9()
	inside := filepath.Join(data, "new")
	run(t, 1, nil, "recover", data, "--data", inside, "--i-am-the-only-one", "--keep-domain").says(inside+" lies inside "+data, "node's data directory")
	b := begun(t, run(t, 0, nil, append(args, "-o", "json")...))
	if b.Survivor == nil || b.Survivor.Last < b.Survivor.Committed || b.LastNumber != last.Number || b.Ended["grants"] != 1 {
		t.Errorf("%+v, %+v", b, b.Survivor)
	}
	again := serveOn(t, b.Data)
	next := take(t, again.connect(t), "paper").Token()
	if next.Number <= last.Number || next.Domain != last.Domain || next.Incarnation == last.Incarnation {
		t.Errorf("token %v after %v", next, last)
	}
	if l, ok := again.lock(t, "kept"); !ok || string(*l.Value) != "stays" {
		t.Errorf("the value: %+v", l)
	}
	// The old data is as it was: it can be looked at once more.
	run(t, 0, nil, "recover", data, "--data", filepath.Join(dir, "copy"), "--i-am-the-only-one", "--new-domain")
	run(t, 1, nil, args...).says("not empty")
}
