package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// audits are the records as the service shows them, one a line.
func (w *world) audits() string {
	w.t.Helper()
	res, err := w.rpc.ListAudit(w.t.Context(), connect.NewRequest(&holdfastv1.ListAuditRequest{}))
	if err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range res.Msg.GetRecords() {
		c := r.GetCall()
		if _, err := time.Parse(time.RFC3339, c.GetTold()); err != nil || r.GetRevision() == 0 {
			w.t.Errorf("record %v: %v", r, err)
		}
		fmt.Fprintf(&b, "%s by %s, %s, on %s: %s %s %d\n", c.GetCall(), c.GetBy(), c.GetCredential(), c.GetOn(), c.GetOutcome(), c.GetKind(), c.GetCount())
	}
	return b.String()
}

// TestAuditRecords: each call of an operator has one record, with what came of
// it, in the log's order, in the stream of events too, and after a restart.
func TestAuditRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := `revoke by ann, this machine, on grant 1 of lock "a": done  1
expel by bob, this machine, on session 9: refused not-found 1
revoke by ann, this machine, on grant 1 of lock "a", at once: done  1
revoke by ann, this machine, on grant 1 of lock "a": done  1
revoke by ann, this machine, on grant 1 of lock "b": refused not-held 1
transfer by ann, this machine, on leadership to any: begun  1
transfer by ann, this machine, on leadership to any: refused conflict 1
`
	t.Run("first", func(t *testing.T) {
		w := start(t, func(c *Config) { c.Dir = dir })
		w.open("first", time.Minute) // a revision to count from
		after := uint64(w.node.Status().Revision)
		w.open("victim", time.Minute).acquire("a")
		revoke := func(lock string, now bool) {
			_, _ = w.rpc.RevokeGrant(t.Context(), connect.NewRequest(&holdfastv1.RevokeGrantRequest{Lock: lock, Grant: 1, Now: now, By: "ann"}))
		}
		revoke("a", false)
		_, _ = w.rpc.ExpelSession(t.Context(), connect.NewRequest(&holdfastv1.ExpelSessionRequest{SessionId: 9, By: "bob"}))
		revoke("a", true)
		revoke("a", false)
		revoke("b", false)
		_, _ = w.rpc.TransferLeadership(t.Context(), connect.NewRequest(&holdfastv1.TransferLeadershipRequest{By: "ann"}))
		if got := w.audits(); got != want {
			t.Errorf("records:\n%s\nwant:\n%s", got, want)
		}
		res, err := w.rpc.Poll(t.Context(), connect.NewRequest(&holdfastv1.PollRequest{AfterRevision: after}))
		if err != nil {
			t.Fatal(err)
		}
		var story []string
		for _, e := range res.Msg.GetEvents() {
			text := e.GetKind()
			if c := e.GetAudit(); c != nil {
				text += "(" + c.GetCall() + " " + c.GetOutcome() + ")"
			}
			story = append(story, text)
		}
		if got := strings.Join(story, " "); got != "opened granted revoked audit(revoke done) audit(expel refused) released audit(revoke done) audit(revoke done) audit(revoke refused) audit(transfer begun) audit(transfer refused)" {
			t.Errorf("events: %s", got)
		}
		if n := len(w.log.lines(`"msg":"audit"`)); n != 6 {
			t.Errorf("%d lines in the node's own log of six calls", n)
		}
	})
	again := start(t, func(c *Config) { c.Dir = dir })
	if got := again.audits(); got != want {
		t.Errorf("after a restart:\n%s\nwant:\n%s", got, want)
	}
}

// TestDeniedCallsDoNotFillTheLog: each is in the node's own log, and now and
// then one record says how many there were.
func TestDeniedCallsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, path, "ann:"+annsToken)
	w := start(t, func(c *Config) { c.OperatorTokenFile = path })
	for range 50 {
		if got := expels(t, w, http.Header{}); got != driver.Denied {
			t.Fatal(got)
		}
	}
	if got := w.audits(); got != "expel by ann, , on session 12345: denied denied 1\n" {
		t.Errorf("records:\n%s", got)
	}
	if n := len(w.log.lines(`"msg":"audit"`, `"outcome":"denied"`)); n != 50 {
		t.Errorf("%d lines in the node's own log", n)
	}
	var d denials
	now := time.Now()
	for _, step := range []struct {
		after time.Duration
		want  uint32
	}{{0, 1}, {time.Second, 0}, {2 * time.Second, 0}, {deniedEvery, 3}, {deniedEvery + time.Second, 0}, {3 * deniedEvery, 2}} {
		if got := d.due("x", now.Add(step.after)); got != step.want {
			t.Errorf("after %v: %d, want %d", step.after, got, step.want)
		}
	}
	if got := d.due("y", now); got != 1 {
		t.Errorf("another call: %d", got)
	}
}

// TestAuditBeforeItsVersion: in a cluster with a member that does not know
// records operators work as ever, and only the node's own log tells.
func TestAuditBeforeItsVersion(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) { c.nodeHooks.supports = 1 })
	w.open("victim", time.Minute).acquire("a")
	if _, err := w.rpc.RevokeGrant(t.Context(), connect.NewRequest(&holdfastv1.RevokeGrantRequest{Lock: "a", Grant: 1, Now: true})); err != nil {
		t.Fatal(err)
	}
	if _, err := w.rpc.ExpelSession(t.Context(), connect.NewRequest(&holdfastv1.ExpelSessionRequest{SessionId: 9})); wire.FromError(err).Kind != driver.NotFound {
		t.Fatal(err)
	}
	if got := w.audits(); got != "" {
		t.Errorf("records:\n%s", got)
	}
	if n := len(w.log.lines(`"msg":"audit"`)); n != 2 {
		t.Errorf("%d lines in the node's own log", n)
	}
	if st := w.node.Status(); st.Version != 1 {
		t.Errorf("version %d", st.Version)
	}
}

// TestRecordStaysWithItsCommand: however full an entry is, a record stands
// directly behind its command.
func TestRecordStaysWithItsCommand(t *testing.T) {
	t.Parallel()
	record := core.Audit{AuditCall: core.AuditCall{Call: "expel", Count: 1}}
	queue := []proposal{}
	for range maxEntryCommands + 10 {
		queue = append(queue, proposal{cmd: core.End{ID: 1, Operator: true}, audit: &record, sink: func(Answer) {}})
	}
	state := core.New(core.Config{Version: core.SupportedVersion})
	seen := 0
	for len(queue) > 0 {
		b := batch{state: state}
		queue = b.take(queue)
		if len(b.items)%2 != 0 || len(b.items) == 0 {
			t.Fatalf("an entry of %d commands", len(b.items))
		}
		for i, p := range b.items {
			if _, is := p.cmd.(core.Audit); is != (i%2 == 1) {
				t.Fatalf("command %d is %T", i, p.cmd)
			}
		}
		seen += len(b.items) / 2
	}
	if seen != maxEntryCommands+10 {
		t.Errorf("%d commands came out", seen)
	}
}

func TestListAuditLimits(t *testing.T) {
	t.Parallel()
	w := start(t)
	_, err := w.rpc.ListAudit(t.Context(), connect.NewRequest(&holdfastv1.ListAuditRequest{Limit: core.AuditsKept + 1}))
	if e := wire.FromError(err); e.Kind != driver.Invalid {
		t.Errorf("limit too high: %v", err)
	}
	if s := auditText("a\x00\u009f\xff" + strings.Repeat("é", 200)); len(s) > core.MaxLabel || !strings.HasPrefix(s, "a\uFFFD\uFFFD\uFFFDé") {
		t.Errorf("%q", s)
	}
}
