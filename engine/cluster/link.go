package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/driver"
	"holdfast/wire"
)

// A link is one client process's line to the service: at most one stream at a
// time, and what outlives streams: the sessions, and the calls without a final
// answer.
//
// States of a stream, as the link sees it: none → (connect, hello) → current →
// left. A stream that was left is never current again, and what it still
// brings is ignored.
type link struct {
	endpoints []string
	dial      dialFunc
	tls       func() *tls.Config // nil from it: without TLS
	token     string             // an operator's; "" for none
	log       *slog.Logger
	instance  [16]byte // names this client to the service (B12)

	ctx   context.Context // ends with close
	stop  context.CancelFunc
	ended chan struct{} // closed when the connect loop has returned

	mu struct {
		sync.Mutex
		closed   bool
		cur      *stream       // the stream in use; nil while there is none
		changed  chan struct{} // closed and replaced when cur changes
		why      error         // why there is none, as far as known
		hint     string        // where the leader is said to be
		silences int           // streams left in a row because nothing came
		least    time.Duration // no session has a shorter TTL; 0: there is none
		seq      uint64
		opens    map[*call]struct{}
		sessions map[uint64]*session // those that streams must attach to
	}
}

func newLink(endpoints []string, dial dialFunc, tlsNow func() *tls.Config, log *slog.Logger) *link {
	if tlsNow == nil {
		tlsNow = (&Options{}).tls()
	}
	l := &link{endpoints: endpoints, dial: dial, tls: tlsNow, log: log, ended: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	_, _ = rand.Read(l.instance[:]) // never fails
	l.mu.changed = make(chan struct{})
	l.mu.opens = make(map[*call]struct{})
	l.mu.sessions = make(map[uint64]*session)
	return l
}

var errClosed = errors.New("the client is closed")

// close ends the stream and every call, and waits for the goroutines. Calls
// that were sent have an unknown outcome.
func (l *link) close() {
	l.stop()
	l.mu.Lock()
	l.mu.closed = true
	for c := range l.mu.opens {
		l.settleClosed(c)
	}
	for _, s := range l.mu.sessions {
		for c := range s.calls {
			l.settleClosed(c)
		}
	}
	l.mu.Unlock()
	<-l.ended
}

func (l *link) settleClosed(c *call) {
	delete(l.mu.opens, c)
	c.settle(answer{err: &driver.Error{Kind: driver.Unavailable, Outcome: outcomeOf(c), Err: errClosed}})
}

// outcomeOf says what may have become of a call without an answer. link.mu is
// held.
func outcomeOf(c *call) driver.Outcome {
	if c.sent == 0 {
		return driver.No
	}
	return driver.Unknown
}

// do starts c, or joins the same request if it is under way, and waits for the
// final answer, or until ctx ends.
func (l *link) do(ctx context.Context, c *call) answer {
	if err := ctx.Err(); err != nil {
		return answer{err: &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: err}}
	}
	me := make(caller, 1)
	c, err := l.start(c, me)
	if err != nil {
		return answer{err: err}
	}
	select {
	case a := <-me:
		return a
	case <-ctx.Done():
		return l.giveUp(ctx, c, me)
	}
}

// start registers c for a caller and hands it to the current stream, if there
// is one. It returns the call that the caller waits for.
func (l *link) start(c *call, me caller) (*call, *driver.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil, &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: errClosed}
	}
	if c.sess != nil && c.sess.lost != nil {
		return nil, c.sess.lost
	}
	if c.kind == callKeepalive && c.sess.quit {
		return nil, endedByOwner()
	}
	if c.name.N > 0 {
		if same := c.sess.acquires[c.name]; same != nil {
			same.callers = append(same.callers, me)
			return same, nil
		}
		c.sess.acquires[c.name] = c
	}
	l.mu.seq++
	c.seq = l.mu.seq
	c.callers = []caller{me}
	if c.sess == nil {
		l.mu.opens[c] = struct{}{}
	} else {
		c.sess.calls[c] = struct{}{}
		l.depend(c.sess)
	}
	if l.mu.cur != nil {
		l.mu.cur.offer(c)
	}
	return c, nil
}

// giveUp ends one caller's wait for c because ctx ended, unless the answer has
// come.
func (l *link) giveUp(ctx context.Context, c *call, me caller) answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(me) > 0 {
		return <-me
	}
	c.drop(me)
	if c.settled {
		delete(l.mu.opens, c)
	}
	e := &driver.Error{Kind: driver.Unavailable, Outcome: outcomeOf(c)}
	switch {
	case l.mu.cur == nil:
		e.Err = l.unreached(ctx)
	default:
		e.Err = fmt.Errorf("no answer yet: %w", ctx.Err())
	}
	return answer{err: e}
}

// begin makes st the current stream, and hands it all that is unsettled.
func (l *link) begin(st *stream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false
	}
	l.mu.cur, l.mu.why = st, nil
	l.mu.least = 0
	for _, s := range l.mu.sessions {
		l.depend(s)
	}
	l.wakeWaiters()
	for _, c := range inOrder(l.mu.opens) {
		st.offer(c)
	}
	for _, s := range l.mu.sessions {
		st.attach(s)
	}
	return true
}

// leave takes st out of use, if it still is in use; why says the reason, hint
// where the leader is said to be.
func (l *link) leave(st *stream, why error, hint string) {
	l.mu.Lock()
	l.leaveLocked(st, why, hint)
	l.mu.Unlock()
}

// leaveLocked is leave with link.mu held. Cancelling the stream's context
// closes its connection, on another goroutine (see [stream.hangUp]).
func (l *link) leaveLocked(st *stream, why error, hint string) {
	if checkEndpoint(hint) != nil {
		hint = "" // not an address that anybody could dial
	}
	st.spoken = st.spoken || wire.RemoteOf(why) != nil
	if l.mu.cur == st {
		l.mu.cur, l.mu.why, l.mu.hint = nil, fmt.Errorf("%s: %w", st.conn.addr, why), hint
		switch {
		case errors.Is(why, errSilent):
			l.mu.silences++
		case st.useful:
			l.mu.silences = 0
		}
		l.wakeWaiters()
	}
	st.cancel()
}

// failed notes why no server could be reached.
func (l *link) failed(why error) {
	l.mu.Lock()
	l.mu.why = why
	l.mu.Unlock()
}

func (l *link) wakeWaiters() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// stream waits for a stream other than not, which may be nil.
func (l *link) stream(ctx context.Context, not *stream) (*stream, error) {
	for {
		l.mu.Lock()
		cur, changed, closed := l.mu.cur, l.mu.changed, l.mu.closed
		l.mu.Unlock()
		switch {
		case closed:
			return nil, &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: errClosed}
		case cur != nil && cur != not:
			return cur, nil
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			return nil, &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: l.unreached(ctx)}
		}
	}
}

// unreached is the error of a wait for a server that ctx ended. link.mu is
// held.
func (l *link) unreached(ctx context.Context) error {
	why := l.mu.why
	if why == nil {
		return fmt.Errorf("no answer yet from %s: %w", strings.Join(l.endpoints, ", "), ctx.Err())
	}
	return fmt.Errorf("no server can be reached (%w): %w", ctx.Err(), why)
}

// lose marks s as lost for ever and settles its calls. link.mu is held.
func (l *link) lose(s *session, err *driver.Error) {
	if s.lost == nil {
		s.lost = err
		close(s.gone)
	}
	delete(l.mu.sessions, s.id)
	for c := range s.calls {
		c.settle(answer{err: s.lost})
	}
}

// forget stops attaching streams to s once nothing of it is unsettled: its
// owner has ended it, or given it up.
func (l *link) forget(s *session) {
	l.mu.Lock()
	s.quit = true
	if len(s.calls) == 0 {
		delete(l.mu.sessions, s.id)
	}
	l.mu.Unlock()
}

// depend registers s: streams attach to it, and are left soon enough for its
// lease. link.mu is held.
func (l *link) depend(s *session) {
	l.mu.sessions[s.id] = s
	if l.mu.least == 0 || s.ttl < l.mu.least {
		l.mu.least = s.ttl
		if st := l.mu.cur; st != nil && st.watching {
			st.watch.Reset(l.silence()) // it was set for a longer lease
		}
	}
}

// silence is how long a stream may owe an answer without bringing anything
// before it is left for another one. It grows while that does not help, so
// that a slow service is not drowned in reconnects. link.mu is held.
func (l *link) silence() time.Duration {
	limit := maxSilence
	if l.mu.least > 0 {
		limit = min(max(l.mu.least/4, minSilence), maxSilence)
	}
	return min(limit<<min(l.mu.silences, 4), maxSilence)
}

// attemptTimeout bounds one try to reach one server, so that the next one is
// tried while the leases still hold.
func (l *link) attemptTimeout(candidates int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case candidates == 1:
		return maxAttempt
	case l.mu.least == 0:
		return maxAttempt / 2
	}
	return min(max(l.mu.least/8, minAttempt), maxAttempt/2)
}

// Bounds of the waits for a line. They follow from the shortest TTL.
const (
	minSilence = 400 * time.Millisecond
	maxSilence = 5 * time.Second
	minAttempt = 300 * time.Millisecond
	maxAttempt = 2 * time.Second
)

func inOrder(calls map[*call]struct{}) []*call {
	list := make([]*call, 0, len(calls))
	for c := range calls {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *call) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	return list
}
