package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// clockEvery is how often a stream tells the world's time.
	clockEvery = time.Second
	// chunk is how much of a stream is written at once, in bytes.
	chunk = 64 << 10
)

// serveEvents tells a world's events: as a stream to whoever accepts one, else
// those that there are.
func (l *Lab) serveEvents(w http.ResponseWriter, r *http.Request) error {
	after, err := afterSeq(r)
	if err != nil {
		return err
	}
	world, err := l.worlds.get(r.PathValue("world"))
	if err != nil {
		return err
	}
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return l.streamEvents(w, r, world, after)
	}
	may := l.worlds.polled(world.id)
	now := world.journal.read(after)
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodHead {
		return nil
	}
	writeEntries(w, fmt.Sprintf(`{"nowMs":%s,"streams":%t,"events":[`, number(now.nowMS), may), now.entries, "]}\n")
	return nil
}

func number(ms float64) string { return strconv.FormatFloat(ms, 'f', -1, 64) }

// afterSeq is the number of the last event that a page knows. A browser that
// reconnects says it in a header.
func afterSeq(r *http.Request) (uint64, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return 0, badf("bad query: %v", err)
	}
	for name, values := range q {
		if name != "after" || len(values) > 1 {
			return 0, badf("unknown or repeated parameter %q: want after, once at most", clip(name))
		}
	}
	field, text := "after", q.Get("after")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		field, text = "Last-Event-ID", last
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badf("%s is %q: want the number of an event", field, clip(text))
	}
	return n, nil
}

// streamEvents tells events as they happen, until the page leaves, the world
// ends, or the page is told to poll.
func (l *Lab) streamEvents(w http.ResponseWriter, r *http.Request, world *world, after uint64) error {
	ctx, detach, err := l.worlds.attach(r.Context(), world.id, ofJournal)
	polls := errors.Is(err, errPoll)
	if err != nil && !polls {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx passes events on at once
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	if polls {
		if r.Method != http.MethodHead {
			out.named("poll", map[string]any{"reason": errPoll.Error()})
		}
		return nil
	}
	defer detach()
	if r.Method != http.MethodHead {
		out.follow(ctx, world.journal, after)
	}
	return nil
}

// An eventWriter writes server-sent events until one fails.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
	err     error
}

func (o *eventWriter) follow(ctx context.Context, j *journal, after uint64) {
	o.buf.WriteString("retry: 500\n\n")
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	clock := true
	for o.err == nil {
		now := j.read(after)
		for i, e := range now.entries {
			after = now.first + uint64(i)
			fmt.Fprintf(&o.buf, "id: %d\ndata: %s\n\n", after, e)
			if o.buf.Len() > chunk {
				o.flush()
			}
		}
		if now.end != "" {
			o.named("end", map[string]any{"reason": now.end})
			return
		}
		if clock {
			o.named("clock", map[string]any{"atMs": now.nowMS})
		}
		o.flush()
		clock = false
		select {
		case <-now.wait:
		case <-tick.C:
			clock = true
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errPoll) {
				o.named("poll", map[string]any{"reason": errPoll.Error()})
			}
			return
		}
	}
}

// named writes an event with a name. It has no id, so that a page that comes
// back asks for what it missed.
func (o *eventWriter) named(name string, data map[string]any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // strings and numbers
	}
	fmt.Fprintf(&o.buf, "event: %s\ndata: %s\n\n", name, text)
	o.flush()
}

// flush sends what is written.
func (o *eventWriter) flush() {
	if o.err == nil && o.buf.Len() > 0 {
		if _, o.err = o.w.Write(o.buf.Bytes()); o.err == nil {
			o.err = o.control.Flush()
		}
	}
	o.buf.Reset()
}
