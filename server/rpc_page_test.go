package server

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// step is a block of docs/api.md that is run, and the one with what it prints:
// each line a regular expression.
type step struct {
	line   int
	script string
	expect []string
}

// steps reads the page: a ```sh block after <!-- run -->, each followed by a
// ```text block after <!-- expect -->.
func steps(t *testing.T, page string) (all []step) {
	t.Helper()
	mark := ""
	var block []string
	begun, in := 0, false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case in && line == "```":
			in = false
			switch mark {
			case "run":
				all = append(all, step{line: begun, script: strings.Join(block, "\n") + "\n"})
			case "expect":
				all[len(all)-1].expect = block
			}
			mark = ""
		case in:
			block = append(block, line)
		case strings.HasPrefix(line, "```"):
			in, block, begun = true, nil, i+1
			if mark == "" {
				t.Errorf("line %d: a block that is neither run nor expected", i+1)
			}
		case line == "<!-- run -->":
			mark = "run"
		case line == "<!-- expect -->":
			mark = "expect"
		}
	}
	return all
}

// The page shows the whole life of a lock in curl, and is run as it stands: one
// shell for all blocks, against a real server.
func TestThePageOfTheAPI(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatalf("this test needs curl (apt-get install curl): %v", err)
	}
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	all := steps(t, string(page))
	if len(all) < 15 {
		t.Fatalf("only %d blocks are run", len(all))
	}
	w := start(t)
	const fence = "---- end of block ----"
	var script strings.Builder
	for _, s := range all {
		script.WriteString(s.script + "echo '" + fence + "'\n")
	}
	cmd := exec.CommandContext(t.Context(), shell)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOLDFAST="+w.Addr(), "http_proxy=", "no_proxy=*")
	cmd.Stdin = strings.NewReader(script.String())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Errorf("the shell: %v\n%s", err, &errs)
	}
	outputs := strings.Split(string(out), fence+"\n")
	if len(outputs) != len(all)+1 {
		t.Fatalf("%d outputs of %d blocks:\n%s", len(outputs)-1, len(all), out)
	}
	for i, s := range all {
		got := strings.Split(strings.TrimRight(outputs[i], "\n"), "\n")
		if len(s.expect) == 0 {
			t.Errorf("docs/api.md:%d: the block has no expected output", s.line)
			continue
		}
		if len(got) != len(s.expect) {
			t.Errorf("docs/api.md:%d: %d lines, want %d:\n%s", s.line, len(got), len(s.expect), outputs[i])
			continue
		}
		for j := range got {
			if ok, err := regexp.MatchString("^(?:"+s.expect[j]+")$", got[j]); err != nil || !ok {
				t.Errorf("docs/api.md:%d: line %d (%v):\n got %s\nwant %s", s.line, j+1, err, got[j], s.expect[j])
			}
		}
	}
}
