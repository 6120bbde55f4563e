package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// drillRun starts the real drill with its temporary directory under t's.
func drillRun(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(binary(t), append([]string{"drill"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, dir
}

func drillEvents(t *testing.T, out []byte) []event {
	t.Helper()
	var all []event
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("line %q is no JSON object: %v", lines.Text(), err)
		}
		all = append(all, e)
	}
	return all
}

func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// TestCasebookC01_PausedHolderWritesAfterExpiry is the founding case on real
// processes: corrupted without the gate, whole with it.
func TestCasebookC01_PausedHolderWritesAfterExpiry(t *testing.T) {
	t.Parallel()
	cmd, dir := drillRun(t, "--ttl", "1s", "-o", "json", "--a", "from A", "--b", "from B")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("drill: %v\n%s\n%s", err, errs.String(), out)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	verdicts := map[string]string{}
	refusals := 0
	for _, e := range drillEvents(t, out) {
		switch e.Event {
		case "verdict":
			verdicts[e.Fencing] = e.Verdict
			if !e.Holds {
				t.Errorf("fencing %s: %s", e.Fencing, e.Text)
			}
		case "refused":
			refusals++
			if e.Fencing != "on" || e.Worker != "A" || e.Value != "from A" {
				t.Errorf("refused: %+v", e)
			}
			if !strings.Contains(e.Text, e.Number) || !strings.Contains(e.Text, e.SeenNumber) || e.SeenNumber == "" {
				t.Errorf("the refusal %q does not name both tokens %s and %s", e.Text, e.Number, e.SeenNumber)
			}
		}
	}
	if verdicts["off"] != "corrupted" || verdicts["on"] != "whole" || refusals != 2 {
		t.Errorf("verdicts %v, %d refusals: want off corrupted, on whole, 2 refusals", verdicts, refusals)
	}
}

func TestDrillStory(t *testing.T) {
	t.Parallel()
	cmd, _ := drillRun(t, "--ttl", "1s", "--fencing", "on")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("drill: %v\n%s", err, out)
	}
	for _, want := range []string{"♥ renewed", "SIGSTOP", "run out", "SIGCONT", "REFUSED", "TIME", "VERDICT", "door was not held", "WHOLE"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the story does not say %q:\n%s", want, out)
		}
	}
}

// drillEnds are the ways in which a drill ends early; SIGPIPE is a reader of its
// output that leaves (drill | head).
var drillEnds = map[string]syscall.Signal{"interrupt": syscall.SIGINT, "terminate": syscall.SIGTERM, "kill": syscall.SIGKILL, "reader leaves": syscall.SIGPIPE}

// TestDrillLeavesNothing ends the drill while a worker stands still: no process
// may be left, and no file.
func TestDrillLeavesNothing(t *testing.T) {
	for name, sig := range drillEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, dir := drillRun(t, "--ttl", "2s", "--fencing", "on", "-o", "json")
			endDrill(t, cmd, dir, sig, "stopped", 2)
		})
	}
}

// endDrill starts a drill that prints JSON, ends it by sig at an event, and
// holds that it leaves nothing; until then it must have told of so many
// processes.
func endDrill(t *testing.T, cmd *exec.Cmd, dir string, sig syscall.Signal, at string, processes int) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		e := drillEvents(t, lines.Bytes())[0]
		if e.Event == "started" || e.Event == "node" {
			pids = append(pids, e.PID)
		}
		if e.Event == at {
			break
		}
	}
	if len(pids) != processes {
		t.Errorf("processes %v before %q: want %d", pids, at, processes)
	}
	end := func() error { return cmd.Process.Signal(sig) }
	if sig == syscall.SIGPIPE {
		end = out.Close
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); sig != syscall.SIGKILL && code != exitSignal+int(sig) {
		t.Errorf("exit code %d, want %d: %s", code, exitSignal+int(sig), &errs)
	}
	for _, pid := range pids {
		awaitGone(t, pid)
	}
	if sig == syscall.SIGKILL { // the sweeper outlives the drill by a moment
		eventually(t, "an empty directory for temporary files", func() bool { return len(leftovers(t, dir)) == 0 })
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	eventually(t, "the end of the sweeper", func() bool { return len(sweepersOf(t, dir)) == 0 })
}

// TestDrillWhoseOutputIsLost: a story that nobody got was not told.
func TestDrillWhoseOutputIsLost(t *testing.T) {
	t.Parallel()
	cmd, dir := drillRun(t, "--ttl", "1s", "--fencing", "on")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &said
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(said.String(), "cannot be printed") {
		t.Errorf("exit code %d, want %d; it said %q", code, exitFailure, &said)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// sweepersOf lists the sweepers of directories below dir.
func sweepersOf(t *testing.T, dir string) []int {
	t.Helper()
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, p := range all {
		line := readFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if strings.Contains(line, sweeperCommand+"\x00"+dir) {
			found = append(found, p.PID)
		}
	}
	return found
}

// awaitGone waits until the process has ended (one that nobody waits for may
// stay as a zombie).
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("end of process %d", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}
