package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A servedLab is a holdfast that serves the lab, and its address.
type servedLab struct {
	*program
	url  string // without a path
	temp string // its directory for temporary files
}

// startLab starts holdfast lab, or dev, and waits for the lab's address.
func startLab(t *testing.T, args ...string) *servedLab {
	t.Helper()
	l := &servedLab{temp: t.TempDir()}
	l.program = start(t, []string{"TMPDIR=" + l.temp}, args...)
	eventually(t, "the address of the lab", func() bool {
		if l.ended() {
			t.Fatalf("holdfast %q ended: %q", args, l.stderr)
		}
		_, rest, ok := strings.Cut(l.stdout.String(), "the lab is at ")
		url, _, whole := strings.Cut(rest, "/lab\n")
		l.url = url
		return ok && whole
	})
	return l
}

// post sends JSON and decodes the answer.
func (l *servedLab) post(path, body string, into any) {
	l.t.Helper()
	res, err := http.Post(l.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 || json.Unmarshal(text, into) != nil {
		l.t.Fatalf("POST %s %s: %d %s %v", path, body, res.StatusCode, text, err)
	}
}

// children are the processes that the lab runs.
func (l *servedLab) children() (pids []int) {
	l.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, file := range all {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		text, _ := os.ReadFile(file)
		if p, ok := parseStat(pid, text); ok && p.ppid == l.cmd.Process.Pid && !p.dead() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A lab that serves a world with a stopped worker leaves nothing, however it
// ends: no process, no file. So does the one that dev serves.
func TestLabLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sig      unix.Signal
		args     []string
		children int
	}{
		{unix.SIGTERM, []string{"lab"}, 3},
		{unix.SIGINT, []string{"lab", "--in-process"}, 1},
		{unix.SIGHUP, []string{"dev"}, 3},
		{unix.SIGKILL, []string{"lab"}, 3},
		{unix.SIGKILL, []string{"dev"}, 3},
	} {
		l := startLab(t, c.args...)
		var world struct{ World string }
		l.post("/lab/v1/worlds", `{}`, &world)
		var done struct{ Seq int }
		l.post("/lab/v1/worlds/"+world.World+"/actions", `{"do":"pause","worker":"A"}`, &done)
		pids := l.children()
		if len(pids) != c.children {
			t.Errorf("%v has the processes %v: want %d", c.args, pids, c.children)
		}
		l.signal(c.sig)
		if c.sig == unix.SIGKILL {
			l.expect(exitSignal + int(c.sig))
		} else {
			l.expect(0)
		}
		gone(t, pids...)
		eventually(t, "an empty directory for temporary files", func() bool {
			left, err := os.ReadDir(l.temp)
			return err == nil && len(left) == 0
		})
	}
}

// The page that is served is the one that was built in, or that in a
// directory.
func TestLabServesThePage(t *testing.T) {
	t.Parallel()
	page := t.TempDir()
	if err := os.WriteFile(filepath.Join(page, "index.html"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"lab", "--listen", "localhost:0"}, "<hf-"},
		{[]string{"lab", "--page", page}, "mine"},
		{[]string{"dev"}, "<hf-"},
	} {
		l := startLab(t, c.args...)
		res, err := http.Get(l.url + "/lab")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !strings.Contains(string(text), c.says) {
			t.Errorf("%v: %d %.200s", c.args, res.StatusCode, text)
		}
	}
}

// A lab that nobody can be told of stops, and leaves nothing.
func TestNobodyReadsTheAddress(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lab", "dev"} {
		temp := t.TempDir()
		p := newProgram(t, []string{"TMPDIR=" + temp}, name)
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		read.Close()
		p.cmd.Stdout = write
		p.start()
		write.Close()
		p.expect(exitSignal + int(unix.SIGPIPE)).says("nobody reads the output")
		if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
			t.Errorf("%s left behind: %v, %v", name, left, err)
		}
	}
}

func TestWhereTheLabListens(t *testing.T) {
	t.Parallel()
	temp := "TMPDIR=" + t.TempDir()
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		run(t, exitUsage, []string{temp}, "lab", "--listen", listen).says("--insecure", "start and stop processes on this machine")
	}
	run(t, exitUsage, []string{temp}, "lab", "--idle", "1s").says("1m0s")
	run(t, exitUsage, []string{temp}, "lab", "now").says("no arguments")
	run(t, exitUsage, []string{temp}, "lab", "--page", "/no/such/directory").says("--page")
	l := startLab(t, "lab", "--listen", "0.0.0.0:0", "--insecure", "--idle", "1h")
	port := l.url[strings.LastIndexByte(l.url, ':'):]
	run(t, exitFailure, []string{temp}, "lab", "--listen", "127.0.0.1"+port).says("cannot listen")
	if left, err := os.ReadDir(strings.TrimPrefix(temp, "TMPDIR=")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if !strings.HasPrefix(l.url, "http://localhost:") {
		t.Errorf("the address is %s", l.url)
	}
}
