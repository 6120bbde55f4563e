package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// maxWorlds is how many worlds live at a time.
	maxWorlds = 8
	// maxStreaming is how many worlds may stream at a time. A browser opens
	// six connections to one host, over all its tabs, and a page needs two
	// for its streams.
	maxStreaming = 2
	// maxStreams is how many streams of each sort one world has at most.
	maxStreams = 4
	// remembered is how many ended worlds are known, to say why they ended.
	remembered = 256
)

// A streamSort says what a stream tells.
type streamSort int

const (
	ofJournal streamSort = iota
	ofService
)

// errPoll ends a stream: its world is to poll from now on.
var errPoll = errors.New("another page streams now, and a browser has connections for two pages only: poll, until streams is true")

// worlds knows which worlds live, who looks at them, and which of them stream.
type worlds struct {
	pageWithin time.Duration // a world without a page for so long may go when there is no room
	pageIdle   time.Duration // a world without a page for so long ends
	idle       time.Duration // a world in which nothing was done for so long ends

	// living are the worlds whose goroutines run, or will.
	living sync.WaitGroup

	mu struct {
		sync.Mutex
		alive  map[string]*place
		making int // worlds that are being made
		// streaming are the worlds with open streams, the oldest first.
		streaming []*place
		ended     map[string]string // why, by world
		order     []string          // of ended, the oldest first
		closed    bool
	}
}

// A place is what is known of one living world here. worlds.mu guards it.
type place struct {
	world   *world
	page    time.Time // when a page was last seen; while one streams, that is now
	action  time.Time // when the visitor last did something
	streams map[*stream]struct{}
	polls   bool // it was told to poll, and may not push another one out
}

// A stream is one answer that stays open.
type stream struct {
	sort streamSort
	end  context.CancelCauseFunc
}

func newWorlds(cfg Config) *worlds {
	l := &worlds{pageWithin: cfg.hooks.pageWithin, pageIdle: cfg.hooks.pageIdle, idle: cfg.Idle}
	l.mu.alive, l.mu.ended = map[string]*place{}, map[string]string{}
	return l
}

// reserve makes room for a world, if need be by ending the one that has been
// without a page for the longest. The caller makes the world and calls settle.
func (l *worlds) reserve() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return refusef(http.StatusServiceUnavailable, "the lab is stopping")
	}
	if len(l.mu.alive)+l.mu.making >= maxWorlds {
		left := l.forsaken(l.pageWithin)
		if left == nil {
			return refusef(http.StatusServiceUnavailable, "all %d worlds are in use: close another page of this lab, and reload", maxWorlds)
		}
		l.remove(left, "nobody looked at it, and its place was needed")
	}
	l.mu.making++
	l.living.Add(1)
	return nil
}

// settle sets a world going in the place that was reserved; nil gives the place up.
// If the lab was closed meanwhile, the world is ended.
func (l *worlds) settle(w *world) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.making--
	if w == nil {
		l.living.Done()
		return nil
	}
	go func() {
		w.run()
		l.living.Done()
	}()
	if l.mu.closed {
		w.end("the lab is stopping")
		return refusef(http.StatusServiceUnavailable, "the lab is stopping")
	}
	l.mu.alive[w.id] = &place{world: w, page: time.Now(), action: time.Now(), streams: map[*stream]struct{}{}}
	return nil
}

// forsaken returns the world that no page has looked at for the longest, and
// at least for d; nil if there is none.
func (l *worlds) forsaken(d time.Duration) *place {
	var found *place
	for _, p := range l.mu.alive {
		if len(p.streams) == 0 && time.Since(p.page) >= d && (found == nil || p.page.Before(found.page)) {
			found = p
		}
	}
	return found
}

// remove ends a world. The lock is held.
func (l *worlds) remove(p *place, why string) {
	delete(l.mu.alive, p.world.id)
	l.mu.streaming = slices.DeleteFunc(l.mu.streaming, func(o *place) bool { return o == p })
	l.mu.ended[p.world.id] = why
	l.mu.order = append(l.mu.order, p.world.id)
	if len(l.mu.order) > remembered {
		delete(l.mu.ended, l.mu.order[0])
		l.mu.order = l.mu.order[1:]
	}
	p.world.end(why)
}

// get returns a living world, or says that there is none, and why.
func (l *worlds) get(id string) (*world, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.find(id)
	if err != nil {
		return nil, err
	}
	return p.world, nil
}

// find runs with the lock held.
func (l *worlds) find(id string) (*place, error) {
	if p := l.mu.alive[id]; p != nil {
		return p, nil
	}
	if why, ok := l.mu.ended[id]; ok {
		return nil, refusef(http.StatusNotFound, "this world has ended: %s; reload the page to get a new one", why)
	}
	return nil, refusef(http.StatusNotFound, "there is no world %q: it has ended, or its address is mistyped; reload the page to get a new one", clip(id))
}

// end ends a world, if it lives.
func (l *worlds) end(id, why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.find(id)
	if err == nil {
		l.remove(p, why)
	}
	return err
}

// acted notes that the visitor did something.
func (l *worlds) acted(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.mu.alive[id]; p != nil {
		p.action = time.Now()
	}
}

// polled notes that a page polls, and reports whether it may stream.
func (l *worlds) polled(id string) (mayStream bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.mu.alive[id]
	if p == nil {
		return false
	}
	p.page = time.Now()
	return slices.Contains(l.mu.streaming, p) || len(l.mu.streaming) < maxStreaming
}

// attach opens a stream of a world; its context ends when the stream must. If
// too many worlds stream, the one that has done so for the longest is told to
// poll; but one that was told so pushes nobody out in turn.
func (l *worlds) attach(ctx context.Context, id string, sort streamSort) (_ context.Context, detach func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.find(id)
	if err != nil {
		return nil, nil, err
	}
	in := slices.Contains(l.mu.streaming, p)
	if p.polls && !in && len(l.mu.streaming) >= maxStreaming {
		return nil, nil, errPoll
	}
	same := 0
	for s := range p.streams {
		if s.sort == sort {
			same++
		}
	}
	if same >= maxStreams {
		return nil, nil, refusef(http.StatusTooManyRequests, "this world has %d such streams open: close one", maxStreams)
	}
	if !in {
		l.mu.streaming = append(l.mu.streaming, p)
	}
	if len(l.mu.streaming) > maxStreaming {
		l.quiet(l.mu.streaming[0])
	}
	p.polls = false
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stream{sort: sort, end: cancel}
	p.streams[s] = struct{}{}
	return ctx, func() { l.detach(p, s) }, nil
}

// quiet closes the streams of a world and has it poll. The lock is held.
func (l *worlds) quiet(p *place) {
	l.mu.streaming = slices.DeleteFunc(l.mu.streaming, func(o *place) bool { return o == p })
	p.polls = true
	for s := range p.streams {
		s.end(errPoll)
	}
}

func (l *worlds) detach(p *place, s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.end(nil)
	delete(p.streams, s)
	p.page = time.Now()
	if len(p.streams) == 0 {
		l.mu.streaming = slices.DeleteFunc(l.mu.streaming, func(o *place) bool { return o == p })
	}
}

// tidy ends the worlds that nobody uses.
func (l *worlds) tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := l.forsaken(l.pageIdle); p != nil; p = l.forsaken(l.pageIdle) {
		l.remove(p, "no page has looked at it for "+spoken(l.pageIdle))
	}
	for _, p := range l.mu.alive {
		if time.Since(p.action) >= l.idle {
			l.remove(p, "nothing was done in it for "+spoken(l.idle))
		}
	}
}

// spoken is a duration as people say it.
func spoken(d time.Duration) string {
	if d >= 2*time.Minute && d%time.Minute == 0 {
		return fmt.Sprintf("%d minutes", d/time.Minute)
	}
	return fmt.Sprintf("%g seconds", d.Seconds())
}

// close ends all worlds, and takes no more.
func (l *worlds) close(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
	for _, p := range l.mu.alive {
		l.remove(p, why)
	}
}
