package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// stream is one bidirectional stream of one client process: the voice of any
// number of sessions. Two goroutines serve it: the call's own reads and hands
// requests to the node, another writes all answers that wait as one message.
// Answers come from the node's loop in any order. The end of a stream ends no
// session: it only falls silent.
type stream struct {
	s    *service
	call *call
	peer string
	out  outbox
	in   window

	// reading is true while the reader waits for a message; handled counts
	// the messages it dealt with. Draining looks at them (B9).
	reading atomic.Bool
	handled atomic.Uint64

	mu struct {
		sync.Mutex
		why error // of the end, the first reason counts
	}
	// voiceOf and ended are guarded by the registry, voices: the sessions
	// that this stream speaks for (nil once it has ended), and some that it
	// spoke for to their end.
	voiceOf map[core.SessionID]struct{}
	ended   []core.SessionID
}

// streams are all open streams, for draining.
type streams struct {
	mu  sync.Mutex
	all map[*stream]struct{}
}

func (l *streams) add(st *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[*stream]struct{})
	}
	l.all[st] = struct{}{}
}

func (l *streams) remove(st *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, st)
}

func (l *streams) open(st *stream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.all[st]
	return ok
}

func (l *streams) list() []*stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*stream, 0, len(l.all))
	for st := range l.all {
		all = append(all, st)
	}
	return all
}

// Session implements the service.
func (s *service) Session(ctx context.Context, conn *connect.BidiStream[holdfastv1.SessionRequest, holdfastv1.SessionResponse]) error {
	if away := s.node.away(); away != nil {
		return away
	}
	st := &stream{s: s, call: callOf(ctx), peer: conn.Peer().Addr, voiceOf: make(map[core.SessionID]struct{})}
	st.out.init()
	st.call.decoded() // messages come when they come
	s.streams.add(st)
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	defer s.streams.remove(st)
	defer s.voices.leave(st)
	// A stopping server ends its streams: the clients look for another one.
	defer context.AfterFunc(s.stopping, func() {
		st.close(&driver.Error{Kind: driver.Unavailable, Outcome: driver.Unknown, Msg: "the server is stopping; its sessions live on: connect again"})
	})()

	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		if err := st.write(conn.Send); err != nil {
			st.close(err)
		}
	}()
	st.close(st.read(ctx, conn.Receive))
	<-wrote
	st.mu.Lock()
	defer st.mu.Unlock()
	if errors.Is(st.mu.why, io.EOF) {
		return nil
	}
	return st.mu.why
}

// sendAway ends all streams: another member leads now, and clients who wait here
// go there at once.
func (s *service) sendAway(why *NotLeaderError) {
	e := classify(why)
	e.Outcome = driver.Unknown // of what is under way
	for _, st := range s.streams.list() {
		st.close(e)
	}
}

// close ends the stream for a reason. What waits in the outbox is still
// written, if the client takes it soon. It may be called by anybody, also by
// sinks on the node's loop, more than once.
func (st *stream) close(why error) {
	st.mu.Lock()
	first := st.mu.why == nil
	if first {
		st.mu.why = why
	}
	st.mu.Unlock()
	if !first {
		return
	}
	st.out.close()
	st.in.close()
	// Never on the node's loop: the connection may be busy.
	go st.call.hangUp()
}

// read takes messages until the client or somebody else ends the stream.
func (st *stream) read(ctx context.Context, receive func() (*holdfastv1.SessionRequest, error)) error {
	for {
		st.reading.Store(true)
		req, err := receive()
		st.reading.Store(false)
		if err != nil {
			return err
		}
		if err := st.handle(ctx, req); err != nil {
			return err
		}
		st.handled.Add(1)
	}
}

// write sends what waits in the outbox, all of it at once, until the outbox is
// closed and empty.
func (st *stream) write(send func(*holdfastv1.SessionResponse) error) error {
	slow := st.call.slowReader(st.s.slowAfter, func() { st.close(errSlow) })
	defer slow.done()
	for {
		frames, open := st.out.take()
		for len(frames) > 0 {
			var chunk []*holdfastv1.ServerFrame
			chunk, frames = cutFrames(frames)
			written := slow.writing()
			err := send(&holdfastv1.SessionResponse{Frames: chunk})
			written()
			if err != nil {
				return slow.why(err)
			}
		}
		if !open {
			return nil
		}
	}
}

// answer queues the answer to a frame, from any goroutine.
func (st *stream) answer(f *holdfastv1.ServerFrame) {
	if !st.out.put(f) {
		st.close(errSlow)
	}
}

// fail queues an error as the answer to a frame.
func (st *stream) fail(id uint64, err error) {
	st.answer(&holdfastv1.ServerFrame{Id: id, Body: &holdfastv1.ServerFrame_Error{Error: wire.ErrorInfo(classify(err))}})
}

// errSlow ends a stream whose client does not read its answers.
var errSlow error = &driver.Error{Kind: driver.Overloaded, Outcome: driver.Unknown, Msg: fmt.Sprintf("the client does not read: more than %d MiB of answers waited, or one was not taken for %v; connect again and read", maxOutbox>>20, slowAfter)}

// slowAfter is the default of service.slowAfter.
const slowAfter = 20 * time.Second
