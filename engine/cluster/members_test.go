package cluster

import (
	"testing"

	"holdfast/driver"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	c := dial(t, srv.addr, nil)
	ctx := t.Context()
	st := must[*ClusterStatus](t)(c.ClusterStatus(ctx, ClusterStatusOptions{WithHash: true}))
	if st.Server != srv.addr || st.LeaderID != st.NodeID || len(st.Members) != 1 || !st.Members[0].Known || !st.Members[0].Reached ||
		len(st.StateHash) != 64 || st.HashIndex == 0 || st.ClusterVersion == 0 || st.Supports < st.ClusterVersion || !st.Ready {
		t.Fatalf("status %+v", st)
	}
	again := must[*ClusterStatus](t)(c.ClusterStatus(ctx, ClusterStatusOptions{WithHash: true, HashIndex: st.HashIndex}))
	if again.StateHash != st.StateHash {
		t.Errorf("hash %s, then %s of the same entry", st.StateHash, again.StateHash)
	}
	if _, err := c.ClusterStatus(ctx, ClusterStatusOptions{WithHash: true, HashIndex: 1}); driver.KindOf(err) != driver.NotFound {
		t.Errorf("the hash of a past entry: %v", err)
	}
	n := Member{ID: 7, Name: "n2", PeerAddr: "10.0.0.2:7434", ClientAddr: "10.0.0.2:7433", Supports: st.Supports}
	if got, err := c.AddMember(ctx, n, "op"); err != nil || len(got) != 2 || !got[0].Learner || got[0].Name != "n2" {
		t.Fatalf("added %+v, %v", got, err)
	}
	if _, err := c.TransferLeadership(ctx, "n2", 0, "op"); driver.KindOf(err) != driver.Conflict || driver.OutcomeOf(err) != driver.No {
		t.Errorf("transfer to a learner: %v", err)
	}
	if got := must[Member](t)(c.TransferLeadership(ctx, "", st.NodeID, "op")); got.ID != st.NodeID {
		t.Errorf("%+v leads", got)
	}
	if got, err := c.RemoveMember(ctx, "n2", 0, "op"); err != nil || len(got) != 1 {
		t.Errorf("left %+v, %v", got, err)
	}
	if _, err := c.AddMember(ctx, n, "op"); driver.KindOf(err) != driver.Conflict {
		t.Errorf("a removed ID: %v", err)
	}
	if _, err := c.RemoveMember(ctx, "", st.NodeID, "op"); driver.KindOf(err) != driver.Conflict {
		t.Errorf("the only member: %v", err)
	}
}
