package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire"
)

// bodyWithin is how long a client may take to send the body of a call.
const bodyWithin = 30 * time.Second

// call is one HTTP request while it is served: what the handlers below need to
// defend themselves against slow clients. It reaches them in the context.
type call struct {
	// undecoded counts the calls whose body is not read yet, and the
	// keepalives that the node does not have yet; nil once this one was.
	undecoded *atomic.Int64
	shows     shown // who makes it, for operators' calls

	mu struct {
		sync.Mutex
		control *http.ResponseController // nil once the call is finished
	}
}

type callKey struct{}

// callOf returns the call of a handler's context.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// withCall gives every request its call, and counts those that are served and
// those that are not decoded yet.
func withCall(serving, undecoded *atomic.Int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Add(-1)
		c := &call{shows: shown{authorization: r.Header.Get("Authorization"), tls: r.TLS}}
		c.mu.control = http.NewResponseController(w)
		defer c.finished()
		if r.ProtoMajor == 1 {
			_ = c.mu.control.SetWriteDeadline(time.Time{}) // of the connection's last call
		}
		if r.Method == http.MethodPost {
			c.undecoded = undecoded
			undecoded.Add(1)
		}
		if r.Method == http.MethodPost || r.ContentLength != 0 {
			// Package http itself waits for a body that no handler read.
			_ = c.mu.control.SetReadDeadline(time.Now().Add(bodyWithin))
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	})
}

// withinLength refuses calls whose bodies are too long.
func withinLength(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.ContentLength > wire.MaxFrame+envelope {
			refuseLength(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// envelope is how much longer than its message a body may be.
const envelope = 64

// refuseLength answers a call whose body is too long, once it was sent:
// whoever is still sending would be reset before it could read the answer. The
// code is the one by which the RPC layer refuses a body whose length it learns
// only while it reads.
func refuseLength(w http.ResponseWriter, r *http.Request) {
	_, _ = io.CopyN(io.Discard, r.Body, 4*wire.MaxFrame)
	says := wire.Error(&driver.Error{
		Kind: driver.Limit, Outcome: driver.No,
		Msg: fmt.Sprintf("the body has %d bytes: want at most %d", r.ContentLength, wire.MaxFrame),
	})
	e := connect.NewError(connect.CodeResourceExhausted, errors.New(says.Message()))
	for _, d := range says.Details() {
		e.AddDetail(d)
	}
	_ = connect.NewErrorWriter().Write(w, r, e)
}

// received says that the body was read: the handler may now take its time.
func (c *call) received() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.control != nil {
		_ = c.mu.control.SetReadDeadline(time.Time{})
	}
}

// decoded is received, and says that a drain need not wait for the call.
func (c *call) decoded() {
	c.received()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readLocked()
}

func (c *call) readLocked() {
	if c.undecoded != nil {
		c.undecoded.Add(-1)
		c.undecoded = nil
	}
}

// answers says that the answer is ready: the client has so long to take it.
func (c *call) answers(within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.control != nil {
		_ = c.mu.control.SetWriteDeadline(time.Now().Add(within))
	}
}

// finished must be called before the handler returns: after that nobody may
// touch its connection.
func (c *call) finished() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readLocked()
	c.mu.control = nil
}

// hangUp ends what is read at once, and what is written soon.
func (c *call) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.control != nil {
		_ = c.mu.control.SetReadDeadline(time.Now().Add(-time.Second))
		_ = c.mu.control.SetWriteDeadline(time.Now().Add(2 * time.Second))
	}
}

// abort ends what is read and written at once.
func (c *call) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.control != nil {
		past := time.Now().Add(-time.Second)
		_ = c.mu.control.SetReadDeadline(past)
		_ = c.mu.control.SetWriteDeadline(past)
	}
}

// slowReader watches one goroutine's writes to a client that may not read.
type slowReader struct {
	after time.Duration
	timer *time.Timer
	cut   atomic.Bool // the client was cut off for it
}

// slowReader starts such a watch; done ends it. A write that takes longer than
// after is cut off, with the whole call; told is called before that.
func (c *call) slowReader(after time.Duration, told func()) *slowReader {
	w := &slowReader{after: after}
	w.timer = time.AfterFunc(time.Hour, func() {
		w.cut.Store(true)
		told()
		c.abort()
	})
	w.timer.Stop()
	return w
}

// why is the reason for a write's error: that the client was cut off, if it
// was.
func (w *slowReader) why(err error) error {
	if err != nil && w.cut.Load() {
		return errSlow
	}
	return err
}

// writing is called before a write; what it returns, after it.
func (w *slowReader) writing() (written func()) {
	w.timer.Reset(w.after)
	return func() { w.timer.Stop() }
}

func (w *slowReader) done() { w.timer.Stop() }
