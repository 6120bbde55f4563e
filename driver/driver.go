package driver

import (
	"context"
	"time"

	"holdfast/fence"
)

// A Driver opens sessions on one lock system. Its methods may be called by
// several goroutines at once.
type Driver interface {
	// Open starts a session. It is called with a context that has a deadline.
	// The caller counts the session's lease from the instant before the call.
	Open(ctx context.Context, req OpenRequest) (Session, error)
	// Close frees what the driver holds on this machine (connections,
	// goroutines). The caller has ended or given up its sessions before.
	Close() error
}

// A Fenced driver is one whose grants carry fencing tokens and are given in
// queue order. The method is a mark that only such engines may carry.
type Fenced interface {
	Driver
	// Fenced does nothing. It keeps an engine without tokens from being
	// passed where tokens are promised.
	Fenced()
}

// OpenRequest says what session to open.
type OpenRequest struct {
	// TTL is how long the service keeps the session's locks after it last
	// heard of it: 1 s – 24 h.
	TTL time.Duration
	// Label is for people ("billing run on db7"), at most 256 bytes. It
	// never decides ownership.
	Label string
	// Host is the name of the machine, for people, at most 256 bytes.
	Host string
}

// A Session is one client's presence at a lock system. Its methods may be
// called by several goroutines at once, with contexts that have a deadline,
// except Acquire, which waits as long as its context lets it.
//
// Every error is, or wraps, an [*Error], which says what became of the call.
type Session interface {
	// Keepalive tells the service that the client lives. An answer extends
	// the lease to the instant before the call + TTL, however late it comes.
	// The caller makes one call at a time, but may give a call up and make
	// the next. An error with kind [SessionLost] is final; any other says
	// nothing about the session.
	Keepalive(ctx context.Context) (Pulse, error)
	// Acquire asks for a lock and waits in its queue unless req.Try is set.
	// The request is named by req.ID: calling again with the same ID is the
	// same request, whatever became of the first call, and returns the same
	// final answer; the place in the queue is kept. When ctx ends the call
	// returns with outcome [Unknown], and the caller settles it with Cancel
	// (or calls again). A final answer is a Grant, or an error with outcome
	// [No].
	Acquire(ctx context.Context, req AcquireRequest) (Grant, error)
	// Cancel makes sure that the request holds nothing and waits for
	// nothing, also if the service has not seen it yet. It is idempotent.
	// A grant that the request already got is released.
	Cancel(ctx context.Context, id RequestID) error
	// Release gives one grant back. It is idempotent: a grant that is no
	// longer held is "already done", and returns nil.
	Release(ctx context.Context, req ReleaseRequest) error
	// End ends the session: what it holds and waits for is free at once.
	// It is idempotent.
	End(ctx context.Context) error
}

// A Prompter is a [Session] that can tell when a keepalive is wanted at once.
// A session need not be one.
type Prompter interface {
	// OnNewLeader has f called, from any goroutine, whenever the session
	// meets a new leader of its service (PROTOCOL B6). It is called once,
	// before any other method of the session. f does not block for long.
	OnNewLeader(f func())
}

// A RequestID names an acquire within its session: a lane carries one
// unsettled request at a time, and N rises on it by one (RFC 8881 §2.10.6
// calls the lane a slot). The caller takes its lowest free lane.
type RequestID struct {
	Lane uint32
	N    uint64 // 1, 2, …
}

// AcquireRequest says what to acquire.
type AcquireRequest struct {
	ID   RequestID
	Lock string
	// Try asks for an answer at once: granted, or an error of kind [Busy] or
	// [HeldByYou].
	Try bool
	// Extension carries options that only one engine has; it is nil, or was
	// made by that engine's own client type. An engine refuses one that it
	// does not know with kind [Invalid].
	Extension Extension
	// Queued, if not nil, is called when the service has said that the
	// request stands in the queue (an engine without queues: that it found
	// the lock held), before the call returns an answer that came after it;
	// by any goroutine, and any number of times; calls of one request that
	// overlap may use the first one's. It returns at once and takes no
	// lock, so the engine may call it with its own held. A request that was
	// never said to wait is begun anew in another session if its own ends;
	// of one that was, the owner is told that its place is lost (C16, C17).
	Queued func()
}

// An Extension is a set of options that only one engine understands.
type Extension interface {
	// Engine names the engine, for the error of another one.
	Engine() string
}

// A Grant is what the service said when it granted a request.
type Grant struct {
	// ID names the grant within its session, for Release and Pulse. It is
	// never reused.
	ID string
	// Token is the fencing token; the zero Token on engines without tokens.
	Token fence.Token
}

// ReleaseRequest says which grant to give back.
type ReleaseRequest struct {
	Grant string // Grant.ID
	// Failed says that the guarded work did not succeed. Engines without
	// once-per ignore it.
	Failed bool
}

// A Pulse is what a keepalive's answer says about the session's grants.
type Pulse struct {
	// Revoked lists grants that were revoked. The holder must stop; it has
	// acknowledged when it releases the grant.
	Revoked []Revocation
	// Contended lists the IDs of held grants for which someone waits.
	Contended []string
}

// A Revocation says why a grant was taken back.
type Revocation struct {
	Grant string
	// Cause is "operator" or "max-hold".
	Cause string
	// By names who did it, for people; may be empty.
	By string
	// Gone reports that the grant is no longer held (revoked without
	// waiting for the holder).
	Gone bool
}
