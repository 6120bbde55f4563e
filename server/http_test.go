package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/wire/holdfastv1"
)

const acquirePath = "/holdfast.v1.LockService/Acquire"

// ask sends any request and returns status and body.
func (w *world) ask(method, path, body string, change func(*http.Request)) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url(path), strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(req)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatalf("%s: %d bytes: %v", path, len(body), err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	return res.StatusCode, string(out)
}

// firstLine sends bytes and returns the first line of what comes back.
func (w *world) firstLine(request string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.Addr())
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, request)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return line
}

// What is refused before the service sees it. A page of another site must not
// be able to make a browser call the service.
func TestWhatThePortRefuses(t *testing.T) {
	w := start(t)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	fmt.Fprintf(z, `{"lock":%q}`, strings.Repeat("a", 8<<20))
	z.Close()
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, c := range []struct {
		name, method, path, body string
		change                   func(*http.Request)
		status                   int
		says                     string
	}{
		{"form", "POST", acquirePath, `{}`, set("Content-Type", "text/plain"), 415, "application/json"},
		{"urlencoded", "POST", acquirePath, `{}`, set("Content-Type", "application/x-www-form-urlencoded"), 415, "application/x-www-form-urlencoded"},
		{"multipart", "POST", acquirePath, `{}`, set("Content-Type", "multipart/form-data"), 415, "want application/json"},
		{"no content type", "POST", acquirePath, `{}`, func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "Content-Type: application/json"},
		{"GET of a call", "GET", acquirePath, ``, nil, 405, "want POST"},
		{"other origin", "POST", acquirePath, `{}`, set("Origin", "https://evil.example"), 403, "evil.example"},
		{"cross-site", "POST", acquirePath, `{}`, set("Sec-Fetch-Site", "cross-site"), 403, ""},
		{"rebound name", "POST", acquirePath, `{}`, func(r *http.Request) { r.Host = "evil.example:7433" }, 403, "evil.example"},
		{"rebound name on a page", "GET", "/metrics", ``, func(r *http.Request) { r.Host = "evil.example" }, 403, "evil.example"},
		{"unknown method", "POST", "/holdfast.v1.LockService/Steal", `{}`, nil, 501, "want POST /holdfast.v1.LockService/ and one of OpenSession"},
		{"unknown method, no content type", "POST", "/holdfast.v1.LockService/Steal", `{}`, func(r *http.Request) { r.Header.Del("Content-Type") }, 501, "unimplemented"},
		{"GET of an unknown method", "GET", "/holdfast.v1.LockService/", ``, nil, 501, "unimplemented"},
		{"JSON for a stream", "POST", "/holdfast.v1.LockService/Watch", `{}`, nil, 415, "Poll"},
		{"too long, chunked", "POST", acquirePath, `{"lock":"` + strings.Repeat("a", 5<<20) + `"}`, func(r *http.Request) { r.ContentLength = -1 }, 429, "resource_exhausted"},
		{"charset in capitals", "POST", acquirePath, `{"nme":"x"}`, set("Content-Type", "Application/JSON; charset=UTF-8"), 400, "nme"},
		{"a stream in both directions over HTTP/1.1", "POST", "/holdfast.v1.LockService/Session", `{}`, set("Content-Type", "application/connect+json"), 505, "want HTTP/2"},
		{"unknown page", "GET", "/nothing", ``, nil, 404, ""},
		{"empty body", "POST", acquirePath, ``, nil, 400, "empty body"},
		{"broken JSON", "POST", acquirePath, `{"lock":`, nil, 400, "invalid_argument"},
		{"unknown field", "POST", acquirePath, `{"nme":"x"}`, nil, 400, "nme"},
		{"unknown field, named charset", "POST", acquirePath, `{"nme":"x"}`, set("Content-Type", "application/json; charset=utf-8"), 400, "nme"},
		{"broken protobuf", "POST", acquirePath, "\xff\xff\xff", set("Content-Type", "application/proto"), 400, "invalid_argument"},
		{"too long", "POST", acquirePath, `{"lock":"` + strings.Repeat("a", 5<<20) + `"}`, nil, 429, "want at most 4194304"},
		{"gzip bomb", "POST", acquirePath, bomb.String(), set("Content-Encoding", "gzip"), 429, "resource_exhausted"},
		{"watch by POST", "POST", "/v1/watch", `{}`, nil, 405, ""},
		{"pprof without the flag", "GET", "/debug/pprof/", ``, nil, 404, ""},
	} {
		status, body := w.ask(c.method, c.path, c.body, c.change)
		if status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %.300s, want %d and %q", c.name, status, body, c.status, c.says)
		}
	}
	if line := w.firstLine("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("a", 64<<10) + "\r\n\r\n"); !strings.Contains(line, " 431 ") {
		t.Errorf("headers too long: %q", line)
	}
	for _, host := range []string{"localhost:7433", "127.0.0.1", "[::1]:7433", "a.localhost", "LOCALHOST", "192.0.2.7:1"} {
		if status, body := w.ask("GET", "/healthz", "", func(r *http.Request) { r.Host = host }); status != 200 {
			t.Errorf("Host %s: %d %s", host, status, body)
		}
	}
}

func TestHealthReadinessAndMetrics(t *testing.T) {
	w := start(t, func(c *Config) { c.Pprof = true; c.AllowedHosts = []string{"Lock.Example"} })
	w.open("a", time.Minute).acquire("x")
	for path, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ready\n", "/": "Holdfast lock service dev", "/debug/pprof/": "goroutine",
	} {
		if status, body := w.get(path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.100s", path, status, body)
		}
	}
	if status, _ := w.ask("GET", "/healthz", "", func(r *http.Request) { r.Host = "lock.example:7433" }); status != 200 {
		t.Errorf("an allowed host: %d", status)
	}
	want := []string{
		"holdfast_sessions 1", "holdfast_has_leader 1", "holdfast_ready 1", "holdfast_sessions_expired_total 0",
		"holdfast_gate_refusals_total 0", "holdfast_streams 0", "holdfast_watchers 0", "holdfast_sessions_attached 0",
		`holdfast_events_total{cause="",kind="granted"} 1`, `holdfast_api_calls_total{method="Acquire",result="ok"} 1`,
		"go_goroutines", "process_open_fds",
	}
	w.until("the metrics show one session and its grant", func() bool {
		_, page := w.get("/metrics")
		for _, m := range want {
			if !strings.Contains(page, "\n"+m) {
				return false
			}
		}
		return true
	})
	_, page := w.get("/metrics")
	for _, m := range []string{"holdfast_log_write_duration_seconds_count", "holdfast_log_entries_total"} {
		if !strings.Contains(page, m) {
			t.Errorf("no metric %s", m)
		}
	}
}

func TestSessionsThatRanOutAreCounted(t *testing.T) {
	w := start(t)
	w.open("silent", time.Second)
	w.until("the session ran out and was counted", func() bool {
		_, page := w.get("/metrics")
		return strings.Contains(page, "\nholdfast_sessions_expired_total 1\n") && strings.Contains(page, "\nholdfast_sessions 0\n")
	})
}

// Readiness says why not: here while the server stops, and while it starts.
func TestReadinessSaysWhyNot(t *testing.T) {
	w := start(t)
	w.service.stopping = stopped(t)
	if status, body := w.get("/readyz"); status != 503 || body != "not ready: the server is stopping\n" {
		t.Errorf("%d %q", status, body)
	}
	rec := &recorder{header: http.Header{}}
	starting(new(atomic.Pointer[string])).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
	if rec.status != 503 || rec.body.String() != "not ready: starting, the node reads its log\n" || rec.header.Get("Retry-After") == "" {
		t.Errorf("%+v", rec)
	}
}

func stopped(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

type recorder struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

func TestWhereAServerMayListen(t *testing.T) {
	for listen, says := range map[string]string{
		"0.0.0.0:0":       "others can reach",
		":0":              "others can reach",
		"[::]:0":          "others can reach",
		"192.0.2.1:0":     "others can reach",
		"127.0.0.1":       "host:port",
		"127.0.0.1:":      "port",
		"127.0.0.1:99999": "port",
		"127.0.0.1:x":     "port",
		"::1:7433":        "host:port",
	} {
		s, err := Start(t.Context(), Config{Listen: listen, Dir: t.TempDir()})
		if err == nil {
			_ = s.Stop(t.Context())
			t.Errorf("%s: accepted", listen)
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a text with %q", listen, err, says)
		}
	}
	w := start(t, func(c *Config) { c.Listen, c.Insecure = "0.0.0.0:0", true })
	_, port, _ := net.SplitHostPort(w.Addr())
	if s, err := Start(t.Context(), Config{Listen: "127.0.0.1:" + port, Dir: t.TempDir()}); err == nil {
		_ = s.Stop(t.Context())
		t.Error("two servers on one port")
	} else if !strings.Contains(err.Error(), "is another server running there?") {
		t.Errorf("port in use: %v", err)
	}
	// A registry that another server uses is refused, and nothing stays open.
	reg := prometheus.NewRegistry()
	dir := t.TempDir()
	first, err := Start(t.Context(), Config{Listen: "localhost:0", Dir: dir, Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Start(t.Context(), Config{Listen: "localhost:0", Dir: t.TempDir(), Registry: reg}); err == nil {
		_ = s.Stop(t.Context())
		t.Error("two servers in one registry")
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	again, err := Start(t.Context(), Config{Listen: "localhost:0", Dir: dir})
	if err != nil {
		t.Fatalf("start after stop: %v", err)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := again.Wait(); err != nil {
		t.Error(err)
	}
}

// A body that does not come, and a header that does not end, do not hold a
// connection for ever; a call that waits is not taken for one.
func TestSlowBodiesAreCut(t *testing.T) {
	w := start(t)
	c := &call{}
	deadlines := &deadlines{recorder: recorder{header: http.Header{}}}
	c.mu.control = http.NewResponseController(deadlines)
	h := withCall(&w.serving, &w.undecoded, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if deadlines.read.IsZero() || time.Until(deadlines.read) > bodyWithin || w.undecoded.Load() != 1 {
			t.Errorf("while the body is read: deadline %v, %d undecoded", deadlines.read, w.undecoded.Load())
		}
		callOf(r.Context()).decoded()
		if !deadlines.read.IsZero() || w.undecoded.Load() != 0 {
			t.Errorf("after the body was read: deadline %v, %d undecoded", deadlines.read, w.undecoded.Load())
		}
		slow := callOf(r.Context()).slowReader(time.Minute, func() {})
		slow.writing()()
		slow.done()
	}))
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "/", nil)
	h.ServeHTTP(deadlines, req)
	if w.undecoded.Load() != 0 {
		t.Error("a finished call counts as undecoded")
	}
	c.hangUp()
	if time.Until(deadlines.read) > 0 || time.Until(deadlines.write) <= 0 {
		t.Errorf("hanging up: read %v, write %v", deadlines.read, deadlines.write)
	}
	c.finished()
	deadlines.read = time.Time{}
	c.hangUp()
	c.abort()
	if !deadlines.read.IsZero() {
		t.Error("a finished call was touched: its connection is another's now")
	}
}

type deadlines struct {
	recorder
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// Stop lets what waits go, under a text that says what to do.
func TestStopEndsWhatWaits(t *testing.T) {
	w := start(t)
	a, b := w.open("a", time.Minute), w.open("b", time.Minute)
	g := a.acquire("x")
	got := make(chan string, 1)
	go func() {
		_, body := w.json("Acquire", fmt.Sprintf(`{"session":{"id":"%d","secret":"%s"},"request":{"n":1},"lock":"x","waitForever":true}`, b.ref.GetId(), b.ref.GetSecret()))
		got <- body
	}()
	w.waiters("x", 1)
	events, err := http.Get(w.url("/v1/watch"))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if body := <-got; !strings.Contains(body, "keeps its place") || !strings.Contains(body, `"unavailable"`) {
		t.Errorf("the waiter was told %s", body)
	}
	if _, err := io.ReadAll(events.Body); err != nil {
		t.Errorf("the events ended with %v", err)
	}
	// Nothing is lost: the next server on the directory knows all of it.
	w2 := start(t, func(c *Config) { c.Dir = w.cfg.Dir })
	l := w2.lock("x")
	if len(l.GetHolders()) != 1 || l.GetHolders()[0].GetGrant() != g.GetNumber() || l.GetWaiters() != 1 {
		t.Errorf("after the restart: %v", l)
	}
	a.w, b.w = w2, w2
	if _, e := a.keepAlive(); e != nil {
		t.Errorf("the session did not survive: %v", e)
	}
}

// TestEveryMethodTakesItsContentTypes: what is refused for its content type is
// exactly what the RPC layer would refuse.
func TestEveryMethodTakesItsContentTypes(t *testing.T) {
	w := start(t)
	prefix, calls := w.service.handler()
	all := holdfastv1.File_holdfast_v1_holdfast_proto.Services().ByName("LockService").Methods()
	for i := range all.Len() {
		m := all.Get(i)
		types := contentTypes(prefix+string(m.Name()), calls)
		want := []string{"application/grpc", "application/grpc+proto", "application/grpc-web+proto", "application/proto", "application/json; charset=utf-8"}
		if m.IsStreamingServer() {
			want = []string{"application/grpc", "application/grpc+proto", "application/grpc-web+proto", "application/connect+proto", "application/connect+json"}
		}
		for _, one := range want {
			if !slices.Contains(types, one) {
				t.Errorf("%s does not take %s: %v", m.Name(), one, types)
			}
		}
	}
}
