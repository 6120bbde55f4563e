package main

import (
	"encoding/json"
	"path/filepath"
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
	if !strings.Contains(text, "the lock is free") {
		t.Errorf("printed %q", text)
	}
	s.free(t, "r")
	p.expect(exitLost).says("revoked")
}
