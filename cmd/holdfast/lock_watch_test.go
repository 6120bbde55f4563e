package main

import (
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// watched are the events that a watch with -o json has printed.
func watched(t *testing.T, p *program) []eventJSON {
	t.Helper()
	var all []eventJSON
	for _, line := range strings.SplitAfter(p.stdout.String(), "\n") {
		if !strings.HasSuffix(line, "\n") {
			continue
		}
		var e eventJSON
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// A watch goes on over kill -9 and restart of the server, without a gap and
// without a repetition, and ends with 0 when it is interrupted.
func TestLockWatchOverRestarts(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := startService(t, "serve", "--data", data, "--listen", "127.0.0.1:0")
	watch := start(t, s.on(), "lock", "watch", "w", "-o", "json")
	all := start(t, s.on(), "lock", "watch", "--prefix", "w", "--after", "0")
	grants := func() (numbers []string) {
		for _, e := range watched(t, watch) {
			if e.Kind == "granted" {
				numbers = append(numbers, e.Grant)
			}
		}
		return numbers
	}
	eventually(t, "the watch", func() bool {
		run(t, 0, s.on(), "run", "w", "--", "true")
		return len(grants()) > 0
	})
	for range 2 {
		before := len(grants())
		kill(s.cmd.Process.Pid, unix.SIGKILL)
		s.wait()
		s = startService(t, "serve", "--data", data, "--listen", s.addr)
		run(t, 0, s.on(), "run", "w", "--", "true")
		run(t, 0, s.on(), "run", "other", "--", "true")
		eventually(t, "one more grant in the watch", func() bool { return len(grants()) > before })
		if got := len(grants()); got != before+1 {
			t.Fatalf("%d grants in the watch, want %d", got, before+1)
		}
	}
	events := watched(t, watch)
	for i := 1; i < len(events); i++ {
		if less(events[i].Revision, events[i-1].Revision) || events[i] == events[i-1] || events[i].Lock != "w" {
			t.Errorf("event %+v after %+v", events[i], events[i-1])
		}
	}
	eventually(t, "the text watch", func() bool {
		return strings.Count(all.stdout.String(), "granted") >= len(grants())
	})
	for _, p := range []*program{watch, all} {
		p.signal(unix.SIGINT)
		p.expect(0)
		// Each break is told, in turn with its end, and not the end that was
		// asked for. (A server that starts may break a line once more.)
		lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
		for i, line := range lines {
			want := "the server at " + s.addr + " went away"
			if i%2 == 1 {
				want = "connected to " + s.addr + " again"
			}
			if !strings.Contains(line, want) {
				t.Errorf("line %d of stderr is %q, want %q", i+1, line, want)
			}
		}
		if len(lines) < 4 || len(lines)%2 != 0 {
			t.Errorf("stderr %q, want a line for each break and each end of one", lines)
		}
	}
}

// less compares numbers in text form.
func less(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

func TestLockWatchAfterTheFuture(t *testing.T) {
	t.Parallel()
	s := dev(t)
	p := start(t, s.on(), "lock", "watch", "--after", "18446744073709551615")
	if code := p.wait(); code == 0 || strings.TrimSpace(p.stderr.String()) == "" {
		t.Errorf("code %d, stderr %q; want a refusal", code, p.stderr)
	}
}
