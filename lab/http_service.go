package lab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

const (
	// maxCall is the longest body of a call to a world's service, in bytes:
	// room for the largest value that a lock can have.
	maxCall = 16 << 10
	// maxCalls is how many calls to one world's service may be under way.
	maxCalls = 16
	// callWithin is how long one of them may take, its waiting included.
	callWithin = 30 * time.Second
)

// serveCall passes one call on to the world's lock service: its public API in
// JSON, one request and one answer. Operator calls are among them: whoever
// knows the world's name owns it.
func (l *Lab) serveCall(w http.ResponseWriter, r *http.Request) error {
	world, err := l.worlds.get(r.PathValue("world"))
	if err != nil {
		return err
	}
	if world.calls.Add(1) > maxCalls {
		world.calls.Add(-1)
		return refusef(http.StatusTooManyRequests, "%d calls to this world's service are under way: wait for one", maxCalls)
	}
	defer world.calls.Add(-1)
	ctx, cancel := context.WithTimeout(r.Context(), callWithin)
	defer cancel()
	body, err := readBody(w, r, maxCall)
	if err == nil {
		err = wantJSON(r)
	}
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return l.pass(ctx, w, r, world, "/holdfast.v1.LockService/"+r.PathValue("method"))
}

// serveWatch passes on the service's stream of events. It counts as a stream
// of the world's page.
func (l *Lab) serveWatch(w http.ResponseWriter, r *http.Request) error {
	world, err := l.worlds.get(r.PathValue("world"))
	if err != nil {
		return err
	}
	ctx, detach, err := l.worlds.attach(r.Context(), world.id, ofService)
	if errors.Is(err, errPoll) {
		return refusef(http.StatusServiceUnavailable, "%v", err)
	}
	if err != nil {
		return err
	}
	defer detach()
	// The stream of a round that is over, or of a page that is to poll, ends as
	// a whole one: its events stand for themselves. The proxy would break the
	// connection off, which browsers report as an error.
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
	}()
	return l.pass(ctx, w, r, world, "/v1/watch")
}

// pass asks the service of the world's present round. It is asked as a program
// on this machine would: what the browser said of itself stays here.
func (l *Lab) pass(ctx context.Context, w http.ResponseWriter, r *http.Request, world *world, path string) error {
	now := world.now.Load()
	var failed error
	proxy := &httputil.ReverseProxy{
		Transport:     now.transport,
		FlushInterval: -1, // each event at once
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "http", Host: now.server.Addr(), Path: path, RawQuery: r.URL.RawQuery}
			p.Out.Host = now.server.Addr()
			p.Out.Header = http.Header{}
			for _, name := range []string{"Content-Type", "Accept", "Last-Event-ID"} {
				if v := r.Header.Get(name); v != "" {
					p.Out.Header.Set(name, v)
				}
			}
		},
		ModifyResponse: func(res *http.Response) error {
			kind := res.Header.Get("Content-Type")
			keep := http.Header{"Content-Type": {kind}}
			if length := res.Header.Get("Content-Length"); length != "" {
				keep.Set("Content-Length", length)
			}
			res.Header = keep
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	if failed != nil {
		return refusef(http.StatusBadGateway, "the world's lock service did not answer: %v", failed)
	}
	return nil
}
