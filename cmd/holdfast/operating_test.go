package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"holdfast/engine/cluster"
	"holdfast/server"
	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
)

// operating is the page for operators.
func operating(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is the page's first block of a language.
func block(t *testing.T, page, language string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "\n```"+language+"\n")
	text, _, end := strings.Cut(rest, "\n```\n")
	if !ok || !end {
		t.Fatalf("the page has no block of %s", language)
	}
	return text + "\n"
}

var metricName = regexp.MustCompile("(?m)^\\| `(holdfast_[a-z_]+)")

// The page has every metric of a real server, and no other.
func TestOperatingHasEveryMetric(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := tlstest.NewCA(t, "test")
	cert, key, caFile := ca.Write(dir, "server", tlstest.Certificate{})
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s, err := server.Start(t.Context(), server.Config{
		Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "data"), Registry: reg, Logger: slog.New(slog.DiscardHandler),
		TLS: tlsfiles.Files{Cert: cert, Key: key},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	set, err := tlsfiles.Open(tlsfiles.Files{CA: caFile}, tlsfiles.Options{Role: tlsfiles.Client})
	if err != nil {
		t.Fatal(err)
	}
	// Metrics with labels show once they have a value.
	c, err := cluster.Dial(t.Context(), s.Addr(), &cluster.Options{TLSNow: set.Client})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	takes(t, c, "a", cluster.AcquireOptions{})
	_ = c.ExpelSession(t.Context(), 1, "a test")
	_, _ = c.Status(t.Context())

	known := metricsOf(t, reg, s.Addr(), set.Client())
	listed := map[string]bool{}
	for _, m := range metricName.FindAllStringSubmatch(operating(t), -1) {
		if listed[m[1]] {
			t.Errorf("%s is listed twice", m[1])
		}
		listed[m[1]] = true
		if !known[m[1]] {
			t.Errorf("docs/operating.md lists %s, which no server has", m[1])
		}
	}
	for name := range known {
		switch {
		case strings.HasPrefix(name, "holdfast_") && !listed[name]:
			t.Errorf("docs/operating.md does not list %s", name)
		case !strings.HasPrefix(name, "holdfast_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && !strings.HasPrefix(name, "promhttp_"):
			t.Errorf("the metric %s has a name of its own kind", name)
		}
	}
	if len(listed) < 25 {
		t.Errorf("only %d metrics are listed", len(listed))
	}
}

// metricsOf names the metrics of a server: those that it could show, and those
// that it shows.
func metricsOf(t *testing.T, reg *prometheus.Registry, addr string, secure *tls.Config) map[string]bool {
	t.Helper()
	described := make(chan *prometheus.Desc, 1000)
	go func() { reg.Describe(described); close(described) }()
	known := map[string]bool{}
	for d := range described {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		known[name] = true
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	defer client.CloseIdleConnections()
	res, err := client.Get("https://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics: %d, %v", res.StatusCode, err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			known[strings.Fields(name)[0]] = true
		}
	}
	return known
}

// The page's configuration starts a server, with a directory and a port of the
// test's own.
func TestOperatingConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := block(t, operating(t), "yaml")
	text = strings.Replace(text, "/var/lib/holdfast", filepath.Join(dir, "data"), 1)
	text = strings.Replace(text, "127.0.0.1:7433", "127.0.0.1:0", 1)
	path := filepath.Join(dir, "holdfast.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startService(t, "serve", "--config", path)
	s.says(`"msg":"serving"`)
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		res, err := http.Get("http://" + s.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK || string(body) != want {
			t.Errorf("GET %s: %d %q", path, res.StatusCode, body)
		}
	}
}

// Settings that the page's unit and container use are ones that serve has, and
// systemd, where it is, takes the unit.
func TestOperatingUnitAndContainer(t *testing.T) {
	t.Parallel()
	page := operating(t)
	unit, container := block(t, page, "ini"), block(t, page, "dockerfile")
	cmd := serveCmd()
	for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(unit+container, -1) {
		if cmd.Flag(strings.TrimPrefix(flag, "--")) == nil {
			t.Errorf("serve has no %s", flag)
		}
	}
	for _, want := range []string{"Type=notify\n", "WatchdogSec=", "RestartPreventExitStatus=64\n"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit has no %q", want)
		}
	}
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the rest is systemd's own opinion
	}
	path := filepath.Join(t.TempDir(), "holdfast.service")
	unit = strings.Replace(unit, "/usr/local/bin/holdfast", "/bin/true", 1)
	if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(tool, "verify", path).CombinedOutput()
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, "holdfast.service") {
			t.Errorf("systemd says: %s", line)
		}
	}
}

// The log lines on the page are in the server's source.
func TestOperatingLogLines(t *testing.T) {
	t.Parallel()
	_, logs, _ := strings.Cut(operating(t), "\n## Logs\n")
	logs, _, _ = strings.Cut(logs, "\n## ")
	var source strings.Builder
	var files []string
	for _, pattern := range []string{"../../server/*.go", "../../server/*/*.go"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	n := 0
	for _, row := range strings.Split(logs, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			n++
			if !strings.Contains(source.String(), `"`+m[1]) {
				t.Errorf("no line of the server's log begins with %q", m[1])
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d lines were found on the page", n)
	}
}
