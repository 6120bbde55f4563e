package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// A message is one server-sent event.
type message struct{ name, id, data string }

// A listener reads one stream.
type listener struct {
	t        *testing.T
	status   int
	messages chan message // closed when the stream ends
	leave    context.CancelFunc
}

// listen opens a stream.
func (b *browser) listen(path string, change ...func(*http.Request)) *listener {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	for _, f := range change {
		f(req)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	l := &listener{t: b.t, status: res.StatusCode, messages: make(chan message, 1000), leave: cancel}
	go func() {
		defer close(l.messages)
		defer res.Body.Close()
		var m message
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				m.name = value
			case "id":
				m.id = value
			case "data":
				m.data = value
			case "":
				if m.data != "" {
					l.messages <- m
				}
				m = message{}
			}
		}
	}()
	b.t.Cleanup(cancel)
	return l
}

// next waits for the next message with the name; ok is false at the end.
func (l *listener) next(name string) (m message, ok bool) {
	l.t.Helper()
	late := time.After(patience)
	for {
		select {
		case m, ok = <-l.messages:
			if !ok || m.name == name {
				return m, ok
			}
		case <-late:
			l.t.Fatalf("no message %q came", name)
		}
	}
}

// end waits for the end of the stream.
func (l *listener) end() {
	l.t.Helper()
	if m, ok := l.next("?"); ok {
		l.t.Fatalf("%+v", m)
	}
}

func (p *page) stream() *listener { return p.listen(p.path("/events")) }
func (p *page) watch() *listener  { return p.listen(p.path("/service/v1/watch?lock=invoices")) }

// Two pages have nothing in common: numbers, workers, ledgers.
func TestTwoWorldsDoNotMix(t *testing.T) {
	t.Parallel()
	b := open(t)
	one, two := b.newPage(""), b.newPage("")
	if one.world == two.world {
		t.Fatal("one world for two pages")
	}
	for _, p := range []*page{one, two} {
		if a := p.holds(workerA); a.Token != 33 {
			t.Errorf("A draws %d", a.Token)
		}
		p.act(doWrite, workerA)
	}
	one.act(doKill, workerA)
	two.act(doRelease, workerA)
	if a := two.holds(workerB); a.Token != 34 {
		t.Errorf("B draws %d", a.Token)
	}
	one.hear()
	if strings.Contains(fmt.Sprint(one.events), " 34") {
		t.Errorf("one world heard of the other: %v", one.events)
	}
	pids := map[int]bool{}
	for _, p := range []*page{one, two} {
		for _, e := range p.events {
			if e.Kind == kindStarted {
				if pids[e.PID] {
					t.Errorf("process %d works in two worlds", e.PID)
				}
				pids[e.PID] = true
			}
		}
	}
	// One world's name opens nothing of the other's.
	if status, _, _ := b.ask("DELETE", one.path(""), ""); status != http.StatusNoContent {
		t.Errorf("delete: %d", status)
	}
	two.act(doWrite, workerB)
	for _, path := range []string{"/events", "/log"} {
		if status, _, text := b.ask("GET", one.path(path), ""); status != http.StatusNotFound || !strings.Contains(text, "has ended: it was deleted") {
			t.Errorf("%s of an ended world: %d %s", path, status, text)
		}
	}
	if status, _, text := one.tryAct(`{"do":"acquire","worker":"A"}`); status != http.StatusNotFound || text == "" {
		t.Errorf("act in an ended world: %d %s", status, text)
	}
	if status, _, _ := b.ask("POST", two.path("/end"), "", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }); status != http.StatusNoContent {
		t.Errorf("end: %d", status)
	}
	eventually(t, "an empty directory", func() bool {
		left, err := os.ReadDir(b.lab.dir)
		return err == nil && len(left) == 1 // what marks it as one that may be removed
	})
}

// There are eight worlds. The ninth waits until one has no page.
func TestTheNinthWorld(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *Config) {
		c.InProcess = true
		c.hooks.pageWithin, c.hooks.pageIdle = 5*time.Minute, 24*time.Hour
	})
	var pages []*page
	for range maxWorlds {
		pages = append(pages, b.newPage(""))
	}
	status, _, text := b.ask("POST", "/lab/v1/worlds", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "all 8 worlds are in use") {
		t.Fatalf("the ninth: %d %s", status, text)
	}
	// The third has not been looked at for longest; the first has a stream.
	stream := pages[0].stream()
	if _, ok := stream.next(""); !ok {
		t.Fatal("no stream")
	}
	b.lab.worlds.mu.Lock()
	for i, p := range pages {
		at := b.lab.worlds.mu.alive[p.world]
		at.page = at.page.Add(-time.Hour)
		if i == 2 {
			at.page = at.page.Add(-time.Hour)
		}
	}
	b.lab.worlds.mu.Unlock()
	pages[1].hear() // it polls
	b.newPage("")
	if status, _, text := b.ask("GET", pages[2].path("/events"), ""); status != http.StatusNotFound || !strings.Contains(text, "its place was needed") {
		t.Errorf("the third: %d %s", status, text)
	}
	for _, i := range []int{0, 1, 3, 4, 5, 6, 7} {
		if status, _, _ := b.ask("HEAD", pages[i].path("/log"), ""); status != http.StatusOK {
			t.Errorf("world %d: %d", i, status)
		}
	}
}

// A world ends when no page looks at it, and when nothing is done in it.
func TestIdleWorldsEnd(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *Config) {
		c.InProcess = true
		c.hooks.tidyEvery, c.hooks.pageIdle, c.Idle = 10*time.Millisecond, 2*time.Second, 5*time.Second
	})
	forsaken, watched := b.newPage(""), b.newPage("")
	stream := watched.stream()
	eventually(t, "the end of the world that nobody looks at", func() bool {
		status, _, text := b.ask("GET", forsaken.path("/log"), "")
		return status == http.StatusNotFound && strings.Contains(text, "no page has looked at it for 2 seconds")
	})
	m, ok := stream.next("end")
	if !ok || !strings.Contains(m.data, "nothing was done in it for 5 seconds") {
		t.Errorf("the end: %+v", m)
	}
	stream.end()
}

// Of a stream that broke, a page gets the rest; a stream tells the time.
func TestStreams(t *testing.T) {
	t.Parallel()
	p := open(t).newPage(`{"ttlMs":10000}`)
	stream := p.stream()
	first, ok := stream.next("")
	var e seen
	if err := json.Unmarshal([]byte(first.data), &e); err != nil || !ok || e.Kind != kindRound || first.id != "1" {
		t.Fatalf("first: %+v", first)
	}
	var at struct{ AtMS float64 }
	for last := -1.0; at.AtMS < 1500; last = at.AtMS {
		m, _ := stream.next("clock")
		if err := json.Unmarshal([]byte(m.data), &at); err != nil || at.AtMS <= last || m.id != "" {
			t.Fatalf("clock: %+v after %v", m, last)
		}
	}
	stream.leave()
	p.holds(workerA)
	p.act(doRelease, workerA)

	again := p.listen(p.path("/events?after=0"), func(r *http.Request) { r.Header.Set("Last-Event-ID", "3") })
	for want := uint64(4); want <= p.last; want++ {
		m, _ := again.next("")
		if err := json.Unmarshal([]byte(m.data), &e); err != nil || e.Seq != want || m.id != fmt.Sprint(want) {
			t.Fatalf("event %d: %+v", want, m)
		}
	}
	// The new round comes on the same stream, and to whoever knew the old one.
	old := p.last
	p.acts(`{"do":"reset"}`)
	for e.Kind != kindRound {
		m, _ := again.next("")
		if err := json.Unmarshal([]byte(m.data), &e); err != nil || e.Round == 0 && e.Seq <= old {
			t.Fatalf("%+v", m)
		}
	}
	if e.Seq <= old || e.Round != 2 {
		t.Errorf("the new round: %+v", e)
	}
	for _, after := range []string{"", "2", fmt.Sprint(old), "999999"} {
		status, _, body := p.ask("GET", p.path("/events?after="+after), "")
		var now struct{ Events []seen }
		if err := json.Unmarshal([]byte(body), &now); err != nil || status != 200 || len(now.Events) == 0 || now.Events[0].Kind != kindRound {
			t.Errorf("after %q: %d %s", after, status, body)
		}
	}
	// Nothing of the old round comes: its workers are dead, its service is gone.
	p.hear()
	if got := fmt.Sprint(p.events); strings.Contains(got, kindEnded) || strings.Contains(got, kindKilled) {
		t.Errorf("after the reset: %s", got)
	}
	if status, _, _ := p.ask("DELETE", p.path(""), ""); status != 204 {
		t.Errorf("delete: %d", status)
	}
	if m, ok := again.next("end"); !ok || !strings.Contains(m.data, "it was deleted") {
		t.Errorf("end: %+v", m)
	}
	again.end()
}

// Two worlds stream. A third one makes the first poll, with both its streams;
// who polls pushes nobody out, and streams again when there is room.
func TestTwoWorldsStream(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *Config) { c.InProcess = true })
	var pages []*page
	var streams, watches []*listener
	for range 3 {
		p := b.newPage("")
		pages = append(pages, p)
		streams = append(streams, p.stream())
		watches = append(watches, p.watch())
	}
	if m, ok := streams[0].next("poll"); !ok || !strings.Contains(m.data, "poll") {
		t.Errorf("the first is told %+v", m)
	}
	streams[0].end()
	watches[0].end()
	if pages[0].hear() {
		t.Error("the first may stream while two others do")
	}
	again := pages[0].stream()
	if m, ok := again.next("poll"); !ok {
		t.Errorf("the first comes back: %+v", m)
	}
	again.end()
	if l := pages[0].watch(); l.status != http.StatusServiceUnavailable {
		t.Errorf("the first watches: %d", l.status)
	}
	for i := 1; i < 3; i++ {
		if !pages[i].hear() {
			t.Errorf("page %d may not stream, and does", i)
		}
		if _, ok := streams[i].next("clock"); !ok {
			t.Errorf("page %d was cut off", i)
		}
	}
	streams[1].leave()
	watches[1].leave()
	eventually(t, "room for the first", func() bool { return pages[0].hear() })
	if _, ok := pages[0].stream().next("clock"); !ok {
		t.Error("the first does not stream")
	}
	for i := range maxStreams + 1 {
		want := 200
		if i >= maxStreams-1 { // one is open
			want = http.StatusTooManyRequests
		}
		if l := pages[2].stream(); l.status != want {
			t.Errorf("stream %d of one world: %d, want %d", i+2, l.status, want)
		}
	}
}

// The service of a world is a real one, reached by its public API.
func TestTheServiceOfAWorld(t *testing.T) {
	t.Parallel()
	p := open(t).newPage("")
	watch := p.watch()
	if watch.status != 200 {
		t.Fatalf("watch: %d", watch.status)
	}
	a := p.holds(workerA)
	if m, ok := watch.next("granted"); !ok || !strings.Contains(m.data, `"worker A"`) {
		t.Errorf("the watch tells %+v", m)
	}
	status, header, body := p.ask("POST", p.path("/service/holdfast.v1.LockService/GetLock"), `{"lock":"invoices"}`)
	var got struct {
		Lock struct {
			Holders []struct{ Label, TokenNumber, Grant string }
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || len(got.Lock.Holders) != 1 || got.Lock.Holders[0].TokenNumber != fmt.Sprint(a.Token) {
		t.Fatalf("GetLock: %d %s", status, body)
	}
	if header.Get("Content-Type") != "application/json" || header.Get("Content-Security-Policy") != policy {
		t.Errorf("GetLock's header: %v", header)
	}
	// The world is its owner's: operator calls go through as well.
	status, _, body = p.ask("POST", p.path("/service/holdfast.v1.LockService/RevokeGrant"), fmt.Sprintf(`{"lock":"invoices","grant":%q,"now":true}`, got.Lock.Holders[0].Grant))
	if status != 200 {
		t.Errorf("RevokeGrant: %d %s", status, body)
	}
	if e := p.await(a.Seq, kindServiceFreed, workerA); e.Cause != "operator" {
		t.Errorf("freed: %+v", e)
	}
	p.await(a.Seq, kindLost, workerA)
	// An error of the service is passed on as it is.
	if status, _, body := p.ask("POST", p.path("/service/holdfast.v1.LockService/GetLock"), `{"lok":"x"}`); status != 400 || !strings.Contains(body, "lok") {
		t.Errorf("a bad call: %d %s", status, body)
	}
	// A reset takes the streams of the old service with it.
	p.acts(`{"do":"reset"}`)
	watch.end()
	if l := p.watch(); l.status != 200 {
		t.Errorf("watch of the new round: %d", l.status)
	}
}

// The log of a round is a file.
func TestTheLog(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *Config) { c.InProcess = true }).newPage(`{"values":{"A":"</script>"}}`)
	p.holds(workerA)
	status, header, body := p.ask("GET", p.path("/log"), "")
	var log struct {
		Format   string
		Settings struct {
			TTLMS  int64
			Values map[string]string
		}
		Events []seen
	}
	if err := json.Unmarshal([]byte(body), &log); err != nil || status != 200 {
		t.Fatalf("%d %v %s", status, err, body)
	}
	if log.Format != logFormat || log.Settings.TTLMS != 4000 || log.Settings.Values["A"] != "</script>" || len(log.Events) < 5 || log.Events[0].Kind != kindRound {
		t.Errorf("%s", body)
	}
	if d := header.Get("Content-Disposition"); !strings.HasPrefix(d, `attachment; filename="holdfast-lab-20`) {
		t.Errorf("Content-Disposition: %s", d)
	}
}

// A round has so many events; then it says so, and only a reset helps.
func TestAFullJournal(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *Config) { c.InProcess, c.hooks.journalKeeps = true, 20 }).newPage("")
	for i := 0; ; i++ {
		if status, _, text := p.tryAct(fmt.Sprintf(`{"do":"value","worker":"A","value":"%d"}`, i)); status == http.StatusConflict {
			if !strings.Contains(text, "reset") || i > 20 {
				t.Errorf("after %d: %s", i, text)
			}
			break
		}
	}
	p.hear()
	last := p.events[len(p.events)-1]
	if len(p.events) != 20 || last.Kind != kindError || last.Who != whoLab || !strings.Contains(last.Text, "reset") {
		t.Errorf("%d events, the last %v", len(p.events), last)
	}
	p.acts(`{"do":"reset"}`)
	p.acts(`{"do":"value","worker":"A","value":"goes on"}`)
}
