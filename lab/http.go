package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"holdfast/server"
)

const (
	// maxBody is the longest body of the lab's own API, in bytes.
	maxBody = 4 << 10
	// bodyWithin is how long a body may take to come.
	bodyWithin = 10 * time.Second
	// writeWithin is how long a reader may leave a part of an answer unread.
	writeWithin = 10 * time.Second
)

// policy is what a page of the lab may do: its own scripts, styles and
// pictures, calls to where it came from, and no markup from strings.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// newHTTP is the HTTP server with its limits. Streams last, so there is no
// limit for whole requests; bodies and unread answers have theirs.
func newHTTP(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,

		DisableGeneralOptionsHandler: true, // which would stand before the guards

		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// routes is everything that the port serves, without its guards.
func (l *Lab) routes() http.Handler {
	mux := http.NewServeMux()
	toPage := func(w http.ResponseWriter, r *http.Request) error {
		http.Redirect(w, r, "/lab", http.StatusFound)
		return nil
	}
	mux.Handle("/{$}", methods{http.MethodGet: toPage})
	mux.Handle("/lab/{$}", methods{http.MethodGet: toPage})
	mux.Handle("/lab", methods{http.MethodGet: l.serveIndex})
	mux.Handle("/lab/{file...}", methods{http.MethodGet: l.serveFile})
	mux.Handle("/lab/v1/worlds", methods{http.MethodPost: l.createWorld})
	const world = "/lab/v1/worlds/{world}"
	mux.Handle(world, methods{http.MethodDelete: l.deleteWorld})
	mux.Handle(world+"/end", methods{http.MethodPost: l.endWorld})
	mux.Handle(world+"/events", methods{http.MethodGet: l.serveEvents})
	mux.Handle(world+"/actions", methods{http.MethodPost: l.act})
	mux.Handle(world+"/log", methods{http.MethodGet: l.serveLog})
	mux.Handle(world+"/service/v1/watch", methods{http.MethodGet: l.serveWatch})
	mux.Handle(world+"/service/holdfast.v1.LockService/{method}", methods{http.MethodPost: l.serveCall})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { answerError(w, r, notFound(r)) })
	mux.HandleFunc("/lab/v1/", func(w http.ResponseWriter, r *http.Request) { answerError(w, r, notFound(r)) })
	return mux
}

func notFound(r *http.Request) error {
	return refusef(http.StatusNotFound, "nothing is served at %s: the page is at /lab", clip(r.URL.EscapedPath()))
}

// A handler answers a request, or says why not.
type handler func(w http.ResponseWriter, r *http.Request) error

// methods is what is served at one path, by method. HEAD is GET without the
// body.
type methods map[string]handler

// ServeHTTP implements http.Handler.
func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	h := m[method]
	if h == nil {
		allowed := slices.Sorted(maps.Keys(m))
		if m[http.MethodGet] != nil {
			allowed = append(allowed, http.MethodHead)
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		answerError(w, r, refusef(http.StatusMethodNotAllowed, "%s of %s: want %s", clip(r.Method), clip(r.URL.Path), strings.Join(allowed, " or ")))
		return
	}
	if err := h(w, r); err != nil {
		answerError(w, r, err)
	}
}

// guarded is what stands before every handler: it refuses what a browser was
// tricked into sending by a page of another site, gets and streams included,
// and paths that could be read in two ways.
func (l *Lab) guarded(next http.Handler) http.Handler {
	names := l.names()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.serving.Add(1)
		defer l.serving.Add(-1)
		w = newPatient(w, l.cfg.hooks.writeWithin)
		secure(w.Header())
		err := checkCaller(r, names)
		if err == nil && r.URL.Path != "*" {
			err = checkPath(r)
		}
		if err != nil {
			answerError(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// names are what a Host header may be besides an address and localhost: the
// name that the lab was told to listen on, and, if others can reach it, the
// machine's own.
func (l *Lab) names() []string {
	host, _, _ := net.SplitHostPort(l.cfg.Listen) // it was checked
	names := []string{strings.ToLower(host)}
	if own, err := os.Hostname(); err == nil && l.cfg.Insecure {
		names = append(names, strings.ToLower(own))
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

// patient writes an answer to a reader who takes each part of it within a
// time; another one is cut off, so that nobody holds a stream, and with
// it a world, by not reading.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
}

func newPatient(w http.ResponseWriter, within time.Duration) patient {
	p := patient{w, http.NewResponseController(w), within}
	_ = p.control.SetWriteDeadline(time.Time{}) // of the answer before, on this connection
	return p
}

// Write implements http.ResponseWriter.
func (p patient) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.within))
	return p.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// checkCaller refuses a request that a page of another site had a browser
// send. A name that an attacker points at this machine (DNS rebinding) shows in
// Host, a script or an event stream of another site in Sec-Fetch-Site or
// Origin. Only a link that somebody followed to the page itself may come from
// elsewhere.
func checkCaller(r *http.Request, names []string) error {
	if !server.LocalHost(r.Host, names...) {
		return refusef(http.StatusForbidden, "refused: Host is %q: use the machine's address, or localhost", clip(r.Host))
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return refusef(http.StatusForbidden, "refused: a call from the web page %s; the lab answers only to its own page", clip(origin))
		}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "", site == "same-origin", site == "none", followedLink(r):
		return nil
	default:
		return refusef(http.StatusForbidden, "refused: a call from the web page of another site (%s); the lab answers only to its own page", clip(site))
	}
}

// followedLink: somebody opens the page, from wherever.
func followedLink(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.URL.Path == "/" || r.URL.Path == "/lab" || r.URL.Path == "/lab/") &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// checkPath refuses a path that is not in its one plain form. All that the lab
// serves has plain names, so nothing needs an escape.
func checkPath(r *http.Request) error {
	p := r.URL.EscapedPath()
	clean := path.Clean(p)
	if p != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	if strings.ContainsAny(p, `%\`) || p != clean || !strings.HasPrefix(p, "/") {
		return notFound(r)
	}
	return nil
}

// answerError answers with an error's text: as JSON under /lab/v1, for people
// elsewhere.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	w.Header().Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if strings.HasPrefix(r.URL.Path, "/lab/v1/") {
		answer(w, r, status, map[string]string{"error": err.Error()})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = fmt.Fprintln(w, err)
	}
}

// answer writes JSON.
func answer(w http.ResponseWriter, r *http.Request, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers, and what was JSON before
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(text, '\n'))
	}
}

// readJSON reads a body of the lab's API. The fields that may occur are named;
// see [decodeStrict].
func readJSON(w http.ResponseWriter, r *http.Request, fields []string, v any) error {
	text, err := readBody(w, r, maxBody)
	if err != nil || len(text) == 0 {
		return err
	}
	if err := wantJSON(r); err != nil {
		return err
	}
	return decodeStrict(text, fields, v)
}

func wantJSON(r *http.Request) error {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset, ok := params["charset"]; err != nil || kind != "application/json" || ok && !strings.EqualFold(charset, "utf-8") {
		return refusef(http.StatusUnsupportedMediaType, "Content-Type is %q: want application/json", clip(r.Header.Get("Content-Type")))
	}
	return nil
}

func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyWithin))
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	_ = control.SetReadDeadline(time.Time{})
	if err == nil {
		return text, nil
	}
	if _, long := err.(*http.MaxBytesError); long {
		return nil, refusef(http.StatusRequestEntityTooLarge, "the body is too long: want at most %d bytes", most)
	}
	return nil, badf("the body could not be read: %v", err)
}
