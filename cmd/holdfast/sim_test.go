package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/sim"
)

// runSim runs holdfast sim in a process of its own, to its end.
func runSim(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := newProgram(t, nil, append([]string{"sim"}, args...)...)
	_ = p.cmd.Run()
	return p.cmd.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()
}

// One seed is one world: in each process, and with and without a transcript,
// whose hash is the one that is printed.
func TestSimOneSeed(t *testing.T) {
	t.Parallel()
	code, first, stderr := runSim(t, "--seed", "3")
	if code != 0 || !strings.Contains(first, "seed 3: ") || !strings.Contains(first, "nothing was violated") || stderr != "" {
		t.Fatalf("code %d, stdout %q, stderr %q", code, first, stderr)
	}
	file := filepath.Join(t.TempDir(), "world.txt")
	if _, second, _ := runSim(t, "--seed", "0x3", "--transcript", file); second != first {
		t.Errorf("the second time %q, the first time %q", second, first)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	if want := fmt.Sprintf("%d lines and the hash %x\n", bytes.Count(text, []byte("\n")), sum[:8]); !strings.Contains(first, want) {
		t.Errorf("it prints %q, want %q", first, want)
	}
	if _, third, _ := runSim(t, "--seed", "3", "--transcript", "-", "--until", "2s"); !strings.Contains(third, " until 2s\n") || !strings.Contains(third, "starts at") || third == first {
		t.Errorf("until 2s, to standard output: %q", third)
	}
}

// What the flags say of a world is what it is made of.
func TestSimSmallerWorld(t *testing.T) {
	t.Parallel()
	o := simFlags{without: []sim.Fault{sim.Crash, sim.Drop}, clients: 3, locks: 1, servers: 1, faulty: time.Second, skip: sim.Ordinals{2}, until: time.Minute}
	s := o.setup(1)
	if s.Rates[sim.Crash] != 0 || s.Rates[sim.Drop] != 0 || s.Clients != 3 || s.Locks != 1 || s.Servers != 1 || s.Faulty != time.Second || !s.Skip.Has(2) || s.Until != time.Minute {
		t.Errorf("%+v", s)
	}
	// And the arguments that are printed for it make the same one.
	code, stdout, stderr := runSim(t, append(s.Arguments(), "--transcript", "-")...)
	if code != 0 || !strings.Contains(stdout, "1 servers, 3 clients, 1 locks") || !strings.Contains(stdout, "without the faults 2") {
		t.Errorf("%q: code %d, stdout %q, stderr %q", s.Arguments(), code, stdout, stderr)
	}
}

func TestSimManyWorlds(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := runSim(t, "--seeds", "5", "--from", "7", "--processes", "2", "--faulty", "5s", "--clients", "3")
	if code != 0 {
		t.Fatalf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	for _, want := range []string{"worlds from seed 7 on, 2 at a time", "disk-hang ", "grants ", "expired ", "with a violation ", "5 worlds, ", "0 violated", "never met: "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, stdout)
		}
	}
	for _, s := range sim.Situations() {
		if !strings.Contains(stdout, "  "+string(s)) {
			t.Errorf("the table lacks %q", s)
		}
	}
}

// childrenOf lists the processes that a process has started.
func childrenOf(pid int) (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		for field := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// A run without an end ends when it is asked to, and leaves no process; one
// that is killed leaves none either.
func TestSimEndsWhenAsked(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGINT: 0, syscall.SIGKILL: -1} {
		p := start(t, nil, "sim", "--processes", "2")
		var pids []int
		eventually(t, "two processes", func() bool { pids = childrenOf(p.cmd.Process.Pid); return len(pids) == 2 })
		_ = p.cmd.Process.Signal(sig)
		eventually(t, "its end", func() bool {
			select {
			case <-p.done:
				return true
			default:
				return false
			}
		})
		if code := p.cmd.ProcessState.ExitCode(); code != want || want == 0 && !strings.Contains(p.stdout.String(), "with a violation") {
			t.Errorf("%v: code %d, want %d; stdout %q, stderr %q", sig, code, want, p.stdout, p.stderr)
		}
		eventually(t, "the end of its processes", func() bool {
			return syscall.Kill(pids[0], 0) != nil && syscall.Kill(pids[1], 0) != nil
		})
	}
}

// On a terminal the progress is one line that is written again and again, and
// Ctrl-C ends the run with its table.
func TestSimOnTerminal(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, binary(t), "sim", "--processes", "1", "--faulty", "1s", "--clients", "2", "--from", "1")
	s.showsTimes("\r\x1b[K", 2)
	s.shows(" virtual hours; ")
	s.keys("\x03")
	s.exits(0)
	s.shows("with a violation ")
	if text, _, _ := strings.Cut(s.out.String(), "faults\r\n"); strings.Count(text, "\n") != 1 {
		t.Errorf("above the table: %q, want one line that stays", text)
	}
}

// A world whose process does not survive it is a failure, and the run goes on.
func TestSimProcessThatDies(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "sim", "--processes", "1", "--from", "1")
	eventually(t, "a process", func() bool { return len(childrenOf(p.cmd.Process.Pid)) == 1 })
	killed := childrenOf(p.cmd.Process.Pid)[0]
	_ = syscall.Kill(killed, syscall.SIGKILL)
	eventually(t, "another process", func() bool {
		pids := childrenOf(p.cmd.Process.Pid)
		return len(pids) == 1 && pids[0] != killed
	})
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
	stdout := p.stdout.String()
	if code := p.cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(stdout, "killed") || !strings.Contains(stdout, "holdfast sim --seed ") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, p.stderr)
	}
}

// What is printed of a failure: the seed, the transcript and the commands.
func TestSimFailure(t *testing.T) {
	t.Parallel()
	s := sim.Draw(9)
	shrunk := s
	shrunk.Clients, shrunk.Until = 50, 3*time.Second
	violation := []sim.Violation{{Property: sim.LostUpdate, At: time.Second, Why: "because"}}
	var long strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	var out bytes.Buffer
	simOutcome{seed: 9, report: simReport{
		Result: sim.Result{Setup: s, Violations: violation, Lines: 5000},
		Shrunk: &simShrunk{Result: sim.Result{Setup: shrunk, Violations: violation, Lines: 1000}, Transcript: long.String(), Tried: 7},
	}}.print(&out, simOrder{Setup: s})
	for _, want := range []string{
		"FAILED: seed 9: ", "at 1s: " + string(sim.LostUpdate) + ": because", "from 5000 lines of transcript to 1000 in 7 worlds",
		"| line 0\n", "| line 999\n", "… 700 lines", "NOT THE SAME", "  holdfast sim --seed 9 --clients 50 --until 3s\n", "  holdfast sim --seed 9\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
}

// A run of many worlds that never met a situation is not counted.
func TestSimUnmetSituations(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := simRun{out: &out}
	r.tally.Worlds, r.tally.Met = simSituationsFrom, map[sim.Situation]int{}
	for _, s := range sim.Situations()[1:] {
		r.tally.Met[s] = 1
	}
	if err := r.unmet(); exitCode(err) != exitUnmet || !strings.Contains(out.String(), string(sim.Situations()[0])) {
		t.Errorf("%v, code %d, %q", err, exitCode(err), out.String())
	}
	r.tally.Worlds--
	if err := r.unmet(); err != nil {
		t.Errorf("of a small run: %v", err)
	}
	r.tally.Met[sim.Situations()[0]] = 1
	r.tally.Worlds = 1 << 20
	if err := r.unmet(); err != nil {
		t.Errorf("all were met: %v", err)
	}
}

func TestSimUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--seed -1":                  "want a whole number from 0 to 2^64-1",
		"--seed 1 --seeds 2":         "--seeds is for many",
		"--seed 1 --minutes 2":       "--minutes is for many",
		"--seeds 2 --minutes 2":      "give one of them",
		"--seeds 0":                  "want a whole number from 1",
		"--minutes 0":                "want a number of minutes",
		"--minutes NaN":              "want a number of minutes",
		"--transcript x":             "give its --seed",
		"--skip 1":                   "give its --seed",
		"--until 1s":                 "give its --seed",
		"--seed 1 --skip 0":          "such as 3,7-12",
		"--seed 1 --without rain":    `"rain" is no fault: want some of drop, `,
		"--seed 1 --clients 51":      "from 1 to 50",
		"--seed 1 --transcript /x/y": "no such file",
		"world":                      "want no arguments",
	} {
		code, stdout, stderr := cli(append([]string{"sim"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("sim %s: code %d, stdout %q, stderr %q; want %q", args, code, stdout, stderr, want)
		}
	}
	if code, _, _ := cli(simCommand, strconv.Itoa(os.Getppid())); code != exitUsage {
		t.Errorf("%s: code %d, want %d", simCommand, code, exitUsage)
	}
	_, help, _ := cli("sim", "--help")
	if !regexp.MustCompile(`(?m)^  80 .*\n`).MatchString(help) || strings.Contains(help, "66   ") {
		t.Errorf("the help has other exit codes: %s", help)
	}
}
