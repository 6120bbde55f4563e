package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/server/tlsfiles/tlstest"
)

// TestAuditSurvivesRestarts: what operators did is told by audit, as a table, as
// JSON and as it happens, and is there after kill -9.
func TestAuditSurvivesRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens, mine := filepath.Join(dir, "tokens"), filepath.Join(dir, "mine")
	tlstest.Replace(t, tokens, []byte("ann:0123456789abcdef\nbob:fedcba9876543210\n"))
	tlstest.Replace(t, mine, []byte("0123456789abcdef\n"))
	serve := []string{"serve", "--data", filepath.Join(dir, "data"), "--log-level", "warn", "--operator-token-file", tokens, "--listen"}
	s := startService(t, append(serve, "127.0.0.1:0")...)
	follower := start(t, s.on(), "audit", "--follow", "-o", "json")
	worker := start(t, s.on(), "run", "invoices", "--", "sleep", "1000")
	h := s.holds(t, "invoices")
	revoke := []string{"lock", "revoke", "invoices", "--token", h.Grant, "--now"}
	run(t, exitFailure, s.on(), revoke...)
	run(t, exitFailure, s.on(), revoke...)
	run(t, 0, s.on(), append(revoke, "--operator-token-file", mine)...)
	worker.expect(exitLost)
	run(t, exitMissing, s.on(), "session", "end", "12345", "--operator-token-file", mine)

	check := func(text string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(text) {
			var r auditJSON
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if r.By != operatorName() || !strings.HasPrefix(r.Peer, "127.0.0.1:") || r.Told == "-" || r.Count != 1 {
				t.Errorf("record %+v", r)
			}
			got = append(got, strings.Join([]string{r.Call, r.Outcome, r.Kind, r.Credential, r.On}, "|"))
		}
		want := []string{
			`revoke|denied|denied||grant ` + h.Grant + ` of lock "invoices", at once`,
			`revoke|done||token ann|grant ` + h.Grant + ` of lock "invoices", at once`,
			`expel|refused|not-found|token ann|session 12345`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check(run(t, 0, s.on(), "audit", "-o", "json").stdout.String())
	kill(s.cmd.Process.Pid, unix.SIGKILL)
	s.wait()
	s = startService(t, append(serve, s.addr)...)
	check(run(t, 0, s.on(), "audit", "-o", "json").stdout.String())
	eventually(t, "three records", func() bool { return strings.Count(follower.stdout.String(), "\n") == 3 })
	run(t, exitMissing, s.on(), "session", "end", "54321", "--operator-token-file", mine)
	eventually(t, "one more after the restart", func() bool { return strings.Contains(follower.stdout.String(), "54321") })
	follower.signal(unix.SIGINT)
	follower.expect(0)
	check(strings.Join(strings.SplitAfter(follower.stdout.String(), "\n")[:3], ""))

	table := run(t, 0, s.on(), "audit", "--limit", "2").stdout.String()
	if strings.Count(table, "\n") != 3 || !strings.Contains(table, "CREDENTIAL") || !strings.Contains(table, "refused: not-found") {
		t.Errorf("the newest two:\n%s", table)
	}
	run(t, exitUsage, s.on(), "audit", "--limit", "0").says("1 to 1000")
}
