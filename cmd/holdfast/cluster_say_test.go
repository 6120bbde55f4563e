package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Who adds a node by its port for clients is told that, long before the
// command's own time is up; a denied call is on record without an ID that
// nobody knows yet.
func TestClusterAddSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens, token := filepath.Join(dir, "tokens"), strings.Repeat("t", 40)
	if err := os.WriteFile(tokens, []byte("ann:"+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startService(t, "serve", "--name", "n1", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--operator-token-file", tokens)
	client := dev(t)
	mine := filepath.Join(dir, "mine")
	if err := os.WriteFile(mine, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, exitUsage, s.on(), "cluster", "add", "n5", "--peer", client.addr, "--operator-token-file", mine).
		says("no new node answers at "+client.addr, "is that the port for members?")
	eventually(t, "a cluster version that knows records", func() bool {
		return strings.Contains(run(t, 0, s.on(), "cluster", "status", "-o", "json").stdout.String(), `"cluster_version":2`)
	})
	run(t, exitFailure, s.on(), "cluster", "add", "n5", "--peer", client.addr)
	records := run(t, 0, s.on(), "audit").stdout.String()
	if !strings.Contains(records, "member n5") || strings.Contains(records, "0000000000000000") {
		t.Errorf("the records are\n%s", records)
	}
}

// A node whose data are those of a service of one does not become one of three
// by a list, and says so.
func TestListOfFoundersWithOtherData(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	args := []string{"serve", "--data", data, "--listen", "127.0.0.1:0"}
	s := startService(t, args...)
	s.signal(unix.SIGTERM)
	s.expect(0)
	own, other, third := freeAddress(t), freeAddress(t), freeAddress(t)
	s = startService(t, append(args, "--name", "n1", "--peer-listen", own, "--initial-cluster", "n1="+own+",n2="+other+",n3="+third)...)
	s.says("this node runs ALONE", "holdfast cluster add NAME --peer HOST:PORT")
	s.signal(unix.SIGTERM)
	s.expect(0)
	s = startService(t, append(args, "--name", "n1", "--peer-listen", own, "--initial-cluster", "n1="+own)...)
	if strings.Contains(s.stderr.String(), "ALONE") {
		t.Errorf("its own list, and it says %s", s.stderr)
	}
}
