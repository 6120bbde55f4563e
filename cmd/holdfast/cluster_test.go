package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
)

func clusterStatus(t *testing.T, env []string, args ...string) clusterJSON {
	t.Helper()
	var c clusterJSON
	text := run(t, 0, env, append([]string{"cluster", "status", "-o", "json"}, args...)...).stdout.String()
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return c
}

func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	s := dev(t)
	c := clusterStatus(t, s.on(), "--hash")
	if len(c.Members) != 1 || c.Members[0].ID != c.LeaderID || c.Members[0].Role != "leader" || c.HashesEqual == nil || !*c.HashesEqual ||
		len(c.Members[0].StateHash) != 64 || !*c.Members[0].Ready || c.ClusterVersion == 0 {
		t.Fatalf("status is %+v", c)
	}
	text := run(t, 0, s.on(), "cluster", "status", "--hash").stdout.String()
	for _, want := range []string{"leads in term", "cluster version ", c.LeaderID, "leader", "ready", "HASH AT", c.Members[0].StateHash[:16]} {
		if !strings.Contains(text, want) {
			t.Errorf("printed %q, want %q in it", text, want)
		}
	}
	for _, refused := range []struct {
		code int
		says string
		args []string
	}{
		{exitFailure, "add another member first", []string{"remove", c.LeaderID}},
		{exitMissing, "no member n7", []string{"remove", "n7"}},
		{exitMissing, "no member 00000000000000ff", []string{"transfer", "00000000000000ff"}},
		{exitFailure, "no other voter can be reached", []string{"transfer"}},
		{exitUsage, "want exactly: NAME|ID", []string{"remove"}},
		{exitUsage, "as 'holdfast cluster status' shows them", []string{"remove", ""}},
		{exitUsage, "want exactly: [NAME|ID]", []string{"transfer", "a", "b"}},
	} {
		p := run(t, refused.code, s.on(), append([]string{"cluster"}, refused.args...)...)
		if !strings.Contains(p.stderr.String(), refused.says) {
			t.Errorf("%v says %q, want %q in it", refused.args, p.stderr, refused.says)
		}
	}
	if got := run(t, 0, s.on(), "cluster", "transfer", c.LeaderID).stdout.String(); got != c.LeaderID+" leads\n" {
		t.Errorf("a transfer to the leader prints %q", got)
	}
}

// TestMemberThatIsNotReached: status shows what the others know of a member
// that does not answer, and remove takes it out.
func TestMemberThatIsNotReached(t *testing.T) {
	t.Parallel()
	s := dev(t)
	client, err := s.client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AddMember(t.Context(), cluster.Member{ID: 0xabc, Name: "n2", PeerAddr: "127.0.0.1:1", ClientAddr: "127.0.0.1:1", Supports: 1 << 20}, ""); err != nil {
		t.Fatal(err)
	}
	c := clusterStatus(t, s.on())
	if len(c.Members) != 2 {
		t.Fatalf("status is %+v", c)
	}
	for _, m := range c.Members {
		if m.Name == "n2" && (m.Role != "learner" || *m.Answers || *m.Reached || m.Why == "" || m.MatchIndex != "0") {
			t.Errorf("the member is %+v", m)
		}
	}
	if text := run(t, 0, s.on(), "cluster", "status").stdout.String(); !strings.Contains(text, "does not answer") || !strings.Contains(text, "0000000000000abc") {
		t.Errorf("printed %q", text)
	}
	if text := run(t, 0, s.on(), "cluster", "remove", "n2").stdout.String(); text != "n2 is removed; 1 member left\n" {
		t.Errorf("printed %q", text)
	}
	if c := clusterStatus(t, s.on()); len(c.Members) != 1 || len(c.RemovedIDs) != 1 || c.RemovedIDs[0] != "0000000000000abc" {
		t.Errorf("status is %+v", c)
	}
}

// TestAnotherNodesAnswerIsNone: the state of one node is never shown, or
// compared, as that of another.
func TestAnotherNodesAnswerIsNone(t *testing.T) {
	t.Parallel()
	s := dev(t)
	hash := cluster.ClusterStatusOptions{WithHash: true}
	own, err := askServer(&cobra.Command{}, t.Context(), s.addr, hash)
	if err != nil || own.StateHash == "" {
		t.Fatalf("%+v, %v", own, err)
	}
	if st, err := askMember(&cobra.Command{}, t.Context(), cluster.Member{ID: own.NodeID, ClientAddr: s.addr}, hash); err != nil || st.StateHash != own.StateHash {
		t.Errorf("the member itself: %+v, %v", st, err)
	}
	if st, err := askMember(&cobra.Command{}, t.Context(), cluster.Member{ID: own.NodeID + 1, ClientAddr: s.addr}, hash); err == nil || !strings.Contains(err.Error(), "answers at its address") {
		t.Errorf("another member: %+v, %v", st, err)
	}
}
