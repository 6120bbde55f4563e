package peer

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What happens all the time is told every minute, with how often.
func TestSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		log := &safeBuffer{}
		to := slog.New(slog.NewTextHandler(log, nil))
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for range 200 {
			n.seldom(to, slog.LevelWarn, "x", "it failed")
			<-second.C
		}
		n.seldom(to, slog.LevelWarn, "y", "it failed")
		want := []string{"times=1", "times=60", "times=60", "times=60", "times=1"}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d lines: %s", len(lines), log)
		}
		for i, line := range lines {
			if !strings.HasSuffix(line, want[i]) {
				t.Errorf("line %d is %s, want %s", i+1, line, want[i])
			}
		}
	})
}
