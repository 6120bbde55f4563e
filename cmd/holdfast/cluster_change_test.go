package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// joiner makes one more node, which is to join.
func (p *fleet) joiner(t *testing.T) *fleetNode {
	t.Helper()
	name := fmt.Sprint("n", len(p.nodes)+1)
	addr := freeAddress(t)
	var join []string
	for _, m := range p.nodes {
		join = append(join, m.args[8]) // of --peer-listen
	}
	return &fleetNode{addr: addr, args: []string{
		"serve", "--name", name, "--data", filepath.Join(t.TempDir(), "data"), "--listen", addr,
		"--peer-listen", freeAddress(t), "--join", strings.Join(join, ","),
	}}
}

// add lets a node join, as its own log says, and waits until it has a vote.
func (p *fleet) add(n *fleetNode, env []string) {
	t := p.t
	t.Helper()
	n.program = start(t, nil, n.args...)
	var words []string
	eventually(t, "the node says how it is added", func() bool {
		if n.ended() {
			t.Fatalf("%v ended: %s", n.args, n.stderr)
		}
		_, rest, ok := strings.Cut(n.stderr.String(), "holdfast cluster add ")
		words = strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '"' || r == '\n' || r == '\\' })
		return ok && len(words) >= 3
	})
	if got := run(t, 0, env, append([]string{"cluster", "add"}, words[:3]...)...).stdout.String(); !strings.HasPrefix(got, words[0]+" is added") {
		t.Errorf("cluster add prints %q", got)
	}
	p.nodes = append(p.nodes, n)
	eventually(t, "its vote", func() bool {
		for _, m := range clusterStatus(t, env).Members {
			if m.Name == words[0] {
				return m.Role == "voter" && m.Ready != nil && *m.Ready
			}
		}
		return false
	})
}

// gone waits until a node has ended because it was removed, and takes it out.
func (p *fleet) gone(n *fleetNode) {
	p.t.Helper()
	n.expect(exitUsage).says("was removed from its cluster", "new, empty data directory")
	var left []*fleetNode
	for _, m := range p.nodes {
		if m != n {
			left = append(left, m)
		}
	}
	p.nodes = left
}

// TestMembersChangedUnderLoad: nodes join, hand over, are removed and replaced
// by the commands that people type, while clients work: no acknowledged grant
// is lost, tokens only rise, what was held and who waited is as before, no
// session ends, all states are equal.
//
// It is not parallel: its load would be one for the tests that measure times.
func TestMembersChangedUnderLoad(t *testing.T) {
	p := newFleet(t, 3, "--log-level", "warn")
	defer p.hangUp()
	env := []string{serverVariable + "=" + p.addresses()}
	h := p.hold(env)
	four := p.joiner(t)
	p.add(four, env)
	h.check("with one more")

	run(t, 0, env, "cluster", "transfer", "n4")
	if st, ok := four.status(false); !ok || st.Role != "leader" {
		t.Errorf("after the transfer n4 is %+v", st)
	}
	h.check("after the transfer")

	one := p.nodes[0]
	run(t, 0, env, "cluster", "remove", "n1")
	p.gone(one)
	run(t, exitUsage, nil, one.args...).says("was removed from its cluster")
	h.check("without n1")

	again := p.joiner(t) // n1's machine, with an empty directory
	again.args[2] = "n1"
	p.add(again, env)
	h.check("with n1 anew")

	run(t, 0, env, "cluster", "remove", "n4") // which leads
	p.gone(four)
	h.check("without the one that led")
	h.release()
}

func TestJoinRefusals(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for says, args := range map[string][]string{
		"exclude each other": {"--name", "a", "--join", "127.0.0.1:1", "--initial-cluster", "a=127.0.0.1:7434"},
		"needs a name":       {"--join", "127.0.0.1:1"},
		"want host:port":     {"--name", "a", "--join", "nowhere"},
		"wildcard":           {"--name", "a", "--join", "0.0.0.0:7434"},
	} {
		run(t, exitUsage, nil, append([]string{"serve", "--data", dir}, args...)...).says(says)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a refused start made the directory")
	}
	s := startService(t, "serve", "--data", dir, "--listen", "127.0.0.1:0")
	s.signal(15)
	s.expect(0)
	run(t, exitFailure, nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--name", "a", "--join", "127.0.0.1:1").
		says("cannot join a cluster", "choose an empty directory")
	run(t, exitUsage, nil, "cluster", "add", "n2").says("--peer HOST:PORT is missing")
}
