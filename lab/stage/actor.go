package stage

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Worker is one worker, as whoever directs it sees it. Its methods may be
// called from any goroutine. It is ended by Kill, or by the end of the context
// with which it was started; one of both must come, or a goroutine stays.
type Worker interface {
	// PID is its process ID; 0 if it has no process of its own.
	PID() int
	// Tell gives it words, in order, and does not wait until they are done.
	// It may be told while it stands still. It fails if the worker has
	// ended, or leaves more words lying than is sensible.
	Tell(words ...string) error
	// Freeze makes it stand still at whatever it does, and returns when it
	// does: it says nothing, does nothing, and renews nothing until Thaw. If
	// ctx ends before that, it goes on. What it said before has then been
	// read from Said, unless the reader is slow.
	Freeze(ctx context.Context) error
	// Thaw lets it go on.
	Thaw() error
	// Kill ends it at once, also while it stands still, and waits for its
	// end. It takes leave of nobody: what it holds is held until its lease
	// has run out. What it had said before still comes.
	Kill()
	// Said gives what it says, in order. The channel is closed when it has
	// ended and all is said; [SaidEnded] comes last if nobody ended it. A
	// worker does not wait for the reader: pulses that nobody reads are
	// dropped.
	Said() <-chan Said
}

// errGone is wrapped by what cannot be done to a worker that has ended.
var errGone = errors.New("the worker has ended")

// mostUnread is how many things a worker may have said that nobody has read,
// before its pulses are dropped. All else answers a word, so whoever tells it
// words bounds it.
const mostUnread = 256

// sayings hold what a worker said until it is read.
type sayings struct {
	to chan Said

	mu     sync.Mutex
	queue  []Said
	taken  bool // the pump has some of it
	closed bool
	more   chan struct{} // has room for one
}

// newSayings passes on what is put into it until close, or until ctx ends and
// nobody reads any more.
func newSayings(ctx context.Context) *sayings {
	q := &sayings{to: make(chan Said), more: make(chan struct{}, 1)}
	go q.pump(ctx)
	return q
}

func (q *sayings) put(s Said) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || (len(q.queue) >= mostUnread && s.Event == SaidPulse) {
		return
	}
	q.queue = append(q.queue, s)
	q.wake()
}

func (q *sayings) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake()
}

// slowReader is how long handed waits for the reader.
const slowReader = 50 * time.Millisecond

// handed waits until all that was put has been read, for a moment.
func (q *sayings) handed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, slowReader)
	defer cancel()
	poll(ctx, q.idle)
}

func (q *sayings) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) == 0 && !q.taken
}

// poll asks every millisecond until ok says so; false if ctx ends before.
func poll(ctx context.Context, ok func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

func (q *sayings) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *sayings) pump(ctx context.Context) {
	defer close(q.to)
	for {
		q.mu.Lock()
		queue, closed := q.queue, q.closed
		q.queue, q.taken = nil, len(q.queue) > 0
		q.mu.Unlock()
		for _, s := range queue {
			select {
			case q.to <- s:
			case <-ctx.Done():
				return
			}
		}
		if closed && len(queue) == 0 {
			return
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-q.more:
		case <-ctx.Done():
			return
		}
	}
}
