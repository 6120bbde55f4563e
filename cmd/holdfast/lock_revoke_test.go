package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/fence"
)

func TestLockRevoke(t *testing.T) {
	t.Parallel()
	s := dev(t)
	end := filepath.Join(t.TempDir(), "end")
	hold := func() (*program, holderJSON) {
		p := start(t, s.on(), "run", "r", "--ttl", "10s", "--grace", "300ms", "--", "bash", "-c", "trap '' TERM; "+untilFile, "x", end)
		return p, s.holds(t, "r")
	}
	p, h := hold()
	run(t, exitFailure, s.on(), "lock", "revoke", "r", "--token", number(999)).says("nothing revoked", "grant 999", "grant "+h.Grant)
	run(t, exitUsage, s.on(), "lock", "revoke", "other", "--token", h.Token).says(`of lock "r", not of "other"`)
	if l, _ := s.lock(t, "r"); len(l.Holders) != 1 || l.Holders[0].Revoked {
		t.Fatalf("refused revokes changed the lock: %+v", l)
	}
	var out revokedJSON
	if err := json.Unmarshal([]byte(run(t, 0, s.on(), "lock", "revoke", "r", "--token", h.Token, "-o", "json").stdout.String()), &out); err != nil {
		t.Fatal(err)
	}
	token, err := fence.ParseToken(out.RevocationToken)
	if err != nil || token.Mode != fence.Revocation || number(token.Number) == h.TokenNumber || out.Grant != h.Grant {
		t.Errorf("got %+v, want a revocation token of a new number", out)
	}
	p.expect(exitLost).says("revoked", operatorName())
	run(t, exitMissing, s.on(), "lock", "revoke", "r", "--token", h.Grant).says("is free")

	// --now frees the lock while the holder still stops.
	p, h = hold()
	text := run(t, 0, s.on(), "lock", "revoke", "r", "--now", "--token", h.Grant).stdout.String()
	if !strings.Contains(text, "it holds no more") {
		t.Errorf("printed %q", text)
	}
	s.free(t, "r")
	p.expect(exitLost).says("revoked")
}

// TestLockRevokeOfASharedHolder: arming the revocation token fences the whole
// run, so the operator is told, and nobody joins the run any more.
func TestLockRevokeOfASharedHolder(t *testing.T) {
	t.Parallel()
	s := dev(t)
	end := filepath.Join(t.TempDir(), "end")
	reader := func() *program {
		return start(t, s.on(), "run", "shared", "--shared", "--ttl", "10s", "--", "bash", "-c", untilFile, "x", end)
	}
	first, second := reader(), reader()
	var l lockJSON
	eventually(t, "two shared holders", func() bool {
		var ok bool
		l, ok = s.lock(t, "shared")
		return ok && len(l.Holders) == 2
	})
	text := run(t, 0, s.on(), "lock", "revoke", "shared", "--now", "--token", l.Holders[0].Grant).stdout.String()
	if !strings.Contains(text, "note: ") {
		t.Errorf("the operator is not told what arming the token does:\n%s", text)
	}
	text = run(t, 0, s.on(), "lock", "get", "shared").stdout.String()
	if !strings.Contains(text, "sealed") {
		t.Errorf("lock get does not say that the run is sealed:\n%s", text)
	}
	if l, _ = s.lock(t, "shared"); !l.Sealed || len(l.Holders) != 1 {
		t.Errorf("got %+v, want a sealed run with one holder", l)
	}
	eventually(t, "end of the revoked holder's command", func() bool { return first.ended() || second.ended() })
	create(t, end)
	codes := []int{first.wait(), second.wait()}
	slices.Sort(codes)
	if codes[0] != 0 || codes[1] != exitLost {
		t.Errorf("exit codes %v, want 0 and %d", codes, exitLost)
	}
}
