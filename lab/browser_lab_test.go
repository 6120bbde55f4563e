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
)

// startLab runs a lab with workers that are real processes, and returns its
// origin.
func startLab(t *testing.T) string {
	t.Helper()
	l, err := lab.Start(t.Context(), lab.Config{
		WorkerCommand: []string{os.Args[0], "lab-worker"}, SweeperCommand: []string{os.Args[0], "lab-sweeper"},
		Logger: slog.New(slog.DiscardHandler),
	})
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
