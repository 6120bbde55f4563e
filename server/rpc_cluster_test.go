package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/server/replica"
	"holdfast/wire/holdfastv1"
)

// TestMembersOfALoneNode: what an operator can ask of one node, and what is
// refused, with what to do.
func TestMembersOfALoneNode(t *testing.T) {
	w := start(t)
	call := w.callers()["json over HTTP/1.1"]
	status := func(with bool) *holdfastv1.ClusterStatusResponse {
		t.Helper()
		return ok(t, call, "ClusterStatus", &holdfastv1.ClusterStatusRequest{WithHash: with}, &holdfastv1.ClusterStatusResponse{})
	}
	st := status(true)
	if len(st.GetMembers()) != 1 || st.GetMembers()[0].GetId() != st.GetNodeId() || st.GetLeaderId() != st.GetNodeId() || !st.GetReady() ||
		len(st.GetStateHash()) != 64 || st.GetHashIndex() == 0 || st.GetClusterVersion() != core.SupportedVersion || st.GetSupports() != core.SupportedVersion || !st.GetMembers()[0].GetReached() {
		t.Fatalf("status is %v", st)
	}
	me := st.GetNodeId()
	says := func(e *driver.Error, part string) {
		t.Helper()
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%v: want %q in it", e, part)
		}
	}
	says(refusedAs(t, call, "RemoveMember", &holdfastv1.RemoveMemberRequest{Id: me}, driver.Conflict), "add another member first")
	says(refusedAs(t, call, "TransferLeadership", &holdfastv1.TransferLeadershipRequest{}, driver.Conflict), "no other voter can be reached")
	ok(t, call, "TransferLeadership", &holdfastv1.TransferLeadershipRequest{Id: me}, &holdfastv1.TransferLeadershipResponse{})

	add := &holdfastv1.AddMemberRequest{Id: 42, Name: "n2", PeerAddress: "10.0.0.2:7434", ClientAddress: "10.0.0.2:7433", Supports: core.SupportedVersion, By: "ann"}
	for range 2 { // the second is the same request
		added := ok(t, call, "AddMember", add, &holdfastv1.AddMemberResponse{})
		if len(added.GetMembers()) != 2 || added.GetIncarnation() != st.GetIncarnation() || len(added.GetDomain()) != 16 {
			t.Fatalf("added %v", added)
		}
	}
	says(refusedAs(t, call, "AddMember", &holdfastv1.AddMemberRequest{Id: 43, Name: "n3", PeerAddress: "h:1", ClientAddress: "h:2", Supports: core.SupportedVersion}, driver.Busy), "wait until it has a vote")
	says(refusedAs(t, call, "AddMember", &holdfastv1.AddMemberRequest{Id: 42, Name: "n4", PeerAddress: "h:1", ClientAddress: "h:2", Supports: core.SupportedVersion}, driver.Conflict), "has the ID")
	says(refusedAs(t, call, "TransferLeadership", &holdfastv1.TransferLeadershipRequest{Name: "n2"}, driver.Conflict), "no vote yet")
	for _, m := range status(false).GetMembers() {
		if m.GetId() == 42 && (!m.GetLearner() || m.GetReached() || m.GetName() != "n2") {
			t.Errorf("the learner is %v", m)
		}
	}
	removed := ok(t, call, "RemoveMember", &holdfastv1.RemoveMemberRequest{Name: "n2", By: "ann"}, &holdfastv1.RemoveMemberResponse{})
	if removed.GetId() != 42 || len(removed.GetMembers()) != 1 {
		t.Errorf("removed %v", removed)
	}
	says(refusedAs(t, call, "AddMember", add, driver.Conflict), "an ID is never used again")
	says(refusedAs(t, call, "RemoveMember", &holdfastv1.RemoveMemberRequest{Id: 42}, driver.NotFound), "removed before")
	says(refusedAs(t, call, "RemoveMember", &holdfastv1.RemoveMemberRequest{Name: "n9"}, driver.NotFound), "holdfast cluster status")
	if got := status(false).GetRemovedIds(); len(got) != 1 || got[0] != 42 {
		t.Errorf("removed IDs are %v", got)
	}
	for _, record := range [][]string{{`"call":"add-member"`, `"outcome":"done"`}, {`"call":"add-member"`, `"outcome":"refused"`}, {`"call":"remove-member"`, `"outcome":"done"`}, {`"call":"transfer"`, `"outcome":"refused"`}} {
		if len(w.log.lines(append(record, `"msg":"audit"`)...)) == 0 {
			t.Errorf("no audit record %v", record)
		}
	}
}

func TestBadMemberRequests(t *testing.T) {
	w := start(t)
	call := w.callers()["json over HTTP/1.1"]
	for _, m := range []*holdfastv1.AddMemberRequest{
		{Id: 0, Name: "a", PeerAddress: "h:1", ClientAddress: "h:2", Supports: core.SupportedVersion},
		{Id: 1 << 63, Name: "a", PeerAddress: "h:1", ClientAddress: "h:2", Supports: core.SupportedVersion},
		{Id: 1, Name: "", PeerAddress: "h:1", ClientAddress: "h:2", Supports: core.SupportedVersion},
		{Id: 1, Name: "A", PeerAddress: "h:1", ClientAddress: "h:2", Supports: core.SupportedVersion},
		{Id: 1, Name: "a", ClientAddress: "h:2", Supports: core.SupportedVersion},
		{Id: 1, Name: "a", PeerAddress: "h:1", ClientAddress: "0.0.0.0:2", Supports: core.SupportedVersion},
		{Id: 1, Name: "a", PeerAddress: "h:0", ClientAddress: "h:2", Supports: core.SupportedVersion},
		{Id: 1, Name: "a", PeerAddress: "h:1\n", ClientAddress: "h:2", Supports: core.SupportedVersion},
		{Id: 1, Name: "a", PeerAddress: ":1", ClientAddress: "h:2", Supports: core.SupportedVersion},
	} {
		refusedAs(t, call, "AddMember", m, driver.Invalid)
	}
	refusedAs(t, call, "RemoveMember", &holdfastv1.RemoveMemberRequest{}, driver.Invalid)
	refusedAs(t, call, "RemoveMember", &holdfastv1.RemoveMemberRequest{Name: "a", Id: 1}, driver.Invalid)
	refusedAs(t, call, "TransferLeadership", &holdfastv1.TransferLeadershipRequest{Name: "a", Id: 1}, driver.Invalid)
	refusedAs(t, call, "ClusterStatus", &holdfastv1.ClusterStatusRequest{WithHash: true, HashIndex: 1}, driver.NotFound)
}

// TestHashAtAnEntry: the hash of an entry to come is that of the state right
// after it, however much follows.
func TestHashAtAnEntry(t *testing.T) {
	n := startTestNode(t, nil)
	at := n.Status().Applied + 5
	got := make(chan string, 1)
	go func() {
		st, err := n.StateAt(t.Context(), at)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- fmt.Sprintf("%d %x", st.Index(), st.Hash())
	}()
	waiting := func() (waits bool) {
		_ = n.ask(t.Context(), true, func(l *loop, done func(error)) { waits = len(l.members.passing) > 0; done(nil) })
		return waits
	}
	for !waiting() {
		if t.Context().Err() != nil {
			t.Fatal("it never waits")
		}
	}
	want := ""
	for i := range 10 {
		n.do(core.Put{Lock: "v", Value: []byte{byte(i)}})
		if st, err := n.StateAt(t.Context(), 0); err == nil && st.Index() == at {
			want = fmt.Sprintf("%d %x", st.Index(), st.Hash())
		}
	}
	if is := <-got; is != want || want == "" {
		t.Errorf("hash %s, want %s", is, want)
	}
	if _, err := n.StateAt(t.Context(), at); !errors.Is(err, ErrPassed) {
		t.Errorf("an entry of the past: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.StateAt(soon, at+1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an entry that never comes: %v", err)
	}
}

// TestCasebookC11_NewerCommandIsRefusedBeforeTheLog: a command that not every
// member knows never enters the log; the version rises once all know it, and a
// release that does not know it neither joins nor starts on the data.
func TestCasebookC11_NewerCommandIsRefusedBeforeTheLog(t *testing.T) {
	says := map[uint64]uint32{}
	n := startTestNode(t, func(c *NodeConfig) { pretendNewer(c, says) })
	ctx := t.Context()
	member := core.Member{ID: 5, Name: "old", PeerAddr: "p:1", ClientAddr: "c:1"}
	if err := n.ChangeMembers(ctx, replica.Change{Kind: replica.AddLearner, Member: member}); err != nil {
		t.Fatal(err)
	}
	turn := func(id uint64, v uint32) (version uint32) {
		t.Helper()
		if err := n.ask(ctx, true, func(l *loop, done func(error)) {
			if v > 0 {
				says[id] = v
			}
			l.members.raising = false
			l.tickMembers()
			done(nil)
		}); err != nil {
			t.Fatal(err)
		}
		n.do(core.Tick{}) // behind whatever was proposed
		if err := n.View(ctx, true, func(r Reading) { version = r.State.Version() }); err != nil {
			t.Fatal(err)
		}
		return version
	}
	if v := turn(5, 0); v != core.SupportedVersion {
		t.Fatalf("version %d while a member has not said what it knows", v)
	}
	if v := turn(5, 1); v != core.SupportedVersion {
		t.Fatalf("version %d with a member that knows 1", v)
	}
	before := n.Status().Applied
	if _, err := n.Do(ctx, core.Put{Lock: "new"}); !errors.Is(err, ErrTooNew) || classify(err).Kind != driver.Unsupported || classify(err).Outcome != driver.No {
		t.Errorf("a newer command: %v", err)
	}
	if n.Status().Applied != before {
		t.Error("the refused command is in the log")
	}
	if v := turn(5, newer); v != newer {
		t.Fatalf("version %d, and all know %d", v, newer)
	}
	n.do(core.Put{Lock: "new"})
	if v := turn(5, 1); v != newer {
		t.Errorf("the version fell to %d", v)
	}
	s := &service{node: n.Node}
	_, err := s.addMember(ctx, &holdfastv1.AddMemberRequest{Id: 6, Name: "older", PeerAddress: "p:2", ClientAddress: "c:2", Supports: 1}, probing())
	if e := classify(err); e.Kind != driver.Unsupported || !strings.Contains(e.Error(), "start the release that the members run") {
		t.Errorf("an older joiner: %v", err)
	}
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	cfg := n.cfg
	cfg.hooks = nodeHooks{}
	if _, err := StartNode(ctx, cfg); !errors.Is(err, core.ErrNewerFormat) {
		t.Errorf("an older release on the data: %v", err)
	}
	n.start() // the newer one again
}

const newer = core.SupportedVersion + 1

// pretendNewer makes a node a release that knows a newer cluster version, in
// which the lock "new" can have a value. says is what the others know.
func pretendNewer(c *NodeConfig, says map[uint64]uint32) {
	c.hooks.supports = newer
	c.hooks.versionOf = func(cmd core.Command) uint32 {
		if p, ok := cmd.(core.Put); ok && p.Lock == "new" {
			return newer
		}
		return 1
	}
	c.hooks.loop = func(l *loop) {
		l.members.supports = func(id uint64) (uint32, bool) { v, ok := says[id]; return v, ok }
		if members, _ := l.m.State().Members(); len(members) == 1 {
			l.members.raising = true // until the second member is there
		}
	}
}

// TestRemovedNodeEnds: a node that learns that it was removed ends with a name
// for it, and does not start again on its data.
func TestRemovedNodeEnds(t *testing.T) {
	n := startTestNode(t, func(c *NodeConfig) { c.Dir = filepath.Join(t.TempDir(), "gone") })
	me := n.Status().NodeID
	n.do(core.Members{Members: []core.Member{{ID: 7}}, Removed: []uint64{me}})
	select {
	case <-n.Done():
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	if err := n.Err(); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "empty data directory") {
		t.Errorf("it ends with %v", err)
	}
	again, err := StartNode(t.Context(), n.cfg)
	if err == nil { // it first had to find out what is committed
		<-again.Done()
		err = again.Err()
	}
	if !errors.Is(err, ErrRemoved) {
		t.Errorf("it starts with %v", err)
	}
}
