package server

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// watch opens a watch and waits until it stands.
func (w *world) watch(m *holdfastv1.WatchRequest) (*connect.ServerStreamForClient[holdfastv1.WatchResponse], uint64) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	s, err := w.rpc.Watch(ctx, connect.NewRequest(m))
	must(w, s, err)
	if !s.Receive() || len(s.Msg().GetEvents()) != 0 {
		w.t.Fatalf("the watch does not stand: %v, %v", s.Msg(), s.Err())
	}
	return s, s.Msg().GetRevision()
}

// kindsOf reads so many events of a watch.
func kindsOf(t *testing.T, s *connect.ServerStreamForClient[holdfastv1.WatchResponse], count int) (kinds []string, last uint64) {
	t.Helper()
	for len(kinds) < count {
		if !s.Receive() {
			t.Fatalf("after %v: %v", kinds, s.Err())
		}
		for _, e := range s.Msg().GetEvents() {
			kinds = append(kinds, e.GetKind()+" "+e.GetLock())
		}
		last = s.Msg().GetRevision()
	}
	return kinds, last
}

func TestWatchFiltersAndResumes(t *testing.T) {
	w := start(t)
	a := w.open("a", time.Minute)
	one, from := w.watch(&holdfastv1.WatchRequest{Lock: "a/1"})
	prefix, _ := w.watch(&holdfastv1.WatchRequest{Prefix: "a/"})
	all, _ := w.watch(&holdfastv1.WatchRequest{})
	g := a.acquire("a/1")
	a.acquire("a/2")
	a.acquire("ab")
	a.release(g)
	if k, _ := kindsOf(t, one, 2); fmt.Sprint(k) != "[granted a/1 released a/1]" {
		t.Errorf("one lock: %v", k)
	}
	if k, _ := kindsOf(t, prefix, 3); fmt.Sprint(k) != "[granted a/1 granted a/2 released a/1]" {
		t.Errorf("prefix: %v", k)
	}
	k, last := kindsOf(t, all, 4)
	if fmt.Sprint(k) != "[granted a/1 granted a/2 granted ab released a/1]" {
		t.Errorf("all: %v", k)
	}
	res, err := w.rpc.EndSession(t.Context(), connect.NewRequest(&holdfastv1.EndSessionRequest{Session: a.ref}))
	must(w, res, err)
	if k, _ := kindsOf(t, all, 3); !strings.Contains(fmt.Sprint(k), "ended ") {
		t.Errorf("the end of a session: %v", k)
	}
	// From the revision of a response nothing is missed and nothing repeated.
	again, at := w.watch(&holdfastv1.WatchRequest{AfterRevision: &last})
	if at != last {
		t.Errorf("asked for %d, stands at %d", last, at)
	}
	if k, _ := kindsOf(t, again, 3); strings.Contains(fmt.Sprint(k), "granted") {
		t.Errorf("resumed: %v", k)
	}
	again, _ = w.watch(&holdfastv1.WatchRequest{AfterRevision: &from, Lock: "a/2"})
	if k, _ := kindsOf(t, again, 2); fmt.Sprint(k) != "[granted a/2 released a/2]" {
		t.Errorf("from the start: %v", k)
	}
}

func TestWatchRefusesWhatItCannotShow(t *testing.T) {
	w := start(t)
	refused := func(m *holdfastv1.WatchRequest, kind driver.Kind) *driver.Error {
		t.Helper()
		s, err := w.rpc.Watch(t.Context(), connect.NewRequest(m))
		must(w, s, err)
		if s.Receive() {
			t.Fatalf("%v: got %v", m, s.Msg())
		}
		e := wire.FromError(s.Err())
		if e.Kind != kind || e.Outcome != driver.No {
			t.Fatalf("%v: %v (%v)", m, e, e.Kind)
		}
		return e
	}
	refused(&holdfastv1.WatchRequest{Lock: "a", Prefix: "b"}, driver.Invalid)
	refused(&holdfastv1.WatchRequest{Lock: "a\n"}, driver.Invalid)
	refused(&holdfastv1.WatchRequest{Prefix: strings.Repeat("a", 513)}, driver.Invalid)
	ahead := uint64(1 << 40)
	e := refused(&holdfastv1.WatchRequest{AfterRevision: &ahead}, driver.NotFound)
	if wire.RemoteOf(e).Revision() != uint64(w.node.Status().Revision) || !strings.Contains(e.Error(), "read the locks again") {
		t.Errorf("ahead: %v, revision %d", e, wire.RemoteOf(e).Revision())
	}
	w.overflow()
	one := uint64(1)
	e = refused(&holdfastv1.WatchRequest{AfterRevision: &one}, driver.NotFound)
	if wire.RemoteOf(e).Revision() == 0 {
		t.Errorf("gone: %v", e)
	}
	if _, err := w.rpc.Poll(t.Context(), connect.NewRequest(&holdfastv1.PollRequest{AfterRevision: 1})); wire.FromError(err) == nil || wire.FromError(err).Kind != driver.NotFound {
		t.Errorf("poll of what is gone: %v", err)
	}
}

// overflow makes more events than are kept: many grants, and one revision that
// ends them all.
func (w *world) overflow() {
	w.t.Helper()
	s := w.overGRPC()
	for round := range 2 {
		id := s.opened("p", "many", drawSecret())
		const count = 5500
		frames := make([]*holdfastv1.ClientFrame, count)
		for i := range frames {
			frames[i] = frameAcquire(id, uint32(i), 1, fmt.Sprintf("many/%d/%d", round, i), true)
		}
		s.say(frames...)
		s.answer(s.last)
		s.answer(s.say(frameEnd(id)))
	}
}

func TestPoll(t *testing.T) {
	w := start(t)
	a := w.open("a", time.Minute)
	poll := func(m *holdfastv1.PollRequest) (*holdfastv1.PollResponse, *driver.Error) {
		res, err := w.rpc.Poll(t.Context(), connect.NewRequest(m))
		if err != nil {
			return nil, wire.FromError(err)
		}
		return res.Msg, nil
	}
	now, e := poll(&holdfastv1.PollRequest{})
	if e != nil || now.GetRevision() == 0 || len(now.GetEvents()) != 0 {
		t.Fatalf("now: %v, %v", now, e)
	}
	none, e := poll(&holdfastv1.PollRequest{AfterRevision: now.GetRevision(), WaitMs: 30})
	if e != nil || len(none.GetEvents()) != 0 || none.GetRevision() != now.GetRevision() {
		t.Errorf("nothing happened: %v, %v", none, e)
	}
	type polled struct {
		r *holdfastv1.PollResponse
		e *driver.Error
	}
	got := make(chan polled, 1)
	go func() {
		r, e := poll(&holdfastv1.PollRequest{Lock: "x", AfterRevision: now.GetRevision(), WaitMs: 60_000})
		got <- polled{r, e}
	}()
	a.acquire("y") // not what is polled for
	g := a.acquire("x")
	p := <-got
	if p.e != nil || len(p.r.GetEvents()) != 1 || p.r.GetEvents()[0].GetToken() != g.GetToken() || p.r.GetEvents()[0].GetSessionId() != a.ref.GetId() {
		t.Errorf("polled: %v, %v", p.r, p.e)
	}
	// What does not match moves the revision on all the same.
	late, e := poll(&holdfastv1.PollRequest{Lock: "z", AfterRevision: now.GetRevision(), WaitMs: 1})
	if e != nil || late.GetRevision() < p.r.GetRevision() {
		t.Errorf("no match: %v, %v", late, e)
	}
	if _, e := poll(&holdfastv1.PollRequest{WaitMs: 60_001}); e == nil || e.Kind != driver.Invalid {
		t.Errorf("too long a wait: %v", e)
	}
}

// A poll without a wait tells what happened since, also what only the state
// still knows: after a restart that is everything.
func TestPollWithoutAWaitTellsOldEvents(t *testing.T) {
	w := start(t)
	a := w.open("a", time.Minute)
	poll := func(m *holdfastv1.PollRequest) *holdfastv1.PollResponse {
		res, err := w.rpc.Poll(t.Context(), connect.NewRequest(m))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg
	}
	before := poll(&holdfastv1.PollRequest{}).GetRevision()
	g := a.acquire("x")
	w.node.hub.start(core.Revision(poll(&holdfastv1.PollRequest{}).GetRevision()))
	if r := poll(&holdfastv1.PollRequest{Lock: "x", AfterRevision: before}); len(r.GetEvents()) != 1 || r.GetEvents()[0].GetToken() != g.GetToken() {
		t.Errorf("polled: %v", r)
	}
}

// Responses are cut between revisions, and within one only if it must be: the
// parts before the last then resume before it.
func TestWatchResponsesAreCutBetweenRevisions(t *testing.T) {
	value := make([]byte, core.MaxValue)
	event := func(rev core.Revision) core.Event {
		return core.Event{Revision: rev, Kind: core.EventPut, Lock: "x", Value: value}
	}
	var small []core.Event
	for rev := core.Revision(11); rev <= 1010; rev++ {
		small = append(small, event(rev))
	}
	out := watchResponses(at{}, small, 10, 1010)
	if len(out) < 3 || out[len(out)-1].GetRevision() != 1010 {
		t.Fatalf("%d responses, the last at %d", len(out), out[len(out)-1].GetRevision())
	}
	total := 0
	for _, r := range out {
		total += len(r.GetEvents())
		if r.GetMore() || r.GetRevision() != r.GetEvents()[len(r.GetEvents())-1].GetRevision() {
			t.Errorf("cut within a revision: more %v, at %d", r.GetMore(), r.GetRevision())
		}
	}
	if total != 1000 {
		t.Errorf("%d events of 1000", total)
	}
	large := []core.Event{event(11)}
	for range 1000 {
		large = append(large, event(12))
	}
	out = watchResponses(at{}, append(large, event(13)), 10, 13)
	for i, r := range out {
		want := uint64(11)
		if i == len(out)-1 {
			want = 13
		}
		if r.GetRevision() != want || r.GetMore() != (i < len(out)-1) {
			t.Errorf("response %d: at %d, more %v", i, r.GetRevision(), r.GetMore())
		}
	}
	if out := watchResponses(at{}, nil, 10, 40); len(out) != 1 || out[0].GetRevision() != 40 {
		t.Errorf("no events: %v", out)
	}
}

// sse is one stream of server-sent events.
type sse struct {
	t    *testing.T
	body *bufio.Reader
	id   string // as a browser remembers it
}

// sse opens the stream; last is what a browser remembers.
func (w *world) sse(query, last string) *sse {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url("/v1/watch"+query), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		w.t.Fatalf("%s: %v", query, res.Status)
	}
	s := &sse{t: w.t, body: bufio.NewReader(res.Body)}
	for s.id == "" {
		s.block()
	}
	return s
}

// block reads up to the next empty line.
func (s *sse) block() (event, data string) {
	s.t.Helper()
	for {
		line, err := s.body.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the events end: %v", err)
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "":
			if value == "" {
				return event, data
			}
		case "id":
			s.id = value
		case "event":
			event = value
		case "data":
			data = value
		}
	}
}

// next reads up to the next event.
func (s *sse) next() (event, data string) {
	s.t.Helper()
	for data == "" {
		event, data = s.block()
	}
	return event, data
}

func TestServerSentEventsResume(t *testing.T) {
	w := start(t)
	a := w.open("a", time.Minute)
	s := w.sse("?prefix=x/", "")
	g := a.acquire("x/1")
	a.acquire("y")
	event, data := s.next()
	if event != "granted" || !strings.Contains(data, `"lock":"x/1"`) || !strings.Contains(data, g.GetToken()) {
		t.Errorf("%s: %s", event, data)
	}
	// The page sleeps; meanwhile things happen; it comes back.
	a.release(g)
	g = a.acquire("x/2")
	back := w.sse("?prefix=x/&after_revision=1", s.id) // the browser repeats the address
	for _, want := range []string{"released x/1", "granted x/2"} {
		event, data := back.next()
		kind, lock, _ := strings.Cut(want, " ")
		if event != kind || !strings.Contains(data, lock) {
			t.Errorf("after the break: %s %s, want %s", event, data, want)
		}
	}
	if rev, err := strconv.ParseUint(back.id, 10, 64); err != nil || rev < uint64(w.node.Status().Revision) {
		t.Errorf("remembers %q, revision is %d", back.id, w.node.Status().Revision)
	}
	// Events of one revision: only the last carries the id.
	second := a.acquire("x/3")
	back.next()
	at := back.id
	if _, err := w.rpc.EndSession(t.Context(), connect.NewRequest(&holdfastv1.EndSessionRequest{Session: a.ref})); err != nil {
		t.Fatal(err)
	}
	first, _ := back.next()
	if first != "released" || back.id != at {
		t.Errorf("within a revision: %s, id %s, was %s (grants %d, %d)", first, back.id, at, g.GetNumber(), second.GetNumber())
	}
	if last, _ := back.next(); last != "released" || back.id == at {
		t.Errorf("at its end: %s, id %s", last, back.id)
	}
}

func TestServerSentEventsReload(t *testing.T) {
	w := start(t)
	w.overflow()
	s := w.sse("?after_revision=1", "")
	now := strconv.FormatUint(uint64(w.node.Status().Revision), 10)
	if s.id != now {
		t.Errorf("goes on from %s, want %s", s.id, now)
	}
	a := w.open("a", time.Minute) // an event that all watchers see
	if event, _ := s.next(); event != "opened" {
		t.Errorf("after the reload: %s (session %d)", event, a.ref.GetId())
	}
	// The reload itself is an event, so that a page is told.
	res, err := http.Get(w.url("/v1/watch?after_revision=1"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "event: reload\n" {
		t.Errorf("first line %q, %v", line, err)
	}
	for query, says := range map[string]string{
		"?lok=x": "unknown parameter", "?lock=a&lock=b": "2 times", "?lock=a&prefix=b": "exclude", "?after_revision=x": "a number",
		"?lock=%00": "control", "?lock=a;b": "bad query", "?after_revision=-1": "a number",
	} {
		if status, body := w.get("/v1/watch" + query); status != 400 || !strings.Contains(body, says) || !strings.Contains(body, "ErrorInfo") {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	if status, body := w.ask("GET", "/v1/watch", "", func(r *http.Request) { r.Header.Set("Last-Event-ID", "abc") }); status != 400 || !strings.Contains(body, "Last-Event-ID") {
		t.Errorf("bad Last-Event-ID: %d %s", status, body)
	}
}

// A poll's answer fits into a frame: it ends after a revision once it is large,
// and what one frame cannot hold at all is a reload.
func TestPollFitsIntoAFrame(t *testing.T) {
	w := start(t)
	a := w.open("a", time.Minute)
	poll := func(after uint64) (*holdfastv1.PollResponse, error) {
		res, err := w.rpc.Poll(t.Context(), connect.NewRequest(&holdfastv1.PollRequest{AfterRevision: after, WaitMs: 1000}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	now, err := poll(0)
	must(w, now, err)
	const puts = 1100
	for range puts {
		_, err := w.node.Do(t.Context(), core.Put{Lock: strings.Repeat("x", core.MaxLockName), Value: make([]byte, core.MaxValue)})
		if err != nil {
			t.Fatal(err)
		}
	}
	at, got := now.GetRevision(), 0
	for got < puts {
		r, err := poll(at)
		must(w, r, err)
		for i, e := range r.GetEvents() {
			if e.GetRevision() != at+uint64(i)+1 {
				t.Fatalf("event of revision %d after %d", e.GetRevision(), at+uint64(i))
			}
		}
		got += len(r.GetEvents())
		at = r.GetRevision()
	}
	// The end of one session is one revision.
	n := &testNode{Node: w.node, t: t}
	n.hold(core.SessionID(a.ref.GetId()), core.MaxPerSession, func(c *core.Acquire) {
		c.Lock += strings.Repeat("l", core.MaxLockName-len(c.Lock))
	})
	now, err = poll(0)
	must(w, now, err)
	n.do(core.End{ID: core.SessionID(a.ref.GetId())})
	r, err := poll(now.GetRevision())
	e := wire.FromError(err)
	if err == nil || e.Kind != driver.NotFound || wire.RemoteOf(e).Revision() <= now.GetRevision() {
		t.Errorf("%d events of one revision: %v", len(r.GetEvents()), err)
	}
}
