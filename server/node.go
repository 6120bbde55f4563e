package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/server/core"
)

// NodeConfig says how a node is to run. The zero value of each field but Dir
// is its documented default.
type NodeConfig struct {
	// Dir is the data directory. It is created, with mode 0700, if it does
	// not exist. Only one process can use it at a time.
	Dir string
	// Tick is raft's unit of time: 10 ms – 10 s, default 100 ms. A heartbeat
	// is one tick, an election timeout ten.
	Tick time.Duration
	// Logger gets what an operator should know; default slog.Default().
	Logger *slog.Logger
	// Registerer gets the node's metrics; nil for none.
	Registerer prometheus.Registerer
	// MaxSessions is how many sessions may be open, 1 or more; default
	// 100,000. Beyond it an open is refused with [ErrOverloaded].
	MaxSessions int
	// MaxPending is how many submitted commands may wait for the loop, 1 or
	// more; default 65,536. Beyond it new work is refused with
	// [ErrOverloaded]; keepalives, releases, cancels and ends are taken up to
	// twice that.
	MaxPending int
	// SnapshotEntries and SnapshotBytes say after how many entries or bytes
	// of log a snapshot is taken, whichever comes first; defaults 100,000 and
	// 64 MiB.
	SnapshotEntries uint64
	SnapshotBytes   uint64
	// OnHang is called once, from a thread of its own, when the loop has not
	// moved for ten seconds of this process's own time (D2). The default logs
	// it and exits the process with code 70.
	OnHang func(reason string)
	// Peers is for a node that is one of several.
	Peers PeerConfig

	hooks nodeHooks // for tests of this package
}

// The reasons for which a node does not do what it was asked. They are told
// apart with errors.Is; texts around them say what to do.
var (
	// ErrOverloaded: refused before anything happened; try again later.
	ErrOverloaded = errors.New("server is busy")
	// ErrUnknownOutcome: the command may take effect or not. Send it again
	// under the same name to learn it (C4).
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrStopped: the node is stopping. Nothing happened, unless the error is
	// also an ErrUnknownOutcome.
	ErrStopped = errors.New("server is stopping")
	// ErrPoisoned: the node's store failed and it will exit. Nothing
	// happened, unless the error is also an ErrUnknownOutcome.
	ErrPoisoned = errors.New("server's store failed")
	// ErrReplaced: a later Submit of the same request took over; the answer
	// goes there.
	ErrReplaced = errors.New("request was sent again; its answer goes to the later call")
	// ErrSessionLost: no such session (any more). It is final.
	ErrSessionLost = errors.New("no such session: it ended, expired or never was")
	// ErrCompacted: events after the given revision are no longer kept; load
	// the state anew and watch from its revision.
	ErrCompacted = errors.New("events are no longer kept from that revision on: reload")
)

// NotLeaderError says that this node does not lead, so nothing happened.
type NotLeaderError struct {
	// Leader is the ID of the node that leads, 0 if unknown; Addr its client
	// address, empty if unknown.
	Leader uint64
	Addr   string
	Term   uint64
	// Reason says more for people, for example that the node is starting.
	Reason string
}

// Error implements error.
func (e *NotLeaderError) Error() string {
	switch {
	case e.Addr != "":
		return fmt.Sprintf("this node does not lead in term %d: ask %s", e.Term, e.Addr)
	case e.Reason != "":
		return fmt.Sprintf("this node does not lead in term %d: %s", e.Term, e.Reason)
	}
	return fmt.Sprintf("this node does not lead in term %d, and knows no leader: try again", e.Term)
}

// Answer is what became of a submitted command.
type Answer struct {
	// Result is what the command did, if Err is nil.
	Result core.Result
	// Domain is that of the state, for the tokens in Result.
	Domain [16]byte
	// Err is nil, a [*NotLeaderError] (nothing happened), or is one of
	// ErrOverloaded, ErrUnknownOutcome, ErrStopped, ErrPoisoned, ErrReplaced.
	// A command that was decided has no Err, though it may be Refused.
	Err error
}

// Final reports whether no other answer follows.
func (a Answer) Final() bool { return a.Err != nil || a.Result.Status != core.Waiting }

// Pulse is the answer to a keepalive. Its lists may be shared with other
// pulses: they are read only.
type Pulse struct {
	// Err is nil if the session lives. [ErrSessionLost] is final; any other
	// error says nothing about the session.
	Err error
	// TTL is the session's; it counts from the instant before the keepalive
	// left its client.
	TTL time.Duration
	// Revoked lists grants of the session that were taken back, until it
	// releases each.
	Revoked []Revocation
	// Contended lists the numbers of its grants for which somebody waits.
	Contended []uint64
}

// Revocation is one grant that was taken back (B11).
type Revocation struct {
	Grant uint64
	Lock  string
	Cause core.RevokeCause
	By    string
	Gone  bool // no longer held
}

// ReadInfo says how fresh a reading is.
type ReadInfo struct {
	// Stale: leadership was not confirmed for this reading.
	Stale bool
	// Index is the last applied entry.
	Index uint64
	// Age is the time since this node last heard of a leader; 0 if not Stale.
	Age time.Duration
}

// Reading is what the function given to [Node.View] sees. It is valid only
// during that call, on the node's loop.
type Reading struct {
	State *core.State
	Info  ReadInfo
	// Term is raft's, at least that of the last applied entry.
	Term uint64
	// Clock is the log's clock as of now.
	Clock core.Clock
	// Heard says how long ago this leader heard a session; ok is false if it
	// has not.
	Heard func(id core.SessionID) (ago time.Duration, ok bool)
	// TTLLeft is 0 … TTL as this leader sees it (C18 in the casebook); on a
	// node that does not lead it is the full TTL.
	TTLLeft func(id core.SessionID) time.Duration
}

// Status is what a node says about itself.
type Status struct {
	NodeID      uint64
	LeaderID    uint64 // 0: unknown
	LeaderAddr  string // for clients; empty: unknown
	Role        string // leader, follower, candidate
	Term        uint64
	Applied     uint64 // index
	Domain      [16]byte
	Incarnation uint64
	Version     uint32 // cluster version
	Epoch       uint16
	LastNumber  uint64
	Revision    core.Revision
	Clock       core.Clock
	Sessions    int
	Locks       int
	Ready       bool
	Reason      string // why it is not ready
}

// NewSessionID draws an ID for a new session: random, 1 … 2^63−1 (B12).
func (n *Node) NewSessionID() core.SessionID {
	for {
		var b [8]byte
		rand.Read(b[:]) // never fails
		if id := binary.BigEndian.Uint64(b[:]) >> 1; id != 0 {
			return core.SessionID(id)
		}
	}
}

// Do submits cmd and waits for its first answer, which is final for every
// command but [core.Acquire]: use [Node.Submit] for that. If ctx ends first
// the error is ErrUnknownOutcome and wraps that of ctx.
func (n *Node) Do(ctx context.Context, cmd core.Command) (core.Result, error) {
	got := make(chan Answer, 2)
	n.Submit(cmd, func(a Answer) { got <- a })
	select {
	case a := <-got:
		return a.Result, a.Err
	case <-ctx.Done():
		return core.Result{}, fmt.Errorf("%w: no answer in time: %w", ErrUnknownOutcome, context.Cause(ctx))
	}
}
