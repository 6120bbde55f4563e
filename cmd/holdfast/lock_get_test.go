package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// C82: who holds the lock, since when, who waits, and the command that frees
// it, bound to that grant and ready to be pasted.
func TestCasebookC82_HolderIsShownAndCanBeFreed(t *testing.T) {
	t.Parallel()
	s := dev(t)
	const name = "it's /c82 $x"
	end := filepath.Join(t.TempDir(), "end")
	wait := []string{"--", "bash", "-c", untilFile, "x", end}
	holder := start(t, s.on(), append([]string{"run", name, "--label", "billing on db7", "--ttl", "5s", "--grace", "200ms"}, wait...)...)
	h := s.holds(t, name)
	var waiters []*program
	for _, label := range []string{"second", "third"} {
		waiters = append(waiters, start(t, s.on(), append([]string{"run", name, "--label", label}, wait...)...))
		eventually(t, label+" in the queue", func() bool { l, _ := s.lock(t, name); return l.Waiters == len(waiters) })
	}
	l, _ := s.lock(t, name)
	h = l.Holders[0]
	if h.Label != "billing on db7" || h.Host != hostName() || h.Session == "" || h.Grant == "" ||
		!strings.HasPrefix(h.Token, h.TokenNumber+"@") || h.Since == "" || h.LastRenewalMS == nil || h.TTLLeftMS <= 0 || h.TTLLeftMS > 5000 {
		t.Errorf("holder %+v, want label, host, session, grant, token, since, last renewal and what is left of 5s", h)
	}
	if len(l.Queue) != 2 || l.Queue[0].Place != 1 || l.Queue[0].Label != "second" || l.Queue[1].Place != 2 || l.Queue[1].Label != "third" {
		t.Errorf("queue %+v, want second and third at places 1 and 2", l.Queue)
	}
	text := run(t, 0, s.on(), "lock", "get", name).stdout.String()
	for _, want := range []string{
		"lock:          " + name, `"billing on db7" on ` + hostName(), "session:     " + h.Session, "grant:       " + h.Grant,
		"token:       " + h.Token, "since:", "last renewal:", "waiting:       2", `place 1:     "second"`, `place 2:     "third"`,
		"to free it:  " + h.FreeCommand,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lock get printed %q, want %q in it", text, want)
		}
	}
	run(t, exitConflict, s.on(), "run", name, "--no-wait", "--", "true").says("billing on db7", "grant "+h.Grant, "2 waiting")

	// A shell takes the command as it stands.
	shell := exec.Command("sh", "-c", `holdfast() { "`+binary(t)+`" "$@"; }; `+h.FreeCommand)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", h.FreeCommand, err, out)
	}
	holder.expect(exitLost).says("revoked", operatorName())
	next := s.holds(t, name)
	if next.Label != "second" {
		t.Errorf("%q holds the lock, want the one at place 1", next.Label)
	}
	// The same command again is of no effect on the next holder.
	out, err := exec.Command("sh", "-c", `holdfast() { "`+binary(t)+`" "$@"; }; `+h.FreeCommand).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nothing revoked") || !strings.Contains(string(out), `"second"`) {
		t.Errorf("a late revoke: %v: %s; want a refusal that shows the holder", err, out)
	}
	if now := s.holds(t, name); now.Grant != next.Grant || now.Revoked {
		t.Errorf("the late revoke hit the next holder: %+v", now)
	}
	create(t, end)
	for _, w := range waiters {
		w.expect(0)
	}
}

func TestLockGetFields(t *testing.T) {
	t.Parallel()
	s := dev(t)
	end := filepath.Join(t.TempDir(), "end")
	p := start(t, s.on(), "run", "fields", "--value", "\x1b[2J\xff", "--", "bash", "-c", untilFile, "x", end)
	s.holds(t, "fields")
	var raw map[string]any
	if err := json.Unmarshal([]byte(run(t, 0, s.on(), "lock", "get", "fields", "-o", "json").stdout.String()), &raw); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"name", "holders", "waiters", "value", "closed", "create_revision", "modify_revision", "revision"} {
		if _, ok := raw[field]; !ok {
			t.Errorf("no field %q in %v", field, raw)
		}
	}
	holder := raw["holders"].([]any)[0].(map[string]any)
	for _, field := range []string{"grant", "token", "token_number", "session"} {
		if _, ok := holder[field].(string); !ok {
			t.Errorf("field %q is %T, want a string", field, holder[field])
		}
	}
	// What a client chose cannot write on the operator's terminal.
	if text := run(t, 0, s.on(), "lock", "get", "fields").stdout.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "1b5b324aff") {
		t.Errorf("printed %q", text)
	}
	create(t, end)
	p.expect(0)
}
