package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// TestCrashBetweenRecordAndAct: each call of an operator that is no command is
// told in the log before anything of it is done. What the disk holds at that
// moment, as after a kill, has the record and nothing else; afterwards the end
// is told, too. (Of a revoke and an expulsion the record is in the entry itself:
// TestRecordStaysWithItsCommand.)
func TestCrashBetweenRecordAndAct(t *testing.T) {
	disk := &faultyStorage{}
	w := start(t, func(c *Config) {
		n := NodeConfig{}
		faulty(disk)(&n)
		c.nodeHooks = n.hooks
	})
	images := map[string]string{}
	w.service.begun = func(call string) {
		image := filepath.Join(t.TempDir(), "image")
		disk.door.Lock()
		defer disk.door.Unlock()
		if err := os.CopyFS(image, os.DirFS(w.cfg.Dir)); err != nil {
			t.Error(err)
		}
		images[call] = image
	}
	ctx := t.Context()
	if _, err := w.rpc.AddMember(ctx, connect.NewRequest(&holdfastv1.AddMemberRequest{
		Id: 42, Name: "n2", PeerAddress: "10.0.0.2:7434", ClientAddress: "10.0.0.2:7433", Supports: core.SupportedVersion, By: "ann",
	})); err != nil {
		t.Fatal(err)
	}
	if _, err := w.rpc.RemoveMember(ctx, connect.NewRequest(&holdfastv1.RemoveMemberRequest{Name: "n2", By: "ann"})); err != nil {
		t.Fatal(err)
	}
	_, _ = w.rpc.TransferLeadership(ctx, connect.NewRequest(&holdfastv1.TransferLeadershipRequest{By: "ann"}))
	stream, err := w.rpc.Backup(ctx, connect.NewRequest(&holdfastv1.BackupRequest{By: "ann"}))
	if err != nil {
		t.Fatal(err)
	}
	for stream.Receive() {
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	w.until("the end of the backup's record", func() bool { return strings.Contains(w.audits(), "backup by ann, this machine, on the state: done") })
	last := func(s string) string { lines := strings.Split(strings.TrimSpace(s), "\n"); return lines[len(lines)-1] }
	members := map[string]int{"add-member": 1, "remove-member": 2, "transfer": 1, "backup": 1}
	for call, image := range images {
		after := start(t, func(c *Config) { c.Dir = image })
		if got := last(after.audits()); !strings.HasPrefix(got, call+" by ann") || !strings.HasSuffix(got, ": begun  1") {
			t.Errorf("killed when %s had begun, the last record is %q", call, got)
		}
		res, err := after.rpc.ClusterStatus(ctx, connect.NewRequest(&holdfastv1.ClusterStatusRequest{}))
		if err != nil || len(res.Msg.GetMembers()) != members[call] {
			t.Errorf("killed when %s had begun: %v, %v", call, res, err)
		}
	}
	if len(images) != len(members) {
		t.Errorf("only %v were told before they were done", images)
	}
	for _, want := range []string{"add-member by ann, this machine, on member n2 (000000000000002a): done", "remove-member by ann, this machine, on member n2: done", "transfer by ann, this machine, on leadership to any: refused conflict"} {
		if !strings.Contains(w.audits(), want) {
			t.Errorf("no record %q in\n%s", want, w.audits())
		}
	}
}

// A call that cannot be told is not done. Only a backup of what a node has,
// which is for when nobody leads, is made all the same, and the node's own log
// says so.
func TestNothingIsDoneUntold(t *testing.T) {
	worlds := startServers(t, 3)
	lead, follower := worlds[0], worlds[1]
	s := &service{node: follower.node}
	for what, do := range map[string]func(op *operation) error{
		"begin": func(op *operation) error { return s.begin(t.Context(), op) },
		"transfer": func(op *operation) error {
			_, err := s.transfer(t.Context(), &holdfastv1.TransferLeadershipRequest{}, op)
			return err
		},
	} {
		if e := classify(do(probing())); e == nil || leaderOf(e) != lead.node.Status().NodeID {
			t.Errorf("%s at a follower: %v", what, e)
		}
	}
	stream, err := follower.rpc.Backup(t.Context(), connect.NewRequest(&holdfastv1.BackupRequest{Stale: true, By: "ann"}))
	if err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for stream.Receive() {
		bytes += len(stream.Msg().GetData())
	}
	if err := stream.Err(); err != nil || bytes == 0 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
	follower.until("its own log tells", func() bool {
		return len(follower.log.lines("did not get into the replicated log", `"call":"backup"`)) == 1 && len(follower.log.lines(`"msg":"audit"`, `"call":"backup"`, `"outcome":"done"`)) == 1
	})
	if got := lead.audits(); strings.Contains(got, "backup") {
		t.Errorf("records:\n%s", got)
	}
}
