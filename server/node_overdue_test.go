package server

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/server/core"
)

// A session whose end never gets into the log, for whatever reason, raises an
// alarm once it is T past its deadline: a line in the log and a metric. Both
// say so when it is over.
func TestCasebookC78_AlarmForSessionsThatDoNotEnd(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	log := &logBuffer{}
	reg := prometheus.NewRegistry()
	n := startTestNode(t, func(c *NodeConfig) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
		c.Registerer = reg
		c.hooks.lose = func(cmd core.Command) bool {
			_, ok := cmd.(core.Expire)
			return ok && broken.Load()
		}
	})
	begun := time.Now()
	dead := n.open("dead", core.MinTTL)
	n.open("alive", time.Hour)
	alarm := func() float64 {
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.GetName() == "holdfast_sessions_overdue" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	eventually(t, "the alarm", func() bool { return alarm() == 1 })
	if after := time.Since(begun); after < 2*core.MinTTL {
		t.Errorf("the alarm came %v after the session was heard, whose TTL is %v", after, core.MinTTL)
	}
	const says = "ALARM: sessions do not end though they are long past their deadline"
	if text := log.String(); strings.Count(text, says) != 1 {
		t.Errorf("the log does not say so once:\n%s", text)
	}
	broken.Store(false)
	// The command in flight is lost for this office. An operator ends the
	// session, or lets another member lead.
	n.do(core.End{ID: dead})
	eventually(t, "the end of the alarm", func() bool { return alarm() == 0 })
	if text := log.String(); strings.Count(text, says) != 1 || !strings.Contains(text, "no session is long past its deadline any more") {
		t.Errorf("the log does not say that it is over:\n%s", text)
	}
}
