package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
	"holdfast/fence"
)

// aloneInOffice is inOffice, and says so if another command is in office at the
// same time: $3 is a file that each of them locks for as long as it lives.
const aloneInOffice = `
	exec 9>>"$3"
	flock -n 9 || echo "TWO $2" >>"$1"
	trap 'echo "out $2" >>"$1"; exit 0' TERM INT
	echo "in $2 $HOLDFAST_TOKEN_NUMBER $$" >>"$1"
	while :; do read -t 0.05 _ <>/dev/null || sleep 0.05 9>&-; done`

// alone starts a candidate whose command witnesses that it is the only one.
func (e *election) alone(env []string, name string, flags ...string) *program {
	e.t.Helper()
	args := append([]string{"elect", "office", "--label", name, "--value", "at " + name}, flags...)
	return start(e.t, env, append(args, "--", "bash", "-c", aloneInOffice, "x", e.log, name, e.log+".lock")...)
}

// quiet checks that no command has begun or ended since the last line.
func (e *election) quiet(what string) {
	e.t.Helper()
	begun, seen := readFile(e.log), 0
	for i := range begun {
		if begun[i] == '\n' {
			seen++
		}
	}
	if seen != e.seen {
		e.t.Fatalf("%s: a command began or ended; all: %q", what, begun)
	}
}

// office waits until the service knows who is in office, and so many others
// that wait for it.
func (p *fleet) office(c *cluster.Client, token uint64, waiters int) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("token %d in office, and %d who wait", token, waiters), func() bool {
		l, err := c.Get(p.t.Context(), "office", cluster.GetOptions{})
		return err == nil && len(l.Holders) == 1 && l.Holders[0].Token.Number == token && l.Waiters == waiters
	})
}

// replaced kills the leader, waits for the next one, and starts the dead one.
func (p *fleet) replaced(meanwhile func()) {
	p.t.Helper()
	dead := p.leader()
	p.kill(dead)
	meanwhile()
	p.leader()
	p.start(dead)
}

// C32: an election goes on through the death of the cluster's leader. Who is in
// office stays there, by the same token, and its command is not even told. If it
// dies with the leader, the next one begins, with a higher token and when no
// other command runs; a preferred candidate is handed the office in spite of
// another death.
func TestCasebookC32_ElectionThroughLeadersDeaths(t *testing.T) {
	t.Parallel()
	p := newFleet(t, 3, "--log-level", "warn")
	env := []string{serverVariable + "=" + p.addresses()}
	client, err := cluster.Dial(t.Context(), p.addresses(), nil)
	if err != nil {
		t.Fatal(err)
	}
	e := newElection(t)
	a := e.alone(env, "a", "--ttl", "30s")
	first, pid := e.begins("a")
	b := e.alone(env, "b", "--ttl", "6s")
	p.office(client, first, 1)
	rounds := 2
	if os.Getenv(soakVariable) != "" {
		rounds = 20
	}
	for round := range rounds {
		p.replaced(func() {})
		p.office(client, first, 1)
		e.quiet(fmt.Sprint("death ", round))
		if a.ended() || b.ended() || !alive(pid) {
			t.Fatalf("death %d: a: %s; b: %s", round, a.stderr, b.stderr)
		}
		var shown primaryJSON
		if err := json.Unmarshal([]byte(run(t, 0, env, "elect", "office", "--show", "-o", "json").stdout.String()), &shown); err != nil {
			t.Fatal(err)
		}
		if token, err := fence.ParseToken(shown.Token); err != nil || token.Number != first || string(*shown.Value) != "at a" {
			t.Errorf("death %d: --show printed %+v (%v)", round, shown, err)
		}
	}

	a.signal(unix.SIGTERM)
	e.next("out a")
	a.expect(0)
	second, pid := e.begins("b")
	c := e.alone(env, "c", "--ttl", "30s")
	p.office(client, second, 1)
	p.replaced(func() {
		kill(b.cmd.Process.Pid, unix.SIGKILL)
		gone(t, pid) // its guardian sees to that
		e.quiet("both deaths")
	})
	third, pid := e.begins("c")
	if first >= second || second >= third {
		t.Errorf("tokens %d, %d, %d", first, second, third)
	}

	preferred := e.alone(env, "p", "--prefer", "--ttl", "30s")
	p.office(client, third, 1)
	p.replaced(func() {})
	e.next("out c")
	gone(t, pid)
	fourth, _ := e.begins("p")
	if fourth <= third {
		t.Errorf("token %d after %d", fourth, third)
	}
	p.office(client, fourth, 1)
	c.says("a preferred candidate asks for the office")
	preferred.signal(unix.SIGTERM)
	e.next("out p")
	preferred.expect(0)
	e.begins("c")
	c.signal(unix.SIGTERM)
	e.next("out c")
	c.expect(0)
	_ = client.Close(context.Background())
	p.equal()
}
