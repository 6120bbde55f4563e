package cluster

import (
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
	// answer gets the final answer, once. It has room for it, so settling
	// never blocks.
	answer chan answer

	seq uint64 // order of start, kept when calls are sent again
	// sent counts the streams that the call was handed to. 0: no server can
	// have seen it.
	sent int
	// settled: answered, or given up by its caller. It is not sent again.
	settled bool
	// given up: the caller no longer listens.
	abandoned bool
}

func newCall(kind callKind, s *session, frame *holdfastv1.ClientFrame) *call {
	return &call{kind: kind, sess: s, frame: frame, answer: make(chan answer, 1)}
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
	c.settled = true
	if c.sess != nil {
		delete(c.sess.calls, c)
	}
	c.answer <- a
}
