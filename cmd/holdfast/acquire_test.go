package main

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
	"holdfast/server/core"
)

// The end of a session that only waits takes nothing from the command: it
// queues again, and says so.
func TestRunQueuesAgainWhenItsSessionIsEnded(t *testing.T) {
	t.Parallel()
	s := dev(t)
	end := filepath.Join(t.TempDir(), "end")
	holder := start(t, s.on(), "run", "w", "--ttl", "5s", "--", "bash", "-c", untilFile, "x", end)
	s.holds(t, "w")
	waiter := start(t, s.on(), "run", "w", "--wait", "30s", "--ttl", "2s", "--", "true")
	ended := ""
	for range 2 {
		id := ""
		eventually(t, "a waiter in a new session", func() bool {
			id = s.waiter(t, "w")
			return id != "" && id != ended
		})
		ended = id
		run(t, 0, s.on(), "session", "end", id)
		eventually(t, "word of the lost session", func() bool {
			return strings.Contains(waiter.stderr.String(), "asking again in a new session") || waiter.ended()
		})
	}
	eventually(t, "the waiter in its third session", func() bool { id := s.waiter(t, "w"); return id != "" && id != ended })
	create(t, end)
	holder.expect(0)
	waiter.expect(0)
}

// waiter is the session of the first that waits for the lock.
func (s *service) waiter(t *testing.T, name string) string {
	t.Helper()
	client, err := s.client()
	if err != nil {
		t.Fatal(err)
	}
	l, err := client.Get(t.Context(), name, cluster.GetOptions{QueueLimit: 1})
	if err != nil || len(l.Queue) == 0 {
		return ""
	}
	return number(l.Queue[0].SessionID)
}

// A wait that ran out is a conflict, however short it was, and says what stood
// in its way.
func TestWaitThatRanOut(t *testing.T) {
	t.Parallel()
	s := dev(t, "--max-sessions", "1")
	first := start(t, s.on(), "run", "a", "--", "sleep", "1000")
	s.holds(t, "a")
	run(t, exitConflict, s.on(), "run", "b", "--wait", "500ms", "--", "true").
		says("not granted within 500ms", "1 sessions are open", "--max-sessions")
	run(t, exitConflict, s.on(), "run", "a", "--wait", "1ms", "--", "true").says("not granted within 1ms")
	run(t, 3, s.on(), "run", "a", "--wait", "1ms", "--conflict-exit-code", "3", "--", "true")
	first.signal(unix.SIGTERM)
	first.expect(143)
}

// What the client library advises programmers is not for the command line.
func TestRunSpeaksOfItsOwnFlags(t *testing.T) {
	t.Parallel()
	s := dev(t)
	p := start(t, s.on(), "run", "a", "--ttl", "2s", "--", "sleep", "1000")
	h := s.holds(t, "a")
	busy := run(t, exitConflict, s.on(), "run", "a", "--no-wait", "--", "true").says(`lock "a" is held by`, "leave --no-wait away or give --wait")
	run(t, 0, s.on(), "lock", "revoke", "a", "--token", h.Grant)
	p.expect(exitLost).says("it was revoked by")
	for _, text := range []string{busy.stderr.String(), p.stderr.String()} {
		for _, not := range []string{"holdfast: holdfast:", "Acquire", "acquire again"} {
			if strings.Contains(text, not) {
				t.Errorf("stderr %q has %q", text, not)
			}
		}
	}
}

func TestLimitsAreTheServices(t *testing.T) {
	t.Parallel()
	if maxLimit != core.MaxPermits || maxValue != core.MaxValue || maxPeriod > core.MaxPeriod {
		t.Errorf("limits %d, %d and %v: want those of the service, %d, %d and at most %v",
			maxLimit, maxValue, maxPeriod, core.MaxPermits, core.MaxValue, core.MaxPeriod)
	}
}
