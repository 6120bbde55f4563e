package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/lab/stage"
)

// What the test binary is, if its first argument says so.
const (
	asWorker  = "lab-worker"
	asSweeper = "lab-sweeper"
	asLab     = "lab"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case asWorker:
			var spec stage.WorkerSpec
			if spec, err = stage.ParseWorkerSpec(os.Args[2]); err == nil {
				err = stage.RunWorker(context.Background(), spec, os.Stdin, os.Stdout)
			}
		case asSweeper:
			err = stage.Sweep(context.Background(), os.Args[2], os.Stdin)
		case asLab:
			err = serveForEver()
		default:
			os.Exit(m.Run())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testConfig is a lab's whose workers are processes of the test binary.
func testConfig() Config {
	return Config{
		WorkerCommand: []string{os.Args[0], asWorker}, SweeperCommand: []string{os.Args[0], asSweeper},
		Logger: slog.New(slog.DiscardHandler), hooks: hooks{patience: patience},
	}
}

// serveForEver is a process whose only end is a signal.
func serveForEver() error {
	l, err := Start(context.Background(), testConfig())
	if err != nil {
		return err
	}
	fmt.Println(l.URL())
	return l.Wait()
}

// patience is how long a test waits for what must come. It is no measure of
// anything: machines are slow.
const patience = 30 * time.Second

// eventually polls until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("within %v: %s did not come to be", patience, what)
		}
	}
}

// A browser speaks to one lab.
type browser struct {
	t   *testing.T
	lab *Lab
	url string // without a path
}

// open starts a lab of the test's own.
func open(t *testing.T, change ...func(*Config)) *browser {
	t.Helper()
	cfg := testConfig()
	for _, f := range change {
		f(&cfg)
	}
	l, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return &browser{t: t, lab: l, url: "http://" + l.Addr()}
}

// ask sends one request and returns the answer's status, header and body.
func (b *browser) ask(method, path, body string, change ...func(*http.Request)) (int, http.Header, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(req)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

// A seen is an event as a page sees it.
type seen struct {
	Seq       uint64            `json:"seq"`
	AtMS      float64           `json:"atMs"`
	Kind      string            `json:"kind"`
	Who       string            `json:"who"`
	Round     int               `json:"round"`
	TTLMS     int64             `json:"ttlMs"`
	Compare   *bool             `json:"compare"`
	On        *bool             `json:"on"`
	Signals   *bool             `json:"signals"`
	Values    map[string]string `json:"values"`
	Mark      uint64            `json:"mark"`
	LastToken uint64            `json:"lastToken"`
	Earlier   []earlierLine     `json:"earlier"`
	Lines     json.RawMessage   `json:"lines"`
	Service   string            `json:"service"`
	PID       int               `json:"pid"`
	Value     string            `json:"value"`
	Token     uint64            `json:"token"`
	LeftMS    *float64          `json:"leftMs"`
	TookMS    *float64          `json:"tookMs"`
	Poised    *bool             `json:"poised"`
	PausedMS  *float64          `json:"pausedMs"`
	Line      int64             `json:"line"`
	Basis     int64             `json:"basis"`
	Text      string            `json:"text"`
	Texts     []string          `json:"texts"`
	Worker    string            `json:"worker"`
	Cause     string            `json:"cause"`
	TTLLeftMS *float64          `json:"ttlLeftMs"`
}

func (e seen) String() string {
	text := fmt.Sprintf("%d %s %s", e.Seq, e.Who, e.Kind)
	if e.Token != 0 {
		text += fmt.Sprintf(" %d", e.Token)
	}
	return text + " " + e.Text
}

// A page is one world and what was heard of it by polling.
type page struct {
	*browser
	world  string
	events []seen // of the present round
	last   uint64
}

// newPage makes a world with the given settings.
func (b *browser) newPage(settings string) *page {
	b.t.Helper()
	status, _, body := b.ask("POST", "/lab/v1/worlds", settings)
	var made struct {
		World string
		State seen
	}
	if err := json.Unmarshal([]byte(body), &made); err != nil || status != http.StatusCreated {
		b.t.Fatalf("no world: %d %s", status, body)
	}
	if len(made.World) < 26 || made.State.Kind != kindRound || made.State.Seq != 1 {
		b.t.Fatalf("an odd world: %s", body)
	}
	return &page{browser: b, world: made.World}
}

func (p *page) path(rest string) string { return "/lab/v1/worlds/" + p.world + rest }

// hear polls once.
func (p *page) hear() (streams bool) {
	p.t.Helper()
	status, _, body := p.ask("GET", p.path(fmt.Sprintf("/events?after=%d", p.last)), "")
	var now struct {
		NowMS   *float64
		Streams bool
		Events  []seen
	}
	if err := json.Unmarshal([]byte(body), &now); err != nil || status != http.StatusOK || now.NowMS == nil {
		p.t.Fatalf("poll: %d %s %v", status, body, err)
	}
	for _, e := range now.Events {
		if e.Kind == kindRound {
			p.events, p.last = nil, 0
		}
		if p.last != 0 && e.Seq != p.last+1 {
			p.t.Fatalf("event %d after %d", e.Seq, p.last)
		}
		p.events, p.last = append(p.events, e), e.Seq
	}
	return now.Streams
}

// tryAct asks for an action.
func (p *page) tryAct(body string) (status int, seq uint64, text string) {
	p.t.Helper()
	status, _, answer := p.ask("POST", p.path("/actions"), body)
	var a struct {
		Seq   uint64
		Error string
	}
	if err := json.Unmarshal([]byte(answer), &a); err != nil {
		p.t.Fatalf("%s: %d %q: %v", body, status, answer, err)
	}
	return status, a.Seq, a.Error
}

// act asks for an action that must be done, and hears what it caused.
func (p *page) act(do, worker string) uint64 {
	p.t.Helper()
	return p.acts(fmt.Sprintf(`{"do":%q,"worker":%q}`, do, worker))
}

func (p *page) acts(body string) uint64 {
	p.t.Helper()
	status, seq, text := p.tryAct(body)
	if status != http.StatusOK {
		p.t.Fatalf("%s: %d %s; so far: %v", body, status, text, p.events)
	}
	p.hear()
	if p.last < seq {
		p.t.Fatalf("%s caused event %d, and the journal ends at %d", body, seq, p.last)
	}
	return seq
}

// refused asks for an action that must not be done now.
func (p *page) refused(do, worker, says string) {
	p.t.Helper()
	status, _, text := p.tryAct(fmt.Sprintf(`{"do":%q,"worker":%q}`, do, worker))
	if status != http.StatusConflict || !strings.Contains(text, says) {
		p.t.Errorf("%s %s: %d %q, want 409 and %q", do, worker, status, text, says)
	}
}

// await waits until an event of the round after number from satisfies ok.
func (p *page) await(from uint64, kind, who string) seen {
	p.t.Helper()
	var found seen
	eventually(p.t, fmt.Sprintf("%s of %s after %d in world %v", kind, who, from, p.world), func() bool {
		p.hear()
		for _, e := range p.events {
			if e.Seq > from && e.Kind == kind && (e.Who == who || e.Worker == who) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// holds has a worker acquire the lock, and waits until it holds.
func (p *page) holds(worker string) seen {
	p.t.Helper()
	p.hear()
	from := p.last
	p.act(doAcquire, worker)
	return p.await(from, kindAcquired, worker)
}

// kinds are the kinds of a worker's events, without those that come by
// themselves.
func (p *page) kinds(from uint64, who string) string {
	var b bytes.Buffer
	for _, e := range p.events {
		if e.Seq > from && e.Who == who && e.Kind != kindPulse {
			fmt.Fprintf(&b, "%s ", e.Kind)
		}
	}
	return strings.TrimSpace(b.String())
}
