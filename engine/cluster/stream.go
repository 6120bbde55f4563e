package cluster

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// A stream is one Session call on one connection. Two goroutines drive it: the
// connect loop reads, and a writer sends all that has gathered as one message.
// All fields below wake are guarded by link.mu.
type stream struct {
	link   *link
	conn   *conn
	bidi   *connect.BidiStreamForClient[holdfastv1.SessionRequest, holdfastv1.SessionResponse]
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // room for one: there may be something to write

	queue   []*call             // to be written, in this order
	due     []*session          // to be kept alive with the next beat
	flush   bool                // the beat is not to wait for company
	linger  *time.Timer         // runs while a beat waits for company; nil before the first
	sent    map[uint64]*pending // by frame ID: what waits for an answer
	lastID  uint64
	useful  bool     // it has brought an answer
	refused bool     // it was left because its server could not serve
	spoken  bool     // it was left because of what its server said, over a good line
	prompts []func() // to be called once link.mu is free

	// The silence rule: while owed > 0, something must come within the
	// link's silence limit.
	owed     int       // prompt answers that are due
	since    time.Time // later of: owed rose from 0, something came
	watching bool      // the timer runs
	watch    *time.Timer
}

// pending is what one sent frame asks for: one call's answer, or the pulses of
// a beat.
type pending struct {
	call *call
	// beat has, by session, the Keepalive calls that were started before the
	// beat left: only these may count on its answer.
	beat   map[uint64][]*call
	queued bool // the server has said that the answer comes later
}

// How much one message carries at most, far below the frame limit (DESIGN §3),
// and how long keepalives wait for others' to share their message. The wait
// costs no lease: leases count from before the call.
const (
	maxBatchBytes  = 1 << 20
	maxBatchFrames = 8192
	maxBeat        = 10_000
	beatLinger     = 5 * time.Millisecond
)

var errSilent = errors.New("the server has stopped answering")

func newStream(l *link, c *conn) *stream {
	st := &stream{link: l, conn: c, wake: make(chan struct{}, 1), sent: make(map[uint64]*pending)}
	st.ctx, st.cancel = context.WithCancel(l.ctx)
	return st
}

// run makes the stream the current one, and drives it until it is left.
func (st *stream) run() {
	closed := make(chan struct{})
	stopClosing := context.AfterFunc(st.ctx, func() { defer close(closed); st.hangUp() })
	st.bidi = st.conn.rpc.Session(st.ctx)
	wrote := make(chan struct{})
	go func() { defer close(wrote); st.write() }()
	if st.link.begin(st) {
		st.read()
	}
	st.cancel()
	<-wrote
	if !stopClosing() {
		<-closed
	}
	st.link.mu.Lock()
	defer st.link.mu.Unlock()
	for _, t := range []*time.Timer{st.linger, st.watch} {
		if t != nil {
			t.Stop()
		}
	}
}

// hangUp closes the connection of a stream that was left: at once if it is
// broken or nobody needs it, else when the calls on it have their answers.
func (st *stream) hangUp() {
	st.link.mu.Lock()
	good := st.spoken
	st.link.mu.Unlock()
	if good && st.link.ctx.Err() == nil {
		st.conn.leave(st.link.ctx)
	} else {
		st.conn.close()
	}
}

// read handles what comes until the stream breaks or is left.
func (st *stream) read() {
	for {
		res, err := st.bidi.Receive()
		if err != nil {
			e := wire.FromError(err)
			hint := ""
			if r := wire.RemoteOf(e); r != nil {
				hint, _ = r.Leader()
			}
			st.link.leave(st, e, hint)
			return
		}
		st.link.received(st, res)
	}
}

// write sends what gathers until the stream is left. A lone frame goes at
// once; what arrives while one message is written goes in the next.
func (st *stream) write() {
	// The request's headers go first, so that the server can say why not.
	if st.bidi.Send(nil) != nil {
		return // the reader learns why
	}
	for {
		select {
		case <-st.wake:
		case <-st.ctx.Done():
			return
		}
		for {
			req := st.take()
			if req == nil {
				break
			}
			if st.bidi.Send(req) != nil {
				return
			}
			if len(req.GetFrames()) > 8 {
				runtime.Gosched() // a busy client: let the next batch gather
			}
		}
	}
}

// signal wakes the writer.
func (st *stream) signal() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// offer queues c for sending, after an attach where one is needed first.
// link.mu is held.
func (st *stream) offer(c *call) {
	switch {
	case c.kind == callOpen:
		st.push(c)
	case c.sess.on != st:
		st.attach(c.sess) // its answer brings c
	case c.kind == callKeepalive:
		st.keepAlive(c.sess)
	default:
		st.push(c)
	}
}

func (st *stream) push(c *call) {
	st.queue = append(st.queue, c)
	st.signal()
}

// attach makes this stream the voice of s, once. link.mu is held.
func (st *stream) attach(s *session) {
	if s.on == st || s.attaching == st {
		return
	}
	s.attaching = st
	s.attaches++
	st.push(newCall(callAttach, s, attachFrame(s)))
}

// attached goes on with s after its attach was answered: a keepalive at once
// (B6), by its owner if that is to be told, and every unsettled lane (C3).
// link.mu is held.
func (st *stream) attached(s *session) {
	s.on = st
	switch {
	case s.quit:
	case s.prompt != nil:
		st.prompts = append(st.prompts, s.prompt)
	default:
		st.flush = true
		st.keepAlive(s)
	}
	for _, c := range inOrder(s.calls) {
		st.offer(c)
	}
}

// keepAlive adds s to the next beat, which leaves when every session is in it,
// when something else leaves, or after a short wait for company. link.mu is
// held.
func (st *stream) keepAlive(s *session) {
	if s.dueOn != st {
		s.dueOn = st
		st.due = append(st.due, s)
	}
	if st.flush || len(st.due) >= len(st.link.mu.sessions) || len(st.queue) > 0 {
		st.flush = true
		st.signal()
		return
	}
	if st.linger == nil {
		st.linger = time.AfterFunc(beatLinger, st.lingered)
	} else if len(st.due) == 1 {
		st.linger.Reset(beatLinger)
	}
}

func (st *stream) lingered() {
	st.link.mu.Lock()
	st.flush = true
	st.link.mu.Unlock()
	st.signal()
}

// take removes the next message from what is queued; nil if there is nothing.
func (st *stream) take() *holdfastv1.SessionRequest {
	st.link.mu.Lock()
	defer st.link.mu.Unlock()
	if st.link.mu.cur != st {
		return nil // left: what is queued goes out on the next stream
	}
	req := &holdfastv1.SessionRequest{}
	if st.flush || len(st.queue) > 0 {
		st.takeBeat(req)
	}
	taken, size := 0, 0
	for _, c := range st.queue {
		if len(req.Frames) >= maxBatchFrames || size > maxBatchBytes {
			break
		}
		taken++
		if c.settled {
			continue
		}
		c.sent++
		if c.name.N > 0 {
			c.sess.asked[c.name.Lane] = max(c.sess.asked[c.name.Lane], c.name.N)
		}
		req.Frames = append(req.Frames, st.frame(&pending{call: c}, c.frame))
		size += proto.Size(c.frame)
	}
	st.queue = slices.Delete(st.queue, 0, taken)
	if len(st.queue) > 0 {
		st.signal()
	}
	if len(req.Frames) == 0 {
		return nil
	}
	return req
}

// takeBeat adds the keepalives that are due, first in the message. link.mu is
// held.
func (st *stream) takeBeat(req *holdfastv1.SessionRequest) {
	st.flush = false
	due := st.due
	st.due = nil
	slices.SortFunc(due, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	for chunk := range slices.Chunk(due, maxBeat) {
		p := &pending{beat: make(map[uint64][]*call, len(chunk))}
		ids := make([]uint64, 0, len(chunk))
		for _, s := range chunk {
			s.dueOn = nil
			if s.on != st || s.lost != nil || s.quit {
				continue
			}
			p.beat[s.id] = nil
			for c := range s.calls {
				if c.kind == callKeepalive {
					c.sent++
					p.beat[s.id] = append(p.beat[s.id], c)
				}
			}
			ids = append(ids, s.id)
		}
		if len(ids) == 0 {
			continue
		}
		req.Frames = append(req.Frames, st.frame(p, &holdfastv1.ClientFrame{
			Body: &holdfastv1.ClientFrame_KeepAlives{KeepAlives: &holdfastv1.KeepAlivesRequest{SessionIds: ids}},
		}))
	}
}

// frame numbers a body and notes what waits for its answer. link.mu is held.
func (st *stream) frame(p *pending, body *holdfastv1.ClientFrame) *holdfastv1.ClientFrame {
	st.lastID++
	st.sent[st.lastID] = p
	if st.owed++; st.owed == 1 {
		st.since = time.Now()
		st.watchSilence()
	}
	return &holdfastv1.ClientFrame{Id: st.lastID, Body: body.GetBody()}
}

// paid notes that a prompt answer has come. link.mu is held.
func (st *stream) paid(p *pending) {
	if !p.queued {
		st.owed--
	}
}

// watchSilence starts the timer of the silence rule. It is not stopped when
// an answer comes; it looks when it fires. link.mu is held.
func (st *stream) watchSilence() {
	if st.watching {
		return
	}
	st.watching = true
	if st.watch == nil {
		st.watch = time.AfterFunc(st.link.silence(), st.listen)
	} else {
		st.watch.Reset(st.link.silence())
	}
}

// listen leaves the stream if it has been silent for too long.
func (st *stream) listen() {
	l := st.link
	l.mu.Lock()
	defer l.mu.Unlock()
	st.watching = false
	if st.owed == 0 || st.ctx.Err() != nil {
		return
	}
	limit := l.silence()
	if silent := time.Since(st.since); silent < limit {
		st.watching = true
		st.watch.Reset(limit - silent)
		return
	}
	l.leaveLocked(st, errSilent, "")
}
