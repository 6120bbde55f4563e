package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// TestCasebookC09_RemovedMemberIsKeptOut: a member that was removed while it
// was down learns it from the others when it comes back, whatever its own log
// says; its ID is refused, and an empty directory gives its machine another.
func TestCasebookC09_RemovedMemberIsKeptOut(t *testing.T) {
	r := newCluster(t, 3)
	k := r.keep()
	out := r.other(r.leader())
	id := out.node.Status().NodeID
	out.stop()
	r.remove(out)
	k.check()
	term := r.leader().node.Status().Term
	node, err := out.launch(t.Context())
	if err == nil { // it runs until it is told
		out.node = node
		out.ended()
	} else if !errors.Is(err, ErrRemoved) {
		t.Fatal(err)
	}
	if got := r.leader().node.Status().Term; got != term {
		t.Errorf("its return raised the term from %d to %d", term, got)
	}
	_, err = r.operator().addMember(t.Context(), &holdfastv1.AddMemberRequest{
		Id: id, Name: "x", PeerAddress: "x.test:7434", ClientAddress: "x.test:7433", Supports: core.SupportedVersion,
	}, probing())
	if e := classify(err); e.Kind != driver.Conflict || !strings.Contains(e.Error(), "empty data directory") {
		t.Errorf("its ID is added again: %v", err)
	}
	fresh := r.joiner() // the machine with an empty directory
	r.add(fresh)
	if got := fresh.node.Status().NodeID; got == id {
		t.Error("the ID came back")
	}
	k.check()
}

// TestJoinIsRefused: who cannot join says why, and what to do.
func TestJoinIsRefused(t *testing.T) {
	r := newCluster(t, 3)
	says := func(what string, err error, part string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %q in it", what, err, part)
		}
	}
	add := func(name, addr string) error {
		_, err := r.operator().addMember(t.Context(), &holdfastv1.AddMemberRequest{Name: name, PeerAddress: addr}, probing())
		return err
	}
	d := r.joiner()
	says("nobody there", add("z", "d.test:7434"), "start the new node first")
	// One with data of its own.
	alone := d.cfg
	alone.Peers = PeerConfig{}
	n, err := StartNode(t.Context(), alone)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = d.launch(t.Context())
	says("a node with data", err, "choose an empty directory")
	if !errors.Is(err, ErrHasData) {
		t.Errorf("it is %v", err)
	}

	e := r.joiner()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := e.launch(ctx)
		ended <- err
	}()
	e.says("holdfast cluster add e --peer e.test:7434")
	says("another name", add("z", "e.test:7434"), `calls itself "e"`)
	for i, m := range r.nodes[:3] { // the leader is among them
		if err := add(rigName(i), m.cfg.Peers.PeerAddr); err != nil {
			t.Errorf("a member that is there: %v", err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "joining the cluster") {
		t.Errorf("given up: %v", err)
	}
	// A founder is no joiner.
	f := r.joiner(func(c *NodeConfig) { c.Peers.Founders = r.nodes[0].cfg.Peers.Founders[:0:0] })
	f.cfg.Peers.Founders, f.cfg.Peers.Join = append(f.cfg.Peers.Founders, r.nodes[0].cfg.Peers.Founders...), nil
	f.cfg.Peers.Founders[2].Name, f.cfg.Peers.Founders[2].Addr = f.cfg.Peers.Name, f.cfg.Peers.PeerAddr
	_, err = f.launch(t.Context())
	says("a founder", err, "is a member of one")
}

// TestJoinerDies: a node that is killed between its addition and its first
// snapshot goes on where it was; it has a vote only when it has the log.
func TestJoinerDies(t *testing.T) {
	r := newCluster(t, 3)
	k := r.keep()
	d := r.joiner()
	started := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := d.launch(ctx)
		started <- err
	}()
	d.says("the node is no member yet")
	// From now on the others do not reach it: it is added, and gets nothing.
	if err := r.tryAdd(d); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.nodes[:3] {
		r.cut(m.i, d.i)
	}
	cancel()
	err := <-started
	lead := r.leader()
	lead.view(func(x Reading) {
		members, _ := x.State.Members()
		for _, m := range members {
			if m.Name == "d" && !m.Learner && err != nil {
				t.Error("a node that never ran has a vote")
			}
		}
	})
	r.heal()
	r.start(d)
	r.voters("abcd")
	k.check()
}

// TestCasebookC11_RollingUpgrade: members are replaced by a newer release one
// by one. The cluster version rises when the last of them is newer, and not
// before; nobody halts; an older release neither joins nor comes back.
func TestCasebookC11_RollingUpgrade(t *testing.T) {
	const newest = core.SupportedVersion + 1
	r := newCluster(t, 3)
	k := r.keep()
	version := func(want uint32) func() bool {
		return func() bool {
			ok := true
			for _, m := range r.nodes {
				if m.node != nil {
					m.view(func(x Reading) { ok = ok && x.State.Version() == want })
				}
			}
			return ok
		}
	}
	eventually(t, "the version that all know", version(core.SupportedVersion))
	for i, m := range r.nodes {
		m.stop()
		m.cfg.hooks.supports = newest
		m.cfg.hooks.versionOf = func(cmd core.Command) uint32 {
			if _, ok := cmd.(core.Put); ok {
				return newest
			}
			return core.VersionOf(cmd)
		}
		r.start(m)
		r.leader()
		r.do(core.Tick{})
		if i < 2 && !version(core.SupportedVersion)() {
			t.Fatalf("the version rose after %d of 3", i+1)
		}
	}
	lead := r.leader()
	if _, err := lead.node.Do(t.Context(), core.Put{Lock: "v"}); err != nil && !errors.Is(err, ErrTooNew) {
		t.Error(err)
	}
	eventually(t, "the newer version", version(newest))
	r.do(core.Put{Lock: "v", Value: []byte("new")})
	k.check()

	old := r.joiner()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := old.launch(ctx)
		ended <- err
	}()
	old.says("the node is no member yet")
	if err := r.tryAdd(old); classify(err).Kind != driver.Unsupported || !strings.Contains(err.Error(), "start the release that the members run") {
		t.Errorf("an older release joins: %v", err)
	}
	cancel()
	<-ended
	back := r.other(r.leader())
	back.stop()
	back.cfg.hooks.supports, back.cfg.hooks.versionOf = 0, nil
	if node, err := back.launch(t.Context()); err == nil {
		select {
		case <-node.Done():
			err = node.Err()
		case <-time.After(patience):
		}
		if !errors.Is(err, core.ErrNewerFormat) {
			t.Errorf("an older release on newer data: %v", err)
		}
	} else if !errors.Is(err, core.ErrNewerFormat) {
		t.Errorf("an older release on newer data: %v", err)
	}
	k.check()
}
