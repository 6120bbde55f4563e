package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestServeStopsCleanlyAndKeeps(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "new", "data")
	s := startService(t, "serve", "--data", data, "--listen", "127.0.0.1:0", "--log-format", "json")
	run(t, 0, s.on(), "run", "kept", "--once-per", "24h", "--", "true")
	before, _ := s.lock(t, "kept")
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		s.signal(sig)
		s.expect(0)
		if !strings.HasPrefix(s.stderr.String(), "{") {
			t.Errorf("the log is %q, want JSON", s.stderr)
		}
		s.says(`"msg":"stopping","reason":"`+signalName(sig)+`"`, `"msg":"stopped"`)
		s = startService(t, "serve", "--data", data, "--listen", s.addr, "--log-format", "json")
		if after, ok := s.lock(t, "kept"); !ok || !after.Closed || after.CreateRevision != before.CreateRevision {
			t.Errorf("after a clean stop the lock is %+v, was %+v", after, before)
		}
	}
}

// A stop does not wait for those who wait for a lock.
func TestServeStopsWithWaiters(t *testing.T) {
	t.Parallel()
	s := dev(t)
	holder := start(t, s.on(), "run", "w", "--ttl", "2s", "--", "sleep", "1000")
	s.holds(t, "w")
	waiter := start(t, s.on(), "run", "w", "--ttl", "2s", "--", "true")
	eventually(t, "the waiter", func() bool { l, _ := s.lock(t, "w"); return l.Waiters == 1 })
	s.signal(unix.SIGTERM)
	s.expect(0)
	holder.expect(exitLost)
	waiter.expect(exitUnreachable)
}

func TestServeSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(config, []byte("listen: 127.0.0.1:0\npprof: true\nmax-sessions: 1\ndata: "+filepath.Join(dir, "data")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startService(t, "serve", "--config", config, "--log-level", "warn")
	for path, want := range map[string]int{"/debug/pprof/": 200, "/metrics": 200} {
		res, err := http.Get("http://" + s.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, res.StatusCode, want)
		}
	}
	first := start(t, s.on(), "run", "a", "--", "sleep", "1000")
	s.holds(t, "a")
	run(t, exitConflict, s.on(), "run", "b", "--no-wait", "--", "true")
	first.signal(unix.SIGTERM)
	first.expect(143)
	run(t, 0, s.on(), "run", "b", "--no-wait", "--", "true")
}

// What cannot work ends at once, with what to do.
func TestServeRefusals(t *testing.T) {
	t.Parallel()
	s := dev(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	create(t, file)
	run(t, exitUsage, nil, "serve", "--data", file).says("is not a directory")
	run(t, exitFailure, nil, "serve", "--data", filepath.Join(dir, "a"), "--listen", s.addr).says("cannot listen on " + s.addr)
	run(t, exitUsage, []string{"HOLDFAST_LISTEN=nowhere"}, "serve", "--data", dir).says("HOLDFAST_LISTEN", "want host:port")
	data := filepath.Join(dir, "data")
	startService(t, "serve", "--data", data, "--listen", "127.0.0.1:0")
	p := run(t, exitFailure, nil, "serve", "--data", data, "--listen", "127.0.0.1:0")
	if !strings.Contains(p.stderr.String(), data) || strings.Contains(p.stderr.String(), "goroutine ") {
		t.Errorf("a second server on one directory: %q; want a refusal that names it", p.stderr)
	}
}

// A misspelt setting is named; what run gives to its command, and what the
// other commands read, is none.
func TestServeNamesVariablesThatAreNoSettings(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	env := []string{
		"HOLDFAST_LISTN=x", "HOLDFAST_PORT=tcp://10.0.0.1:7433", "HOLDFAST_LISTEN=127.0.0.1:1", "HOLDFAST_CONFIG=", "PATH=/bin",
		serverVariable + "=a:1", "HOLDFAST_LOCK=a", "HOLDFAST_TOKEN=b", "HOLDFAST_TOKEN_NUMBER=1",
	}
	logger := slog.New(slog.NewTextHandler(&log, nil))
	warnOfStrangers(logger, serveCmd().Flags(), env)
	text := log.String()
	if !strings.Contains(text, `ignored="HOLDFAST_LISTN HOLDFAST_PORT"`) || !strings.Contains(text, "HOLDFAST_LISTEN HOLDFAST_LOG_FORMAT") || !strings.Contains(text, "level=WARN") {
		t.Errorf("log %q", text)
	}
	log.Reset()
	if warnOfStrangers(logger, serveCmd().Flags(), env[2:]); log.Len() > 0 {
		t.Errorf("log %q for settings only", &log)
	}
	p := startService(t, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0")
	p.says("ignored=" + binaryVariable)
}
