package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"strings"
	"testing"
	"time"

	"holdfast/internal/pgtest"
)

// drillSchemas returns the schemas of drills in the database.
func drillSchemas(t *testing.T, dsn string) (all string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(`SELECT coalesce(string_agg(nspname, ' '), '') FROM pg_namespace WHERE nspname LIKE 'holdfast%'`).Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDrillBehindEachGate plays the whole story on PostgreSQL and on a file:
// the theory holds there too, and nothing is left, also after SIGKILL.
func TestDrillBehindEachGate(t *testing.T) {
	t.Parallel()
	c, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	dsn := c.DSN("postgres")
	for gate, args := range map[string][]string{"postgres": {"--gate", "postgres", "--dsn", dsn}, "file": {"--gate", "file"}} {
		cmd, dir := drillRun(t, append(args, "--ttl", "1s", "-o", "json")...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: drill: %v\n%s\n%s", gate, err, errs.String(), out)
		}
		verdicts, door := "", false
		for _, e := range drillEvents(t, out) {
			if e.Event == "verdict" {
				verdicts += e.Fencing + " " + e.Verdict + " "
			}
			door = door || e.Event == "door-free"
		}
		if verdicts != "off corrupted on whole " || !door {
			t.Errorf("%s: the verdicts are %q, and that the door was free was told: %t", gate, verdicts, door)
		}
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("%s: left behind: %q", gate, left)
		}
	}
	if left := drillSchemas(t, dsn); left != "" {
		t.Errorf("left in the database: %s", left)
	}
	cmd, dir := drillRun(t, "--gate", "postgres", "--fencing", "on", "--ttl", "1s", "-o", "json")
	cmd.Env = append(cmd.Env, "HOLDFAST_DSN="+dsn)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), `"written"`); {
	}
	if !strings.HasPrefix(drillSchemas(t, dsn), "holdfast_drill_") {
		t.Errorf("while a drill runs, the database has %q", drillSchemas(t, dsn))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	awaitNone := time.NewTicker(20 * time.Millisecond)
	defer awaitNone.Stop()
	for deadline := time.Now().Add(30 * time.Second); drillSchemas(t, dsn) != "" || len(leftovers(t, dir)) > 0; <-awaitNone.C {
		if time.Now().After(deadline) {
			t.Fatalf("after SIGKILL: %q and %q are left", drillSchemas(t, dsn), leftovers(t, dir))
		}
	}
}

func TestDrillChecksItsGate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--gate", "postgres"}, "--dsn"},
		{[]string{"--gate", "file", "--dsn", "postgres://x"}, "--gate postgres"},
		{[]string{"--gate", "oracle"}, "sqlite, postgres, file"},
		{[]string{"--gate", "postgres", "--dsn", "postgres://x:port/"}, "--dsn"},
	} {
		cmd, _ := drillRun(t, c.args...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), c.says) {
			t.Errorf("drill %q: %v\n%s\nwant exit 64, and %q", c.args, err, out, c.says)
		}
	}
	cmd, dir := drillRun(t, "--gate", "postgres", "--dsn", "postgres://nobody@127.0.0.1:1/none")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--dsn") {
		t.Errorf("a database that does not answer: %v\n%s", err, out)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
