package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/engine/cluster"
)

var updateTop = flag.Bool("update-top", false, "write the golden files of top anew")

// tenant is a client that holds and waits for locks, in the test's process.
func tenant(t *testing.T, s *service, label string) *cluster.Client {
	t.Helper()
	c, err := cluster.Dial(t.Context(), s.addr, &cluster.Options{Label: label, Host: "here"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c
}

func takes(t *testing.T, c *cluster.Client, name string, o cluster.AcquireOptions) *holdfast.Grant {
	t.Helper()
	g, err := c.Acquire(t.Context(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(g) }) // a forgotten grant is not renewed
	return g
}

// awaits makes c wait for a lock, and returns when it stands in the queue.
func awaits(t *testing.T, s *service, c *cluster.Client, name string, place int) {
	t.Helper()
	go func() { _, _ = c.Acquire(t.Context(), name, cluster.AcquireOptions{}) }()
	eventually(t, "a waiter", func() bool { l, _ := s.lock(t, name); return l.Waiters == place })
}

// scene is a service with something of everything.
func scene(t *testing.T) *service {
	t.Helper()
	s := dev(t)
	billing, second := tenant(t, s, "billing"), tenant(t, s, "second run")
	takes(t, billing, "a/invoices", cluster.AcquireOptions{Value: []byte("x")})
	takes(t, billing, "b/readers", cluster.AcquireOptions{Shared: true})
	takes(t, second, "b/readers", cluster.AcquireOptions{Shared: true})
	awaits(t, s, second, "a/invoices", 1)
	if _, err := billing.Put(t.Context(), "c/value", []byte("v"), cluster.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// shape lists the paths of a JSON value with their types.
func shape(path string, v any, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			shape(path+"."+k, e, out)
		}
	case []any:
		for _, e := range v {
			shape(path+"[]", e, out)
		}
	default:
		out[fmt.Sprintf("%s %T", strings.TrimPrefix(path, "."), v)] = true
	}
}

func TestTopJSON(t *testing.T) {
	t.Parallel()
	s := scene(t)
	out := run(t, 0, s.on(), "top", "-o", "json").stdout.String()
	if strings.Count(out, "\n") != 1 {
		t.Errorf("%d lines, want one", strings.Count(out, "\n"))
	}
	var any any
	var p topPicture
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &any); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	shape("", any, paths)
	var lines []string
	for line := range paths {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	golden(t, "top_shape.txt", strings.Join(lines, "\n")+"\n")
	if len(p.Locks) != 3 || p.Locks[0].Name != "a/invoices" || len(p.Locks[0].Queue) != 1 || p.Locks[0].Queue[0].Label != "second run" {
		t.Errorf("locks %+v", p.Locks)
	}
	if len(p.Sessions) != 3 || p.Server.Role != "leader" || !p.Server.Ready || p.Server.Address != s.addr || len(p.Members) != 1 || p.Members[0].Role != "leader" || p.Members[0].ID != p.Server.NodeID {
		t.Errorf("%+v", p)
	}
	if p.LocksTruncated || p.SessionsTruncated {
		t.Error("it says that there are more")
	}
	few := run(t, 0, s.on(), "top", "-o", "json", "--limit", "1", "--sort", "waiters").stdout.String()
	if err := json.Unmarshal([]byte(few), &p); err != nil || len(p.Locks) != 1 || !p.LocksTruncated || len(p.Sessions) != 1 || !p.SessionsTruncated || p.Locks[0].Name != "a/invoices" {
		t.Errorf("%+v, %v", p, err)
	}
	empty := run(t, 0, s.on(), "top", "-o", "json", "--prefix", "none/").stdout.String()
	if !strings.Contains(empty, `"locks":[]`) || !strings.Contains(empty, `"sessions":[]`) {
		t.Errorf("an empty list is %s", empty)
	}
}

// golden compares with a file of testdata, which -update-top writes.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateTop {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want := readFile(path); got != want {
		t.Errorf("%s is\n%s\nwant\n%s\n(go test ./cmd/holdfast -run %s -update-top writes it)", path, got, want, t.Name())
	}
}

// Where there is no terminal, everything is printed once.
func TestTopText(t *testing.T) {
	t.Parallel()
	s := scene(t)
	out := run(t, 0, s.on(), "top").stdout.String()
	for _, want := range []string{"server " + s.addr, "leader, ready", "LOCK", "a/invoices", `"second run" on here for `, "SESSION", "MEMBER", "b/readers"} {
		if !strings.Contains(out, want) {
			t.Errorf("printed %q, want %q in it", out, want)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("it sends escapes to what is no terminal")
	}
	out = run(t, 0, s.on(), "top", "--limit", "1").stdout.String()
	if strings.Count(out, "raise --limit") != 2 {
		t.Errorf("printed %q, want it to say that there is more", out)
	}
	dumb := programOn(t, 200, 60, append(s.on(), "TERM=dumb"), binary(t), "top")
	dumb.ends(0)
	dumb.shows("a/invoices", "MEMBER")
}

func TestTopRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"top x", "want no arguments"},
		{"top -o xml", "want one of: text, json"},
		{"top --sort size", "want one of: name, waiters, age"},
		{"top --interval 1ms", "want 500ms to 1h0m0s"},
		{"top --prefix \x01", "lock name"},
		{"top --server nowhere", "want host:port"},
	} {
		code, _, stderr := cli(strings.Split(c.args, " ")...)
		if code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("holdfast %s: code %d, stderr %q; want %q", c.args, code, stderr, c.want)
		}
	}
	// The terminal is not touched before a server has answered.
	r := programOn(t, 80, 24, []string{serverVariable + "=127.0.0.1:1"}, binary(t), "top")
	r.ends(exitUnreachable)
	r.shows("no lock service reachable")
	if strings.Contains(string(r.vt.raw), "\x1b") {
		t.Errorf("the terminal was sent %q", r.vt.raw)
	}
}
