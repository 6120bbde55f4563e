package main

import (
	"strings"
	"testing"
)

func TestSessionEnd(t *testing.T) {
	t.Parallel()
	s := dev(t)
	p := start(t, s.on(), "run", "e", "--ttl", "5s", "--grace", "200ms", "--", "sleep", "1000")
	h := s.holds(t, "e")
	if out := run(t, 0, s.on(), "session", "end", h.Session).stdout.String(); !strings.Contains(out, h.Session+" ended") {
		t.Errorf("printed %q", out)
	}
	s.free(t, "e")
	p.expect(exitLost).says("session has ended")
	run(t, exitMissing, s.on(), "session", "end", h.Session).says("no session " + h.Session)
}
