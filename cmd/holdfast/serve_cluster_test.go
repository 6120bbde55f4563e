package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What cannot become a cluster ends at once, with why.
func TestServeClusterRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	three := "a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3"
	for _, c := range []struct {
		says []string
		args []string
	}{
		{[]string{"odd number", "3 or 5"}, []string{"--name", "a", "--initial-cluster", three + ",d=127.0.0.1:4"}},
		{[]string{"needs a name"}, []string{"--initial-cluster", three}},
		{[]string{"a, b, c, and not d"}, []string{"--name", "d", "--initial-cluster", three}},
		{[]string{"must differ"}, []string{"--name", "a", "--initial-cluster", "a=127.0.0.1:1,a=127.0.0.1:2,b=127.0.0.1:3"}},
		{[]string{"loopback", "insecure"}, []string{"--name", "a", "--peer-listen", "0.0.0.0:7434", "--peer-advertise", "h:1"}},
		{[]string{"peer-advertise"}, []string{"--name", "a", "--insecure", "--peer-listen", "0.0.0.0:7434"}},
		{[]string{"advertise must say"}, []string{"--name", "a", "--insecure", "--listen", "0.0.0.0:0", "--peer-listen", "127.0.0.1:7434"}},
		{[]string{"want host:port"}, []string{"--peer-listen", "nowhere"}},
		{[]string{"want 1–64"}, []string{"--name", "A"}},
	} {
		p := run(t, exitUsage, nil, append([]string{"serve", "--data", filepath.Join(dir, "data")}, c.args...)...)
		p.says(c.says...)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Error("a refused start made the directory")
	}
	run(t, exitUsage, []string{"HOLDFAST_INITIAL_CLUSTER=a"}, "serve", "--data", dir).says("HOLDFAST_INITIAL_CLUSTER", "name=host:port")
}

// A node that waits for the others can be stopped.
func TestServeStopsWhileFounding(t *testing.T) {
	t.Parallel()
	addr := freeAddress(t)
	p := start(t, nil, "serve", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--name", "a",
		"--initial-cluster", "a="+addr+",b="+freeAddress(t)+",c="+freeAddress(t))
	eventually(t, "it says whom it waits for", func() bool { return len(p.stderr.String()) > 0 })
	p.signal(unix.SIGTERM)
	p.expect(0).says("not founded yet")
}

// A node without its data is told how to take its place again.
func TestServeWithoutItsData(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, "--log-level", "warn")
	lost := f.nodes[2]
	f.kill(lost)
	if err := os.RemoveAll(lost.args[4]); err != nil {
		t.Fatal(err)
	}
	run(t, exitFailure, nil, lost.args...).says("holdfast cluster remove n3", "holdfast cluster add", "--join")
}
