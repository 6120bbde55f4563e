package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestSessionList(t *testing.T) {
	t.Parallel()
	s := dev(t)
	end := filepath.Join(t.TempDir(), "end")
	holder := start(t, s.on(), "run", "l", "--label", "holder", "--ttl", "7s", "--", "bash", "-c", untilFile, "x", end)
	h := s.holds(t, "l")
	waiter := start(t, s.on(), "run", "l", "--label", "waiter", "--", "true")
	eventually(t, "the waiter", func() bool { l, _ := s.lock(t, "l"); return l.Waiters == 1 })
	found := map[string]sessionJSON{}
	for _, line := range strings.Split(strings.TrimSpace(run(t, 0, s.on(), "session", "list", "-o", "json").stdout.String()), "\n") {
		var one sessionJSON
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found[one.Label] = one
	}
	a, b := found["holder"], found["waiter"]
	if a.ID != h.Session || a.Host != hostName() || a.TTLMS != 7000 || a.TTLLeftMS > 7000 || !a.Attached || strings.Join(a.Holds, " ") != "l" || len(a.WaitsFor) != 0 {
		t.Errorf("holder's session: %+v", a)
	}
	if strings.Join(b.WaitsFor, " ") != "l" || len(b.Holds) != 0 {
		t.Errorf("waiter's session: %+v", b)
	}
	text := run(t, 0, s.on(), "session", "list").stdout.String()
	for _, want := range []string{"ID", "holder", "waiter", "attached", h.Session} {
		if !strings.Contains(text, want) {
			t.Errorf("printed %q, want %q in it", text, want)
		}
	}
	create(t, end)
	holder.expect(0)
	waiter.expect(0)
}
