package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fence"
)

// An election is a file in which the commands of candidates write when they
// begin and end.
type election struct {
	t    *testing.T
	log  string
	seen int // lines that were looked at
}

func newElection(t *testing.T) *election {
	return &election{t: t, log: filepath.Join(t.TempDir(), "log")}
}

// inOffice is what a candidate's command does: $1 is the file, $2 its name.
const inOffice = `
	trap 'echo "out $2" >>"$1"; exit 0' TERM INT
	echo "in $2 $HOLDFAST_TOKEN_NUMBER $$" >>"$1"
	while :; do read -t 0.05 _ <>/dev/null || sleep 0.05; done`

// stand starts a candidate.
func (e *election) stand(env []string, name string, flags ...string) *program {
	e.t.Helper()
	args := append([]string{"elect", "office", "--label", name, "--value", "at " + name}, flags...)
	return start(e.t, env, append(args, "--", "bash", "-c", inOffice, "x", e.log, name)...)
}

// next waits for the next line, and checks what it begins with.
func (e *election) next(want string) (fields []string) {
	e.t.Helper()
	var lines []string
	eventually(e.t, "the line "+want, func() bool {
		text := readFile(e.log)
		lines = strings.Split(text, "\n")
		return len(lines)-1 > e.seen
	})
	line := lines[e.seen]
	e.seen++
	if !strings.HasPrefix(line, want) {
		e.t.Fatalf("got the line %q, want %q; all: %q", line, want, lines)
	}
	return strings.Fields(line)
}

// begins waits until a candidate's command runs, and returns its token's number
// and its process.
func (e *election) begins(name string) (token uint64, pid int) {
	e.t.Helper()
	f := e.next("in " + name + " ")
	token, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		e.t.Fatal(err)
	}
	pid, err = strconv.Atoi(f[3])
	if err != nil {
		e.t.Fatal(err)
	}
	return token, pid
}

// queued waits until n candidates wait.
func (s *service) queued(t *testing.T, name string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d in the queue of %s", n, name), func() bool {
		l, ok := s.lock(t, name)
		return ok && len(l.Holders) == 1 && l.Waiters == n
	})
}

// A revoke makes the primary step down: its command ends before the next one's
// begins, and it stands again. --show tells who is in office.
func TestElectHandsOver(t *testing.T) {
	t.Parallel()
	s := dev(t)
	e := newElection(t)
	run(t, exitMissing, s.on(), "elect", "office", "--show").says("nobody is in office")
	follow := start(t, s.on(), "elect", "office", "--show", "--follow")
	a := e.stand(s.on(), "a")
	first, _ := e.begins("a")
	b := e.stand(s.on(), "b")
	s.queued(t, "office", 1)

	shown := run(t, 0, s.on(), "elect", "office", "--show").stdout.String()
	for _, want := range []string{"office", `"a" on `, number(first) + "@", "at a"} {
		if !strings.Contains(shown, want) {
			t.Errorf("--show printed %q, want %q in it", shown, want)
		}
	}
	var p primaryJSON
	if err := json.Unmarshal([]byte(run(t, 0, s.on(), "elect", "office", "--show", "-o", "json").stdout.String()), &p); err != nil {
		t.Fatal(err)
	}
	if token, err := fence.ParseToken(p.Token); err != nil || token.Number != first || token.Lock != "office" || !p.Primary || string(*p.Value) != "at a" {
		t.Errorf("--show -o json printed %+v (%v)", p, err)
	}

	h := s.holds(t, "office")
	run(t, 0, s.on(), "lock", "revoke", "office", "--token", h.Grant)
	e.next("out a")
	second, _ := e.begins("b")
	if second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	s.queued(t, "office", 1) // after its rest, a stands again
	a.says("revoked", "left office; standing again")

	b.signal(unix.SIGTERM)
	e.next("out b")
	b.expect(0)
	third, _ := e.begins("a")
	a.signal(unix.SIGINT)
	e.next("out a")
	a.expect(0).says(fmt.Sprintf("token %d: starting bash", third))
	s.free(t, "office")
	want := fmt.Sprintf("nobody\n%d  \"a\" on HOST  value at a\nnobody\n%d  \"b\" on HOST  value at b\n", first, second)
	eventually(t, "what --follow prints", func() bool {
		got := strings.ReplaceAll(follow.stdout.String(), " on "+hostName(), " on HOST")
		got = strings.ReplaceAll(got, "nobody\n", "") // the moment between two may be seen or not
		return strings.HasPrefix(got, strings.ReplaceAll(want, "nobody\n", ""))
	})
	follow.signal(unix.SIGINT)
	follow.expect(0)
}

// C32: a service that is killed, and away for longer than the lease, ends the
// time in office and not the candidacy.
func TestCasebookC32_ElectOutlivesTheService(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := startService(t, "serve", "--data", data, "--listen", "127.0.0.1:0", "--log-level", "warn")
	e := newElection(t)
	a := e.stand(s.on(), "a", "--ttl", "3s")
	last, pid := e.begins("a")
	for range 2 {
		kill(s.cmd.Process.Pid, unix.SIGKILL)
		<-s.done
		e.next("out a") // by its own clock, with nobody to ask
		gone(t, pid)
		s = startService(t, "serve", "--data", data, "--listen", s.addr, "--log-level", "warn")
		token, next := e.begins("a")
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last, pid = token, next
	}
	a.signal(unix.SIGTERM)
	e.next("out a")
	a.expect(0)
	s.free(t, "office")
}

// A candidate that is stopped loses office, and its command with it; when it
// goes on, it stands again. One that is killed takes its command along.
func TestElectStoppedAndKilled(t *testing.T) {
	t.Parallel()
	s := dev(t)
	e := newElection(t)
	a := e.stand(s.on(), "a", "--ttl", "3s")
	first, pid := e.begins("a")
	b := e.stand(s.on(), "b", "--ttl", "3s")
	s.queued(t, "office", 1)
	a.signal(unix.SIGSTOP)
	e.next("out a") // its guardian ends the command
	gone(t, pid)
	second, pid := e.begins("b")
	if second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	a.signal(unix.SIGCONT)
	s.queued(t, "office", 1)
	kill(b.cmd.Process.Pid, unix.SIGKILL)
	gone(t, pid)
	e.begins("a")
	s.queued(t, "office", 0)
}

// A command that ends by itself is started again after a rest, as often as it
// takes, and leaves nothing behind; the options say when that is enough.
func TestElectCommandEndsByItself(t *testing.T) {
	t.Parallel()
	s := dev(t)
	log := filepath.Join(t.TempDir(), "log")
	script := []string{"--", "sh", "-c", `echo "$HOLDFAST_TOKEN_NUMBER" >>"$1"; exit "$2"`, "x", log}
	again := start(t, s.on(), append(append([]string{"elect", "again", "--rest", "20ms", "--stop-on-failure"}, script...), "0")...)
	lines := func() int { return strings.Count(readFile(log), "\n") }
	descriptors := func() int {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", again.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	eventually(t, "some runs", func() bool { return lines() >= 3 })
	before := descriptors()
	eventually(t, "more runs", func() bool { return lines() >= 15 })
	if now := descriptors(); now > before+4 {
		t.Errorf("%d descriptors after 3 runs, %d after 15", before, now)
	}
	again.signal(unix.SIGTERM)
	again.expect(0).says("exit code 0")

	run(t, 0, s.on(), append(append([]string{"elect", "once", "--stop-on-success"}, script...), "0")...)
	run(t, 7, s.on(), append(append([]string{"elect", "once", "--stop-on-failure"}, script...), "7")...).says("exit code 7")
	if _, ok := s.lock(t, "once"); ok {
		t.Error("the lock is held after both have ended")
	}
}

// A preferred candidate is handed the office.
func TestElectPrefer(t *testing.T) {
	t.Parallel()
	s := dev(t)
	e := newElection(t)
	a := e.stand(s.on(), "a")
	e.begins("a")
	e.stand(s.on(), "p", "--prefer")
	e.next("out a")
	e.begins("p")
	s.queued(t, "office", 1)
	a.says("a preferred candidate asks for the office")
}

// probe asks a candidate's probe.
func probe(t *testing.T, address, path string) (code int, h healthJSON) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, h
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(body, &h)
	return res.StatusCode, h
}

// Probes tell who stands and who is in office, from the start on: a candidate
// waits for its service, and says so.
func TestElectProbes(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	e := newElection(t)
	stand := func(name string) (*program, string) {
		p := e.stand([]string{serverVariable + "=" + addr}, name, "--health-listen", "127.0.0.1:0")
		address := ""
		eventually(t, "the probes' address", func() bool {
			_, rest, ok := strings.Cut(p.stderr.String(), "answered at http://")
			address, _, _ = strings.Cut(rest, "/")
			return ok && strings.Contains(rest, "\n")
		})
		return p, address
	}
	a, atA := stand("a")
	code, h := probe(t, atA, "/standing")
	if code != http.StatusServiceUnavailable || h.Standing || h.Why == "" {
		t.Errorf("without a service: %d, %+v", code, h)
	}
	eventually(t, "the reason", func() bool {
		_, h := probe(t, atA, "/standing")
		return strings.Contains(h.Why, addr) && strings.Contains(a.stderr.String(), "trying again until one answers")
	})
	s := startService(t, "dev", "--listen", addr)
	token, _ := e.begins("a")
	expect := func(address, path string, want int, state string) {
		t.Helper()
		code, h := probe(t, address, path)
		if code != want || h.State != state || h.Election != "office" {
			t.Errorf("%s: %d, %+v; want %d, %s", path, code, h, want, state)
		}
		if state == "in office" && h.TokenNumber != number(token) {
			t.Errorf("token %s, want %d", h.TokenNumber, token)
		}
	}
	expect(atA, "/primary", 200, "in office")
	expect(atA, "/standing", 200, "in office")
	_, atB := stand("b")
	s.queued(t, "office", 1)
	expect(atB, "/primary", 503, "queued")
	expect(atB, "/standing", 200, "queued")
	if code, _ := probe(t, atB, "/"); code != http.StatusNotFound {
		t.Errorf("/ answers %d", code)
	}
}

// What is wrong with a command line is said before anything is sent.
func TestElectUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"a", "true"}, exitUsage, "must stand after '--': holdfast elect a -- true"},
		{[]string{"a"}, exitUsage, "no command: want holdfast elect NAME"},
		{[]string{"--", "true"}, exitUsage, "no lock name"},
		{[]string{strings.Repeat("x", 503), "--", "true"}, exitUsage, "503 bytes: want at most 502"},
		{[]string{"a", "--ttl", "10s", "--grace", "6s", "--", "true"}, exitUsage, "grace ≤ TTL ÷ 2"},
		{[]string{"a", "--rest", "0", "--", "true"}, exitUsage, "at least 1ms"},
		{[]string{"a", "--value", strings.Repeat("v", 4097), "--", "true"}, exitUsage, "at most 4096"},
		{[]string{"a", "--follow", "--", "true"}, exitUsage, "--follow goes with --show"},
		{[]string{"a", "-o", "json", "--", "true"}, exitUsage, "--output goes with --show"},
		{[]string{"a", "--health-listen", "here", "--", "true"}, exitUsage, "--health-listen: \"here\" is not an address"},
		{[]string{"a", "--show", "--", "true"}, exitUsage, "--show runs no command: leave '-- true' out"},
		{[]string{"a", "b", "--show"}, exitUsage, "got 2 arguments, want exactly: NAME"},
		{[]string{"--show"}, exitUsage, "got 0 arguments"},
		{[]string{"a", "--show", "--prefer"}, exitUsage, "does not go with --prefer"},
		{[]string{"a", "--show", "--value", "x"}, exitUsage, "does not go with --value"},
		{[]string{"a", "--", "no-such-command"}, exitNotFound, "nothing was acquired"},
		{[]string{"a", "--server", "x", "--", "true"}, exitUsage, "want host:port"},
	} {
		code, stdout, stderr := cli(append([]string{"elect"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("elect %.80q: code %d, stderr %q; want code %d and %q", c.args, code, stderr, c.code, c.want)
		}
	}
	run(t, exitUnreachable, []string{serverVariable + "=127.0.0.1:1"}, "elect", "a", "--show")
}

// SIGTERM ends a candidate that waits, and leaves nothing in the queue; a
// signal that does not ask for the end reaches the command only.
func TestElectSignals(t *testing.T) {
	t.Parallel()
	s := dev(t)
	e := newElection(t)
	marked := filepath.Join(t.TempDir(), "marked")
	a := start(t, s.on(), "elect", "office", "--", "bash", "-c", `trap ': >"$3"' USR1; `+inOffice, "x", e.log, "a", marked)
	e.begins("a")
	b := e.stand(s.on(), "b")
	s.queued(t, "office", 1)
	b.signal(unix.SIGUSR1)
	b.signal(unix.SIGTERM)
	b.expect(0)
	s.queued(t, "office", 0)
	a.signal(unix.SIGUSR1)
	eventually(t, "the command's mark", func() bool { _, err := os.Stat(marked); return err == nil })
	began := time.Now()
	a.signal(unix.SIGTERM)
	e.next("out a")
	a.expect(0)
	s.free(t, "office")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the end took %v", took)
	}
}

// Each command has the terminal, one after the other, and Ctrl-C ends the whole.
func TestElectOnTerminal(t *testing.T) {
	t.Parallel()
	s := dev(t)
	p := onTerminal(t, binary(t), "elect", "tty", "--server", s.addr, "--rest", "20ms", "--",
		"sh", "-c", `echo "begun with <$HOLDFAST_TOKEN_NUMBER>"; read -r line; echo "got <$line>"; exit 3`)
	for i, word := range []string{"one", "two"} {
		p.showsTimes("begun with <", i+1)
		p.keys(word + "\n")
		p.shows("got <" + word + ">")
	}
	p.showsTimes("begun with <", 3)
	p.keys("\x03")
	p.exits(0)
	s.free(t, "tty")
}
