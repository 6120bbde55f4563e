package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
)

// topPause is the least time between two looks at the service, whatever
// happens; after a look that took long it is several times that.
const topPause = 500 * time.Millisecond

// A topScreen is a live picture: one goroutine turns the model, and others, which
// touch nothing of it, read keys, ask the service and count events.
type topScreen struct {
	term   *topTerminal
	client *cluster.Client
	line   *outage
	model  *topModel
	rates  *topRates
	colour bool
	every  time.Duration

	leaderOf leaderAsker

	shown   []string // what is on the terminal
	queries chan topQuery
	answers chan topAnswer
	broken  chan error // a goroutine of ours failed
	looking bool
	looked  time.Time // when the last look came back
	moved   bool      // events came since

	workers sync.WaitGroup
	quit    context.CancelFunc
	unwatch context.CancelFunc
	watched string
}

// topHook is for tests: it is called before each picture.
var topHook = func(*topModel) {}

// topLive shows the picture until it is ended.
func topLive(cmd *cobra.Command, f *topFlags, term *topTerminal) error {
	servers, err := serverList(cmd)
	if err != nil {
		return err
	}
	news := &topNews{}
	line := &outage{w: news}
	cmd.SetErr(news) // whatever speaks from now on has no other place
	client, err := dialBy(cmd, line.dial)
	if err != nil {
		return err
	}
	defer closeClient(client)
	defer line.end()
	ctx, interrupted, stop := notifyEnd(cmd.Context())
	defer stop()
	ctx, quit := context.WithCancel(ctx)
	s := &topScreen{
		term: term, client: client, line: line, model: newTopModel(f), rates: newTopRates(time.Now()),
		colour: os.Getenv("NO_COLOR") == "", every: f.interval, quit: quit,
		leaderOf: func(ctx context.Context, address string) (*cluster.ClusterStatus, error) {
			return askServer(cmd, ctx, address, cluster.ClusterStatusOptions{})
		},
		queries: make(chan topQuery, 1), answers: make(chan topAnswer, 1), broken: make(chan error, 4),
	}
	s.model.line.server = servers
	// The terminal comes first, even if this panics; the rest may take a while.
	defer s.end()
	err = s.run(ctx, news)
	term.stop()
	if interrupted() != 0 {
		return nil
	}
	return err
}

// end gives the terminal back, and ends the goroutines.
func (s *topScreen) end() {
	s.term.stop()
	s.quit()
	s.workers.Wait()
}

// topNews takes what an outage says.
type topNews struct {
	mu    sync.Mutex
	text  string
	since time.Time
}

// Write implements io.Writer.
func (n *topNews) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text, n.since = strings.TrimSpace(strings.TrimPrefix(string(p), "holdfast: ")), time.Now()
	return len(p), nil
}

// now is how the line stands.
func (n *topNews) now(line *outage, server string) topLine {
	line.mu.Lock()
	lost := line.told
	line.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	return topLine{server: server, lost: lost, text: n.text, since: n.since}
}

// goes starts a goroutine whose panic gives the terminal back first.
func (s *topScreen) goes(fn func()) {
	defer func() {
		if r := recover(); r != nil {
			select {
			case s.broken <- fmt.Errorf("panic: %v\n%s", r, debug.Stack()):
			default:
			}
		}
	}()
	fn()
}

func (s *topScreen) run(ctx context.Context, news *topNews) error {
	signals := make(chan os.Signal, 8)
	for _, sig := range []os.Signal{syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	defer signal.Stop(signals)
	s.term.guard = s.goes
	if err := s.term.start(); err != nil {
		return unreadable(err)
	}
	s.workers.Go(func() { s.goes(func() { s.ask(ctx) }) })
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		s.watch(ctx)
		s.model.line = news.now(s.line, s.model.line.server)
		s.draw()
		s.look()
		select {
		case <-ctx.Done():
			return nil
		case sig := <-signals:
			if err := s.signal(sig); err != nil {
				return unreadable(err)
			}
		case k := <-s.term.keys:
			if k.name == "redraw" {
				s.shown = nil
			}
			if s.model.key(k) {
				return nil
			}
		case a := <-s.answers:
			s.looking, s.looked = false, time.Now()
			s.model.take(a)
		case <-s.rates.poke:
			s.moved = true
		case <-tick.C:
		case err := <-s.term.gone:
			return unreadable(err)
		case err := <-s.broken:
			s.term.stop()
			panic(err)
		}
	}
}

// unreadable is how top ends whose terminal has gone.
func unreadable(err error) error {
	return withCode(exitSignal+int(syscall.SIGHUP), fmt.Errorf("the terminal has gone: %w", err))
}

// signal does what the terminal's signals say.
func (s *topScreen) signal(sig os.Signal) error {
	s.shown = nil
	switch sig {
	case syscall.SIGTSTP:
		return s.term.suspend()
	case syscall.SIGCONT:
		return s.term.start()
	}
	return nil
}

// draw brings what has changed to the terminal. A terminal that does not keep up
// gets the next picture instead.
func (s *topScreen) draw() {
	topHook(s.model)
	w, h := s.term.size()
	s.model.layout(h)
	if s.term.behind() {
		return
	}
	now := time.Now()
	s.model.rate = s.rates.rate(now)
	lines := s.model.draw(w, h, now, s.colour)
	if s.shown == nil {
		s.term.write("\x1b[m\x1b[2J")
	}
	if text := changed(s.shown, lines); text != "" {
		s.term.write(text)
	}
	s.shown = lines
}

// look asks the service if it is time to.
func (s *topScreen) look() {
	if s.looking {
		return
	}
	q, since := s.model.query(), time.Since(s.looked)
	had := s.model.answer.query
	due := s.every
	switch {
	case s.model.fault != "":
		due = topPause
	case !s.model.current() || q.detail != had.detail || q.places > had.places, q.sort == byName && q.rows != had.rows:
		due = 0
	case s.moved:
		due = max(topPause, 5*s.model.answer.took)
	}
	if since < due {
		return
	}
	s.moved, s.looking, s.model.asked = false, true, time.Now()
	s.queries <- q
}

// ask answers questions until ctx ends.
func (s *topScreen) ask(ctx context.Context) {
	for {
		select {
		case q := <-s.queries:
			a := q.look(ctx, s.client, s.leaderOf)
			if ctx.Err() == nil {
				s.answers <- a
			}
		case <-ctx.Done():
			return
		}
	}
}

// watch counts the events of the prefix that is shown.
func (s *topScreen) watch(ctx context.Context) {
	if s.unwatch != nil && s.watched == s.model.prefix {
		return
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	s.rates.reset(time.Now())
	ctx, s.unwatch = context.WithCancel(ctx)
	s.watched = s.model.prefix
	prefix := s.watched
	s.workers.Go(func() { s.goes(func() { s.rates.follow(ctx, s.client, prefix) }) })
}
