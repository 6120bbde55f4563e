package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestDrillKillsTheLeader plays the story on three nodes, in a shell where a
// server is configured: the leader is killed, and nothing that it had promised
// is lost. It is not parallel: on a busy machine leaders change by themselves.
func TestDrillKillsTheLeader(t *testing.T) {
	cmd, dir := drillRun(t, "--nodes", "3", "--kill-leader", "--fencing", "on", "--gate", "file", "-o", "json")
	cmd.Env = append(cmd.Env, "HOLDFAST_LISTEN=nowhere", "HOLDFAST_JOIN=127.0.0.1:1", "HOLDFAST_CERT=/none")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("drill: %v\n%s\n%s", err, errs.String(), out)
	}
	var order []string
	seen := map[string]event{}
	for _, e := range drillEvents(t, out) {
		if e.Event == "stopped" || e.Event == "expired" || seen[e.Event].Event == "" {
			order = append(order, e.Event)
		}
		if seen[e.Event].Event == "" {
			seen[e.Event] = e
		}
	}
	at := -1
	for _, want := range []string{"node", "leader", "stopped", "queued", "killed", "elected", "kept", "expired", "continued", "refused", "restarted", "caught-up", "states", "leads-again", "verdict", "end"} {
		next := slices.Index(order, want)
		if next <= at {
			t.Errorf("%q is not told, or too early: %q", want, order)
		}
		at = next
	}
	dead := seen["killed"]
	for _, e := range []string{"restarted", "caught-up", "leads-again"} {
		if seen[e].Worker != dead.Worker {
			t.Errorf("%q is told of %s, and %s was killed", e, seen[e].Worker, dead.Worker)
		}
	}
	if elected := seen["elected"].Worker; elected == dead.Worker || !strings.HasPrefix(elected, "n") {
		t.Errorf("%s was killed, and %s elected", dead.Worker, elected)
	}
	if hashes := seen["states"].Hashes; len(hashes) != 3 || len(slices.Compact(hashes)) != 1 || len(hashes[0]) != 64 {
		t.Errorf("the hashes are %q", hashes)
	}
	if v := seen["verdict"]; v.Verdict != "whole" || !v.Holds || !seen["end"].Holds {
		t.Errorf("the verdict is %+v", v)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestDrillLeavesNoNode ends a drill on three nodes, one of which is dead, as
// TestDrillLeavesNothing does.
func TestDrillLeavesNoNode(t *testing.T) {
	for name, sig := range drillEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, dir := drillRun(t, "--nodes", "3", "--kill-leader", "--ttl", "5s", "--fencing", "on", "-o", "json")
			endDrill(t, cmd, dir, sig, "killed", 5)
		})
	}
}

func TestDrillChecksItsNodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--nodes", "2"}, "1, 3, 5 or 7"},
		{[]string{"--nodes", "9"}, "--nodes"},
		{[]string{"--nodes", "0"}, "--nodes"},
		{[]string{"--kill-leader"}, "--nodes 3"},
		{[]string{"--kill-leader", "--nodes", "1"}, "--nodes 3"},
	} {
		cmd, dir := drillRun(t, c.args...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), c.says) {
			t.Errorf("drill %q: %v\n%s\nwant exit 64, and %q", c.args, err, out, c.says)
		}
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}
