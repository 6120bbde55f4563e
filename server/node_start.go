package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Node is one running member of the lock service: its store, its replica and
// the loop that drives them. Its methods may be called from any goroutine,
// except from a sink or from the function given to View.
type Node struct {
	cfg   NodeConfig
	start time.Time
	in    inbox
	hub   hub

	status atomic.Pointer[Status]
	done   chan struct{}
	err    error // set before done is closed

	drains struct {
		sync.Mutex
		fns []func(done func())
	}
}

// now is the node's monotonic clock (CLOCK_MONOTONIC since its start).
func (n *Node) now() time.Duration { return time.Since(n.start) }

// StartNode opens the data directory, setting it up if it is new, and starts
// the node. It returns when the node leads (a lone voter), or is running but
// cannot lead yet: [Node.Ready] says why. A directory that cannot be used is an
// error that names the file and what to do.
func StartNode(ctx context.Context, cfg NodeConfig) (*Node, error) {
	return nil, errors.New("not built yet")
}

// Status says what the node is doing, as of its loop's last turn.
func (n *Node) Status() Status { return *n.status.Load() }

// Ready reports whether the node can serve, and if not, why not.
func (n *Node) Ready() (bool, string) {
	s := n.status.Load()
	return s.Ready, s.Reason
}

// Stop ends the node cleanly: new requests get [ErrStopped], the entry in
// flight is finished, the store is flushed and closed. If ctx ends first the
// node stops nevertheless as soon as its disk lets it. Stop may be called more
// than once.
func (n *Node) Stop(ctx context.Context) error { return nil }

// Done is closed when the node has ended, by Stop or by a failure.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err says, once Done is closed, why the node ended: nil after Stop, else for
// example an error that is [ErrPoisoned].
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// OnDrain registers how to read what the connections hold. After a stall of
// this process the loop calls fn, which must not block: fn sees to it that
// every connection is read until it would block, that what was read is
// submitted, and then calls done, from any goroutine (B9). Until done is
// called nothing expires.
func (n *Node) OnDrain(fn func(done func())) {
	n.drains.Lock()
	defer n.drains.Unlock()
	n.drains.fns = append(n.drains.fns, fn)
}
