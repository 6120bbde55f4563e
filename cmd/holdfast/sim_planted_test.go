//go:build planted

package main

import (
	"regexp"
	"strings"
	"testing"
)

// A failure is shrunk, and the command that is printed replays it: the same
// violation at the same instant, in another process.
func TestPlantedFailureIsShrunkAndReplayed(t *testing.T) {
	t.Parallel()
	code, first, stderr := runSim(t, "--seeds", "30", "--plant", "B3-memory-kept")
	if code != exitFailure || !strings.Contains(stderr, "a property was violated") {
		t.Fatalf("code %d, stdout %q, stderr %q", code, first, stderr)
	}
	shrunk := regexp.MustCompile(`shrunk from \d+ lines of transcript to \d+ in \d+ worlds`).FindString(first)
	_, after, ok := strings.Cut(first, "replay it with:\n  holdfast sim ")
	violation := regexp.MustCompile(`\| .* VIOLATION .*\n`).FindString(first)
	if !ok || shrunk == "" || violation == "" || strings.Contains(first, "NOT THE SAME") {
		t.Fatalf("no replay, or no violation: %s", first)
	}
	line, _, _ := strings.Cut(after, "\n")
	code, second, _ := runSim(t, strings.Fields(line)...)
	if code != exitFailure || !strings.Contains(second, violation) {
		t.Errorf("%s: code %d, want %q in %s", line, code, violation, second)
	}
	// Without the bug nothing is violated.
	clean, _, _ := strings.Cut(line, " --plant")
	if code, stdout, _ := runSim(t, strings.Fields(clean)...); code != 0 {
		t.Errorf("%s: code %d, %s", clean, code, stdout)
	}
}
