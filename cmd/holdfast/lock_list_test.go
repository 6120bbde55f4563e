package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockList(t *testing.T) {
	t.Parallel()
	s := dev(t)
	if got := run(t, 0, s.on(), "lock", "list", "-o", "json").stdout.String(); got != "" {
		t.Errorf("an empty service lists %q", got)
	}
	end := filepath.Join(t.TempDir(), "end")
	var holders []*program
	for _, name := range []string{"b/2", "a/1", "a/2"} {
		holders = append(holders, start(t, s.on(), "run", name, "--label", "for "+name, "--", "bash", "-c", untilFile, "x", end))
	}
	for _, name := range []string{"b/2", "a/1", "a/2"} {
		s.holds(t, name)
	}
	run(t, 0, s.on(), "run", "a/once", "--once-per", "1h", "--", "true")
	names := func(args ...string) string {
		var all []string
		for _, line := range strings.Split(strings.TrimSpace(run(t, 0, s.on(), append([]string{"lock", "list", "-o", "json"}, args...)...).stdout.String()), "\n") {
			var l lockJSON
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all = append(all, l.Name)
		}
		return strings.Join(all, " ")
	}
	if got := names(); got != "a/1 a/2 a/once b/2" {
		t.Errorf("listed %q", got)
	}
	if got := names("a/"); got != "a/1 a/2 a/once" {
		t.Errorf("listed %q with prefix a/", got)
	}
	text := run(t, 0, s.on(), "lock", "list").stdout.String()
	for _, want := range []string{"NAME", `"for a/1"`, "held", "closed for", "(once-per)"} {
		if !strings.Contains(text, want) {
			t.Errorf("printed %q, want %q in it", text, want)
		}
	}
	create(t, end)
	for _, h := range holders {
		h.expect(0)
	}
}
