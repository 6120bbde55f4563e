package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"holdfast/server/core"
	"holdfast/wire"
)

// heartbeatEvery is how often a stream of events that has nothing to tell says
// so, so that both ends and what is between them see a living connection.
const heartbeatEvery = 10 * time.Second

// serveEvents is Watch as server-sent events: GET /v1/watch with lock or
// prefix, and after_revision. Each event's id is its revision, on the last
// event of that revision only, so that a browser that reconnects (with
// Last-Event-ID) gets the rest of it again rather than missing it.
func (s *service) serveEvents(w http.ResponseWriter, r *http.Request) {
	filter, after, err := eventsQuery(r)
	if err != nil {
		refuseEvents(w, err)
		return
	}
	call := callOf(r.Context())
	call.decoded()
	f, err := s.follow(r.Context(), filter, after)
	current, reload := reloadFrom(err)
	if reload {
		// Not an HTTP error: a browser would never come back from it.
		f, err = s.follow(r.Context(), filter, &current)
	}
	if err != nil {
		refuseEvents(w, err)
		return
	}
	s.metrics.watchers.Inc()
	defer s.metrics.watchers.Dec()
	ctx, cancel := s.untilStop(r.Context())
	defer cancel()
	slow := call.slowReader(s.slowAfter, func() {})
	defer slow.done()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx passes events on at once
	if r.Method == http.MethodHead {
		return // that was all of it
	}
	out := &eventWriter{w: w, flush: http.NewResponseController(w).Flush, slow: slow}
	if reload {
		out.reload(uint64(f.at))
	}
	out.comment("watching", uint64(f.at), true)
	for out.err == nil {
		s.tellEvents(ctx, f, out)
		if ctx.Err() != nil {
			return
		}
	}
}

// tellEvents waits for the next events, at most until a heartbeat is due, and
// writes what there is.
func (s *service) tellEvents(ctx context.Context, f *follower, out *eventWriter) {
	wait, cancel := context.WithTimeout(ctx, heartbeatEvery)
	events, err := f.next(wait)
	cancel()
	current, reload := reloadFrom(err)
	switch {
	case err == nil && len(events) == 0, err != nil && ctx.Err() == nil && wait.Err() != nil:
		out.comment("heartbeat", uint64(f.at), false)
	case err == nil:
		out.events(s.at(), events)
	case reload && ctx.Err() == nil:
		again, err := s.follow(ctx, f.filter, &current)
		if err != nil {
			out.err = err
			return
		}
		*f = *again
		out.reload(uint64(f.at))
	default:
		out.err = err
	}
}

// eventsQuery reads the request: unknown and repeated parameters are errors.
func eventsQuery(r *http.Request) (f filter, after *uint64, err error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return f, nil, invalid("bad query: %v", err)
	}
	for name, values := range q {
		if !slices.Contains([]string{"lock", "prefix", "after_revision"}, name) {
			return f, nil, invalid("unknown parameter %q: want lock, prefix or after_revision", name)
		}
		if len(values) > 1 {
			return f, nil, invalid("parameter %q is given %d times: want it once", name, len(values))
		}
	}
	if f, err = newFilter(q.Get("lock"), q.Get("prefix")); err != nil {
		return f, nil, err
	}
	field, text := "after_revision", q.Get("after_revision")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		field, text = "Last-Event-ID", last
	}
	if text == "" {
		return f, nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return f, nil, invalid("%s is %q: want a revision, a number", field, text)
	}
	return f, &n, nil
}

// refuseEvents answers with the same JSON and status as the calls do.
func refuseEvents(w http.ResponseWriter, err error) {
	c := onWire(err)
	w.Header().Set("Cache-Control", "no-store")
	writer := connect.NewErrorWriter()
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Content-Type", "application/json")
	_ = writer.Write(w, r, c)
}

// eventWriter writes server-sent events until one fails.
type eventWriter struct {
	w     io.Writer
	flush func() error
	slow  *slowReader
	err   error
}

func (o *eventWriter) write(text string) {
	if o.err != nil {
		return
	}
	defer o.slow.writing()()
	if _, o.err = io.WriteString(o.w, text); o.err == nil {
		o.err = o.flush()
	}
}

// comment tells that the connection lives, and the revision up to which
// everything was told: an id without data reaches nobody, but is remembered.
func (o *eventWriter) comment(text string, revision uint64, first bool) {
	retry := ""
	if first {
		retry = "retry: 1000\n"
	}
	o.write(fmt.Sprintf(": %s\n%sid: %d\n\n", text, retry, revision))
}

// reload tells that events were missed: the page must read the locks again.
func (o *eventWriter) reload(revision uint64) {
	o.write(fmt.Sprintf("event: reload\nid: %d\ndata: {\"revision\":\"%d\"}\n\n", revision, revision))
}

func (o *eventWriter) events(now at, events []core.Event) {
	var b strings.Builder
	for i := range events {
		m := eventMessage(now, &events[i])
		data, err := wire.MarshalJSON(m)
		if err != nil {
			o.err = err
			return
		}
		if i+1 == len(events) || events[i+1].Revision != events[i].Revision {
			fmt.Fprintf(&b, "id: %d\n", m.GetRevision())
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", m.GetKind(), data)
		if b.Len() > watchChunk {
			o.write(b.String())
			b.Reset()
		}
	}
	o.write(b.String())
}
