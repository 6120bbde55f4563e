package lab_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/lab"
	"holdfast/lab/internal/browser"
)

// startLab runs a lab with workers that are real processes, and returns its
// origin; settings may change how it runs.
func startLab(t *testing.T, settings ...func(*lab.Config)) string {
	t.Helper()
	config := lab.Config{
		WorkerCommand: []string{os.Args[0], "lab-worker"}, SweeperCommand: []string{os.Args[0], "lab-sweeper"},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, set := range settings {
		set(&config)
	}
	l, err := lab.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Errorf("stopping the lab: %v", err)
		}
	})
	return strings.TrimSuffix(l.URL(), "/lab")
}

func buildHoldfast(t *testing.T) string {
	binary := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "build", "-o", binary, "holdfast/cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// imitated is the disaster where there are no signals: it goes the same way,
// and the page says what is not real.
func imitated(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t, func(c *lab.Config) { c.InProcess = true }), "#ttl=2", browser.Look{})
	p.contains("the page's head", p.text("#scene-lead"), "inside the lab’s own process", "imitated")
	p.contains("A's card", p.text("hf-worker[worker=A] header"), "imitated")
	p.overlap()
	p.do("A", "wake")
	p.await(`document.querySelector("hf-ledger").dataset.verdict === "corrupted"`)
	q := v.visit(t, startLab(t), "", browser.Look{})
	if said := q.text("#scene-lead"); strings.Contains(said, "imitated") {
		t.Errorf("with real processes the page says %q", said)
	}
	q.contains("A's card", q.text("hf-worker[worker=A] header"), "pid ")
}
