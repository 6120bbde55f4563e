package server

import (
	"sync"

	"holdfast/wire"
)

// maxUnanswered is how many requests of one stream may be with the node
// without an answer, beside two keepalives for each of its sessions.
const maxUnanswered = wire.MaxFramesPerRequest

// window counts the requests of one stream that the node has not answered yet.
// While it is full the stream reads no further: a client that sends faster
// than the node answers fills its own connection, and not the node's inbox,
// which other clients' keepalives need, nor its memory.
//
// A request that stands in a lock's queue has had an answer.
type window struct {
	mu     sync.Mutex
	left   sync.Cond
	open   int
	closed bool
}

// enter counts one more request, for which it waits for room; sessions says how
// many sessions the stream speaks for. It returns false once the stream has
// ended: what nobody waits for any more is not handed on. Only the stream's
// reader may call it.
func (w *window) enter(sessions func() int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left.L = &w.mu
	for w.open >= maxUnanswered && !w.closed && w.open >= maxUnanswered+2*sessions() {
		w.left.Wait()
	}
	if w.closed {
		return false
	}
	w.open++
	return true
}

// leave counts one answer.
func (w *window) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	w.left.Signal()
}

// close lets nobody through from now on.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.left.Broadcast()
}

// over reports whether close was called.
func (w *window) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
