package cluster

import (
	"slices"

	"holdfast/driver"
	"holdfast/wire/holdfastv1"
)

// callKind says how the stream treats a call.
type callKind uint8

const (
	callOpen      callKind = iota + 1 // starts a session, and attaches the stream to it
	callAttach                        // the stream's own: attaches to a session again
	callKeepalive                     // has no frame of its own, see beat
	callSession                       // any other call of a session
)

// A call is one request that has no final answer yet. It outlives streams: the
// link sends it on each new one until it is settled. All fields below frame
// are guarded by link.mu.
type call struct {
	kind  callKind
	sess  *session                // nil for an open
	frame *holdfastv1.ClientFrame // the body; the stream adds its own frame ID. nil for a keepalive
	name  driver.RequestID        // of an acquire; N is 0 for all others
	// queued is called when the server says that the acquire waits; or nil.
	queued func()

	seq uint64 // order of start, kept when calls are sent again
	// sent counts the streams that the call was handed to. 0: no server can
	// have seen it.
	sent int
	// settled: answered, or given up by everybody. It is not sent again.
	settled bool
	// callers wait for the final answer. There are several if a request was
	// asked for again while it was under way.
	callers []caller
}

// A caller gets the final answer, once. The channel has room for it, so
// settling never blocks.
type caller chan answer

func newCall(kind callKind, s *session, frame *holdfastv1.ClientFrame) *call {
	return &call{kind: kind, sess: s, frame: frame}
}

// An answer is final: an error, or what the server sent.
type answer struct {
	err   *driver.Error
	frame *holdfastv1.ServerFrame       // nil for a keepalive
	pulse *holdfastv1.KeepAliveResponse // of a keepalive
	on    *stream                       // that brought it
}

// settle gives c its final answer. link.mu is held.
func (c *call) settle(a answer) {
	if c.settled {
		return
	}
	c.end()
	for _, to := range c.callers {
		to <- a
	}
	c.callers = nil
}

// drop takes one caller out. link.mu is held.
func (c *call) drop(who caller) {
	c.callers = slices.DeleteFunc(c.callers, func(o caller) bool { return o == who })
	if len(c.callers) == 0 {
		c.end()
	}
}

func (c *call) end() {
	c.settled = true
	if c.sess != nil {
		delete(c.sess.calls, c)
		delete(c.sess.acquires, c.name)
	}
}
