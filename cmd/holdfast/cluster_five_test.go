package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// followers are the nodes that run and do not lead.
func (p *fleet) followers() (all []*fleetNode) {
	p.t.Helper()
	lead := p.leader()
	for _, n := range p.nodes {
		if n != lead && n.program != nil {
			all = append(all, n)
		}
	}
	return all
}

func (n *fleetNode) name() string { return n.args[2] }

// pause stops a node's process for a while, during which the others work, and
// lets it go on.
func (h *held) pause(n *fleetNode, limit time.Duration, what string) {
	t := h.p.t
	t.Helper()
	kill(n.cmd.Process.Pid, unix.SIGSTOP)
	n.paused = true
	began, from := time.Now(), h.load.grants.Load()
	within(t, limit+patience, "the pause of "+n.name()+", with grants", func() bool {
		return time.Since(began) > limit && h.load.grants.Load() > from+10 || len(h.load.fails) > 0
	})
	kill(n.cmd.Process.Pid, unix.SIGCONT)
	n.paused = false
	h.check(what)
}

// retire stops a leader as its machine's shutdown would: it hands over first.
func (h *held) retire(n *fleetNode) {
	t := h.p.t
	t.Helper()
	before, ok := n.status(false)
	if !ok || before.Role != "leader" {
		t.Fatalf("%s is %+v, want the leader", n.name(), before)
	}
	n.signal(unix.SIGTERM)
	n.expect(0).says("leadership is handed over", "this node stops")
	n.program = nil
	if st, ok := h.p.leader().status(false); !ok || st.NodeID == before.NodeID || len(st.Term) < len(before.Term) || st.Term <= before.Term {
		t.Errorf("after %+v had stopped %+v leads", before, st)
	}
}

// replace takes a dead node out, whose data are lost, and adds its machine as a
// new member, as the node's own words and the manual say.
func (h *held) replace(dead *fleetNode) {
	t := h.p.t
	t.Helper()
	if err := os.RemoveAll(dead.args[4]); err != nil { // --data
		t.Fatal(err)
	}
	run(t, exitFailure, nil, dead.args...).says("holdfast cluster remove "+dead.name(), "holdfast cluster add "+dead.name()+" --peer "+dead.args[8], "--join")
	if err := os.RemoveAll(dead.args[4]); err != nil {
		t.Fatal(err)
	}
	run(t, 0, h.env, "cluster", "remove", dead.name())
	h.p.nodes = slices.DeleteFunc(h.p.nodes, func(n *fleetNode) bool { return n == dead })
	h.check("without " + dead.name())
	var join []string
	for _, n := range h.p.nodes {
		join = append(join, n.args[8])
	}
	args := slices.Clone(dead.args)
	i := slices.Index(args, "--initial-cluster")
	args[i], args[i+1] = "--join", strings.Join(join, ",")
	h.p.add(&fleetNode{addr: dead.addr, args: args}, h.env)
}

// transfer hands leadership over, and checks who leads then.
func (h *held) transfer(to string) {
	t := h.p.t
	t.Helper()
	before, _ := h.p.leader().status(false)
	args := []string{"cluster", "transfer", "-o", "json"}
	if to != "" {
		args = append(args, to)
	}
	var said struct{ Leader, ID string }
	text := run(t, 0, h.env, args...).stdout.String()
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if to != "" && said.Leader != to || said.Leader == "" || said.ID == before.NodeID {
		t.Errorf("a transfer from %s to %q prints %s", before.NodeID, to, text)
	}
	if now := h.p.leader(); now.name() != said.Leader {
		t.Errorf("%s leads, and transfer said %s", now.name(), said.Leader)
	}
}

// TestFiveNodes: of five nodes the leader dies, two followers die, one is
// stopped for several election timeouts, one loses its data and is replaced,
// leadership is handed over in each way, and at last all die at once. After
// each all that was held, published and waited for is as before.
//
// It is not parallel: its load would be one for the tests that measure times.
func TestFiveNodes(t *testing.T) {
	p := newFleet(t, 5, "--log-level", "info", "--snapshot-every", "200")
	defer p.hangUp()
	h := p.hold([]string{serverVariable + "=" + p.addresses()})
	rounds := 1
	if os.Getenv(soakVariable) != "" {
		rounds = 10
	}
	for round := range rounds {
		say := func(what string) string { return fmt.Sprintf("round %d: %s", round, what) }
		lead := p.leader()
		p.kill(lead)
		h.check(say("the leader killed"))
		h.pause(p.followers()[0], 3*time.Second, say("a follower paused while another was dead"))
		p.start(lead)

		dead := p.followers()[:2]
		p.kill(dead...)
		h.check(say("two followers killed"))
		p.start(dead...)

		h.pause(p.leader(), 3*time.Second, say("the leader paused"))

		lead = p.leader()
		h.retire(lead)
		h.check(say("the leader stopped"))
		p.start(lead)

		h.transfer(p.followers()[1].name())
		h.check(say("a transfer by name"))
		h.transfer("")
		h.check(say("a transfer to whom the leader chooses"))

		lost := p.followers()[0]
		p.kill(lost)
		h.replace(lost)
		h.check(say("a node replaced"))
	}
	six := p.joiner(t)
	p.add(six, h.env)
	h.check("with a sixth")
	run(t, 0, h.env, "cluster", "remove", six.name())
	p.gone(six)
	h.check("with five again")

	h.rest("all killed", func() {
		p.kill(p.nodes...)
		p.start(p.nodes...)
	})
	h.release()
	for _, n := range p.nodes { // or its restarts had none to take
		files, _ := filepath.Glob(filepath.Join(n.args[4], "*", "snap", "*.snap"))
		if !slices.ContainsFunc(files, func(f string) bool { return !strings.HasSuffix(f, "-0000000000000001.snap") }) {
			t.Errorf("%s has no snapshot but the first: %q", n.name(), files)
		}
	}
}
