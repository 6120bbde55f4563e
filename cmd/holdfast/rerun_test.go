package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
	"holdfast/fence"
)

// C60: two hosts whose clocks differ start the same job each period: plain run
// runs it twice, --once-per once.
//
// It is not parallel to the other tests: a run that starts late by more than a
// tenth of the period is what --once-per does not promise to handle.
func TestCasebookC60_OncePerPeriod(t *testing.T) {
	const period, periods = 2 * time.Second, 5
	s := dev(t)
	dir := t.TempDir()
	plain, once := filepath.Join(dir, "plain"), filepath.Join(dir, "once")
	origin := time.Now().Add(300 * time.Millisecond)
	var hosts sync.WaitGroup
	for host, skew := range []time.Duration{0, period / 8} {
		hosts.Go(func() {
			for i := range periods {
				alarm := time.NewTimer(time.Until(origin.Add(time.Duration(i)*period + skew)))
				<-alarm.C
				job := func(log string, flags ...string) *program {
					line := fmt.Sprintf(`echo "host %d period %d" >>"$1"`, host, i)
					return start(t, s.on(), append(append([]string{"run", filepath.Base(log)}, flags...), "--", "sh", "-c", line, "x", log)...)
				}
				a, b := job(once, "--once-per", period.String()), job(plain)
				if code := a.wait(); code == exitConflict {
					a.says("is closed", "it opens in")
				}
				b.expect(0)
			}
		})
	}
	hosts.Wait()
	if got := strings.Count(readFile(plain), "\n"); got != 2*periods {
		t.Errorf("plain run: %d runs in %d periods, want one for each host", got, periods)
	}
	text := readFile(once)
	for i := range periods {
		if got := strings.Count(text, fmt.Sprintf("period %d\n", i)); got != 1 {
			t.Errorf("--once-per: %d runs in period %d, want 1; all: %q", got, i, text)
		}
	}
}

// C60: --retry-failed allows another run after a failure, which says so; a
// success closes the lock, also for those who wait.
func TestCasebookC60_RetryFailed(t *testing.T) {
	t.Parallel()
	s := dev(t)
	flags := []string{"run", "c60", "--ttl", "1s", "--once-per", "1h", "--retry-failed", "--"}
	job := func(script string) []string { return append(flags, "sh", "-c", script) }

	first := run(t, 5, s.on(), job("exit 5")...)
	first.says("stays open for another run")
	if strings.Contains(first.stderr.String(), "rerun") {
		t.Errorf("the first run says that it is a rerun: %q", first.stderr)
	}
	// The second one dies in mid-job, with its wrapper.
	second := start(t, s.on(), job("sleep 1000")...)
	h := s.holds(t, "c60")
	eventually(t, "the second run's word", func() bool { return strings.Contains(second.stderr.String(), "this is a rerun") })
	kill(second.cmd.Process.Pid, unix.SIGKILL)
	third := run(t, 0, s.on(), job("true")...)
	third.says("this is a rerun: grant "+h.Grant, "expired")
	closed := run(t, exitConflict, s.on(), job("true")...)
	closed.says("c60", "is closed", "it opens in", "at ")
	l, _ := s.lock(t, "c60")
	if !l.Closed || l.ClosedCause != "once-per" || l.OpensInMS < 50*60*1000 || l.OpensInMS > 54*60*1000 {
		t.Errorf("got %+v, want closed by once-per for 54 minutes", l)
	}
}

// A lock that --once-per closes refuses those who wait, whatever --wait says.
func TestCasebookC60_WaitersAreToldAtOnce(t *testing.T) {
	t.Parallel()
	s := dev(t)
	end := filepath.Join(t.TempDir(), "end")
	flags := []string{"run", "c60", "--once-per", "1h"}
	first := start(t, s.on(), append(append(flags, "--retry-failed"), "--", "bash", "-c", untilFile, "x", end)...)
	s.holds(t, "c60")
	waiter := start(t, s.on(), append(append(flags, "--retry-failed"), "--wait", "1h", "--", "true")...)
	eventually(t, "the waiter", func() bool { l, _ := s.lock(t, "c60"); return l.Waiters == 1 })
	create(t, end)
	first.expect(0)
	waiter.expect(exitConflict).says("is closed")
	run(t, 4, s.on(), append(flags, "--conflict-exit-code", "4", "--", "true")...).says("is closed")
}

func TestEarlierRun(t *testing.T) {
	t.Parallel()
	granted := func(n uint64, at time.Duration) cluster.Event {
		return cluster.Event{Kind: "granted", Grant: n, Token: fence.Token{Number: n}, Label: "job", Clock: at}
	}
	released := func(n uint64, at time.Duration, cause string) cluster.Event {
		return cluster.Event{Kind: "released", Grant: n, Clock: at, Cause: cause}
	}
	for _, c := range []struct {
		events []cluster.Event
		want   string
	}{
		{nil, ""},
		{[]cluster.Event{granted(9, time.Hour)}, ""},
		{[]cluster.Event{granted(8, 0), released(8, 1, "released"), granted(9, time.Hour)}, ""}, // another period
		{[]cluster.Event{granted(8, 30*time.Minute), released(8, 31*time.Minute, "released"), granted(9, time.Hour)}, `grant 8 ("job"), 30m0s ago`},
		{[]cluster.Event{granted(8, 30*time.Minute), released(8, 31*time.Minute, "expired"), granted(9, time.Hour)}, "(expired)"},
		{[]cluster.Event{granted(9, time.Hour), granted(10, time.Hour+1)}, ""},
	} {
		got := earlierRun(c.events, 9, time.Hour)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: got %q, want %q", c.events, got, c.want)
		}
	}
}
