package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pageBlock takes the blocks of a page that are run, and what each prints.
var pageBlock = regexp.MustCompile("(?s)<!-- run -->\n```sh\n(.*?)```\n\n<!-- expect -->\n```text\n(.*?)```\n")

// TestThePageOfCertificates runs docs/certificates.md as it stands, in one
// shell, with the real binary and openssl.
func TestThePageOfCertificates(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"openssl", "curl", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("this test needs %s (apt-get install %s): %v", tool, tool, err)
		}
	}
	page, err := os.ReadFile("../../docs/certificates.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := pageBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 6 || strings.Count(string(page), "<!-- run -->") != len(blocks) {
		t.Fatalf("%d blocks of %d are run", len(blocks), strings.Count(string(page), "<!-- run -->"))
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary(t), filepath.Join(dir, "bin", "holdfast")); err != nil {
		t.Fatal(err)
	}
	const fence = "---- end of block ----"
	script := "trap 'kill %+ 2>/dev/null' EXIT\n"
	for _, b := range blocks {
		script += b[1] + "echo '" + fence + "'\n"
	}
	cmd := exec.CommandContext(t.Context(), "bash")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "http_proxy=", "https_proxy=", "no_proxy=*")
	cmd.Stdin = strings.NewReader(script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	outputs := strings.Split(string(out), fence+"\n")
	if err != nil || len(outputs) != len(blocks)+1 {
		t.Fatalf("%v; %d outputs of %d blocks:\n%s\n%s", err, len(outputs)-1, len(blocks), out, &stderr)
	}
	for i, b := range blocks {
		got := strings.Split(strings.TrimRight(outputs[i], "\n"), "\n")
		want := strings.Split(strings.TrimRight(b[2], "\n"), "\n")
		if len(got) != len(want) {
			t.Errorf("block %d: %d lines, want %d:\n%s", i+1, len(got), len(want), outputs[i])
			continue
		}
		for j := range got {
			if ok, err := regexp.MatchString("^(?:"+want[j]+")$", got[j]); err != nil || !ok {
				t.Errorf("block %d, line %d (%v):\n got %s\nwant %s", i+1, j+1, err, got[j], want[j])
			}
		}
	}
	if t.Failed() {
		t.Logf("stderr: %s\nthe server's log: %s", &stderr, readFile(filepath.Join(dir, "serve.log")))
	}
}
