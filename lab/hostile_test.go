package lab

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func header(pairs ...string) func(*http.Request) {
	return func(r *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == "Host" {
				r.Host = pairs[i+1]
			} else {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
}

// What a page of another site can have a browser send is refused, gets and
// streams included; only a link to the page itself may come from elsewhere.
func TestOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *Config) { c.InProcess = true })
	p := b.newPage("")
	own := "http://" + b.lab.Addr()
	navigation := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	frame := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}
	for _, c := range []struct {
		method, path string
		header       []string
		status       int
	}{
		{"GET", "/lab", []string{"Host", "evil.example"}, 403},
		{"GET", "/lab", []string{"Host", "localhost.evil.example"}, 403},
		{"GET", "/lab", []string{"Host", "127.0.0.1.evil.example:80"}, 403},
		{"GET", "/lab", []string{"Host", "localhost:1"}, 200},
		{"GET", "/lab", []string{"Host", "[::1]:80"}, 200},
		{"GET", "/lab", navigation, 200},
		{"HEAD", "/lab", navigation, 200},
		{"GET", "/", navigation, 302},
		{"GET", "/lab", frame, 403},
		{"GET", "/lab/app.js", navigation, 403},
		{"GET", "/lab/app.js", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", "/lab/app.js", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"GET", "/lab/app.js", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", "/lab/app.js", []string{"Sec-Fetch-Site", "none"}, 200},
		{"GET", "/lab/app.js", []string{"Origin", "null"}, 403},
		{"GET", "EVENTS", navigation, 403},
		{"GET", "EVENTS", []string{"Origin", "https://evil.example"}, 403},
		{"GET", "EVENTS", []string{"Origin", own + "0"}, 403},
		{"GET", "EVENTS", []string{"Origin", own}, 200},
		{"GET", "EVENTS", []string{"Accept", "text/event-stream", "Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", "WATCH", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "/lab/v1/worlds", []string{"Origin", "http://evil.example"}, 403},
		{"POST", "/lab/v1/worlds", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"POST", "/lab/v1/worlds", []string{"Origin", own, "Sec-Fetch-Site", "cross-site"}, 403},
		{"DELETE", "WORLD", []string{"Origin", "http://evil.example"}, 403},
		{"OPTIONS", "/lab/v1/worlds", []string{"Origin", "http://evil.example"}, 403},
	} {
		at := strings.NewReplacer("EVENTS", p.path("/events"), "WATCH", p.path("/service/v1/watch"), "WORLD", p.path("")).Replace(c.path)
		status, h, text := noRedirect(b, c.method, at, "", header(c.header...))
		if status != c.status {
			t.Errorf("%s %s %v: %d %s, want %d", c.method, c.path, c.header, status, text, c.status)
		}
		if status == 403 && c.method != "HEAD" && !strings.Contains(text, "refused: ") {
			t.Errorf("%s %s %v: %q", c.method, c.path, c.header, text)
		}
		checkSecure(t, c.path, h)
		if h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s allows other origins", c.method, c.path)
		}
	}
	p.acts(`{"do":"value","worker":"A","value":"still here"}`)
}

func checkSecure(t *testing.T, what string, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %s is %q", what, name, got)
		}
	}
}

func noRedirect(b *browser, method, at, body string, change ...func(*http.Request)) (int, http.Header, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+at, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range change {
		f(req)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	line, _ := bufio.NewReader(res.Body).ReadString('\n')
	return res.StatusCode, res.Header, line
}

// value is the action that changes A's value, to what is in a JSON string.
func value(v string) string { return fmt.Sprintf(`{"do":"value","worker":"A","value":"%s"}`, v) }

// badInput are actions, how they are answered, and what the answer says.
var badInput = []struct {
	body   string
	status int
	says   string
}{
	{`{`, 400, "JSON"},
	{`[]`, 400, "want {…}"},
	{`null`, 400, "want {…}"},
	{`"acquire"`, 400, "want {…}"},
	{`{}`, 400, `do is ""`},
	{``, 400, `do is ""`},
	{`{"do":"acquire","worker":"A"} {}`, 400, "more behind"},
	{`{"do":"acquire","worker":"A"}x`, 400, "behind"},
	{`{"do":"acquire","worker":"A","x":1}`, 400, `unknown field "x"`},
	{`{"DO":"acquire","worker":"A"}`, 400, `unknown field "DO"`},
	{`{"do":"acquire","worker":"A","worker":"B"}`, 400, "given twice"},
	{`{"do":"acquire","worker":"C"}`, 400, "worker"},
	{`{"do":"acquire","worker":"a"}`, 400, "worker"},
	{`{"do":"acquire"}`, 400, "worker"},
	{`{"do":"acquire","worker":7}`, 400, "a string"},
	{`{"do":"acquire","worker":["A"]}`, 400, "list"},
	{`{"do":"acquire","worker":{"A":"A"}}`, 400, "a string"},
	{`{"do":"acquire","worker":"A","on":true}`, 400, "compare"},
	{`{"do":"acquire","worker":"A","ttlMs":3000}`, 400, "reset"},
	{`{"do":"acquire","worker":"A","A":"x"}`, 400, `"A"`},
	{`{"do":"compare"}`, 400, "true or false"},
	{`{"do":"compare","on":"yes"}`, 400, "true or false"},
	{`{"do":"compare","on":true,"worker":"A"}`, 400, "no worker"},
	{`{"do":"reset","worker":"A"}`, 400, "no worker"},
	{`{"do":"reset","ttlMs":1999}`, 400, "2000 to 10000"},
	{`{"do":"reset","ttlMs":10001}`, 400, "2000 to 10000"},
	{`{"do":"reset","ttlMs":-1}`, 400, "2000 to 10000"},
	{`{"do":"reset","ttlMs":4000.5}`, 400, `"ttlMs" is a JSON number 4000.5: want a whole number`},
	{`{"do":"reset","values":{"A":1}}`, 400, `"values.A" is a JSON number: want a string`},
	{`{"do":"reset","ttlMs":1e400}`, 400, "whole number"},
	{`{"do":"reset","ttlMs":"4000"}`, 400, "a whole number"},
	{`{"do":"reset","values":{"C":"x"}}`, 400, `"C"`},
	{`{"do":"reset","values":{"A":""}}`, 400, "empty"},
	{`{"do":"reset","values":{"do":"x"}}`, 400, `"do"`},
	{`{"do":"rm -rf","worker":"A"}`, 400, "want one of"},
	{`{"do":"value","worker":"A"}`, 400, "value"},
	{value(""), 400, "empty"},
	{value("   "), 400, "empty"},
	{value(strings.Repeat("ä", 81)), 400, "81 characters"},
	{value(`a\nb`), 400, "U+000A"},
	{value(`a\u0000b`), 400, "U+0000"},
	{value(`\u202egpj.exe`), 400, "U+202E"},
	{value(`a\u200bb`), 400, "U+200B"},
	{value(`a\u2028b`), 400, "U+2028"},
	{value(`\ud800`), 400, "U+FFFD"},
	{value("\xff"), 400, "UTF-8"},
	{value("\x01"), 400, ""},
	{strings.Repeat(" ", maxBody) + `{"do":"acquire","worker":"A"}`, 413, "4096 bytes"},
	{value(strings.Repeat("ä", 80)), 200, ""},
	{value(`<img src=x onerror=alert(1)>`), 200, ""},
	{value(`日本語 €  \ud83d\ude00 é\u0301`), 200, ""},
	{` {"do":"value","worker":"B","value":"'; DROP TABLE ledger; --"} `, 200, ""},
}

// What is sent wrong is refused with what is allowed, and changes nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *Config) { c.InProcess = true }).newPage("")
	for _, c := range badInput {
		status, _, text := p.tryAct(c.body)
		if status != c.status || !strings.Contains(text, c.says) || (status != 200 && text == "") {
			t.Errorf("%.90q: %d %q, want %d and %q", c.body, status, text, c.status, c.says)
		}
	}
	for kind, want := range map[string]int{
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "multipart/form-data; boundary=x": 415, "application/jsonx": 415,
		"application/json; charset=latin1": 415, "application/json; charset=UTF-8": 200, "Application/JSON": 200,
	} {
		status, _, text := p.ask("POST", p.path("/actions"), value("x"), func(r *http.Request) { r.Header.Set("Content-Type", kind) })
		if status != want {
			t.Errorf("Content-Type %q: %d %s, want %d", kind, status, text, want)
		}
	}
	for _, bad := range []string{`{"ttlMs":1}`, `{"values":{"A":"\u0007"}}`, `{"do":"acquire"}`, `{"compare":1}`, `x`} {
		if status, _, text := p.ask("POST", "/lab/v1/worlds", bad); status != 400 || text == "" {
			t.Errorf("a world with %s: %d %s", bad, status, text)
		}
	}
	p.hear()
	for _, e := range p.events[3:] {
		if e.Kind != kindValue {
			t.Errorf("bad input caused %v", e)
		}
	}
	if last := p.events[len(p.events)-1]; last.Value != "x" {
		t.Errorf("the last value is %q", last.Value)
	}
}

// paths are requests, how they are answered, and what is in the answer's body,
// content type or header Allow. WORLD stands for a living world.
var paths = []struct {
	method, path string
	status       int
	says         string // in the body, the content type, or the header Allow
}{
	{"GET", "/", 302, ""},
	{"GET", "/lab/", 302, ""},
	{"GET", "/lab", 200, "text/html; charset=utf-8"},
	{"HEAD", "/lab", 200, "text/html; charset=utf-8"},
	{"GET", "/lab/app.js", 200, "text/javascript; charset=utf-8"},
	{"GET", "/lab/css/base.css", 200, "text/css; charset=utf-8"},
	{"GET", "/lab/icon.svg", 200, "image/svg+xml"},
	{"GET", "/lab/secret.txt", 404, "the page is at /lab"},
	{"GET", "/lab/css", 404, ""},
	{"GET", "/lab/css/", 404, ""},
	{"GET", "/lab/elements", 404, ""},
	{"GET", "/lab/none.js", 404, ""},
	{"GET", "/lab/../lab.go", 404, ""},
	{"GET", "/lab/..%2flab.js", 404, ""},
	{"GET", "/lab/%2e%2e/x.js", 404, ""},
	{"GET", "/lab//app.js", 404, ""},
	{"GET", "/lab/./app.js", 404, ""},
	{"GET", `/lab/css\base.css`, 404, ""},
	{"GET", "/lab/app.js%00", 404, ""},
	{"GET", "/favicon.ico", 404, "the page is at /lab"},
	{"GET", "/debug/pprof/", 404, ""},
	{"POST", "/lab", 405, "GET, HEAD"},
	{"PUT", "/lab/app.js", 405, "GET, HEAD"},
	{"GET", "/lab/v1/worlds", 405, "POST"},
	{"OPTIONS", "/lab/v1/worlds", 405, "POST"},
	{"GET", "/lab/v1/", 404, "error"},
	{"GET", "/lab/v1/other", 404, "error"},
	{"PATCH", "WORLD", 405, "DELETE"},
	{"POST", "WORLD/events", 405, "GET, HEAD"},
	{"GET", "WORLD/actions", 405, "POST"},
	{"GET", "WORLD/end", 405, "POST"},
	{"GET", "WORLD/events?after=x", 400, "number"},
	{"GET", "WORLD/events?after=-1", 400, "number"},
	{"GET", "WORLD/events?after=1&after=2", 400, "once"},
	{"GET", "WORLD/events?x=1", 400, "unknown"},
	{"HEAD", "WORLD/events", 200, "application/json"},
	{"GET", "/lab/v1/worlds/" + strings.Repeat("A", 26) + "/events", 404, "no world"},
	{"DELETE", "/lab/v1/worlds/" + strings.Repeat("A", 26), 404, "no world"},
	{"POST", "/lab/v1/worlds/%2e%2e/actions", 404, "error"},
	{"GET", "WORLD/service", 404, "error"},
	{"GET", "WORLD/service/", 404, ""},
	{"GET", "WORLD/service/metrics", 404, "error"},
	{"GET", "WORLD/service/healthz", 404, "error"},
	{"GET", "WORLD/service/v1/watch/../../metrics", 404, "error"},
	{"GET", "WORLD/service/v1/watch%2f..%2f..%2fmetrics", 404, "error"},
	{"POST", "WORLD/service/v1/watch", 405, "GET, HEAD"},
	{"GET", "WORLD/service/v1/watch?x=1", 400, "unknown parameter"},
	{"POST", "WORLD/service/holdfast.v1.LockService/../../lab/v1/worlds", 404, "error"},
	{"POST", "WORLD/service/holdfast.v1.LockService/GetLock%2f..", 404, "error"},
	{"POST", "WORLD/service/holdfast.v1.LockService/", 404, "error"},
	{"POST", "WORLD/service/holdfast.v1.LockService/None", 501, "no method"},
	{"POST", "WORLD/service//evil.example/GetLock", 404, "error"},
	{"GET", "WORLD/service/holdfast.v1.LockService/GetLock", 405, "POST"},
}

// Whatever else is asked for is not there, and says so; no path leads out of
// the page, or out of the service's public API.
func TestPaths(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *Config) {
		c.InProcess = true
		c.Page = fstest.MapFS{
			"index.html": {Data: []byte("<!doctype html>")}, "app.js": {Data: []byte("1")}, "css/base.css": {Data: []byte("a{}")},
			"icon.svg": {Data: []byte("<svg/>")}, "secret.txt": {Data: []byte("s")}, "elements/x.js": {Data: []byte("2")},
		}
	})
	p := b.newPage("")
	service := p.path("/service")
	for _, c := range paths {
		c.path = strings.Replace(c.path, "WORLD", p.path(""), 1)
		status, h, text := noRedirect(b, c.method, c.path, "{}", header("Content-Type", "application/json"))
		all := text + h.Get("Content-Type") + h.Get("Allow")
		if status != c.status || !strings.Contains(all, c.says) {
			t.Errorf("%s %s: %d %q, want %d and %q", c.method, c.path, status, all, c.status, c.says)
		}
		checkSecure(t, c.path, h)
	}
	if status, _, text := noRedirect(b, "POST", service+"/holdfast.v1.LockService/GetLock", "{}", header("Content-Type", "application/grpc")); status != 415 {
		t.Errorf("gRPC: %d %s", status, text)
	}
	if status, _, text := b.ask("POST", service+"/holdfast.v1.LockService/GetLock", strings.Repeat(" ", maxCall+1)); status != 413 {
		t.Errorf("a long call: %d %s", status, text)
	}
	// A browser asks whether a file is still the same.
	_, h, _ := b.ask("GET", "/lab/app.js", "")
	if status, _, body := b.ask("GET", "/lab/app.js", "", header("If-None-Match", h.Get("ETag"))); status != 304 || body != "" || h.Get("Cache-Control") != "no-cache" {
		t.Errorf("the same file: %d %q %v", status, body, h)
	}
}

// Requests that no client library sends.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *Config) { c.InProcess = true })
	for request, want := range map[string]string{
		"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n":                                      " 400 ",
		"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                   " 403 ",
		"GET http://evil.example/lab HTTP/1.1\r\nHost: localhost\r\n\r\n":                    " 403 ",
		"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n":                        " 404 ",
		"GET /lab HTTP/1.1\r\n\r\n":                                                          " 400 ",
		"GET /lab HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n": " 431 ",
	} {
		conn, err := net.Dial("tcp", b.lab.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = conn.Write([]byte(request))
		line, _ := bufio.NewReader(conn).ReadString('\n')
		if !strings.Contains(line, want) {
			t.Errorf("%.50q: %q, want %s", request, line, want)
		}
		conn.Close()
	}
}

// Every file of the page can be served.
func TestEveryFileHasItsType(t *testing.T) {
	err := fs.WalkDir(builtIn(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && served[path.Ext(name)] == "" {
			t.Errorf("page/%s is of a sort that is not served", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A lab is where only this machine can reach it, unless that was asked for.
func TestWhereALabMayListen(t *testing.T) {
	t.Parallel()
	for listen, says := range map[string]string{
		"0.0.0.0:0": "can start and stop its processes", ":0": "can start and stop its processes", "[::]:0": "can start and stop its processes",
		"127.0.0.1": "host:port", "127.0.0.1:x": "listen",
	} {
		cfg := testConfig()
		cfg.Listen = listen
		if l, err := Start(t.Context(), cfg); err == nil {
			_ = l.Stop(context.Background())
			t.Errorf("%s: accepted", listen)
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", listen, err, says)
		}
	}
	b := open(t, func(c *Config) { c.Listen, c.Insecure = "0.0.0.0:0", true })
	if !strings.HasPrefix(b.lab.URL(), "http://localhost:") {
		t.Errorf("URL %s", b.lab.URL())
	}
	_, port, _ := net.SplitHostPort(b.lab.Addr())
	b.url = "http://127.0.0.1:" + port
	if status, _, _ := b.ask("GET", "/lab", "", header("Host", "evil.example")); status != 403 {
		t.Errorf("a name that is not this machine's: %d", status)
	}
	cfg := testConfig()
	cfg.Listen = "127.0.0.1:" + port
	if l, err := Start(t.Context(), cfg); err == nil {
		_ = l.Stop(context.Background())
		t.Error("two labs on one port")
	}
	for _, broken := range []func(*Config){
		func(c *Config) { c.WorkerCommand = nil },
		func(c *Config) { c.SweeperCommand = nil },
		func(c *Config) { c.Idle = -1 },
	} {
		cfg := testConfig()
		broken(&cfg)
		if l, err := Start(t.Context(), cfg); err == nil {
			_ = l.Stop(context.Background())
			t.Errorf("accepted: %+v", cfg)
		}
	}
}
