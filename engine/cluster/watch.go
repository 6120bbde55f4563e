package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// ErrCompacted ends a watch whose next events are no longer kept by the
// service: load the state anew ([Client.List]), and watch from the revision
// that the list shows.
var ErrCompacted = errors.New("the events after that revision are no longer kept: list the locks, and watch from the revision of the list")

// WatchOptions say what to watch. With neither Lock nor Prefix, everything.
type WatchOptions struct {
	// Lock watches one lock.
	Lock string
	// Prefix watches all locks whose names begin with it. Not with Lock.
	Prefix string
	// After, if not nil, is the revision after which events are wanted, such
	// as [ReadInfo.Revision] of a list. nil: from now on.
	After *uint64
}

// A Batch is what one step of a watch brings: all events of one or several
// revisions, in order. The events of one revision are never split.
type Batch struct {
	Events []Event
	// Revision is the one up to which everything has now been seen.
	Revision uint64
}

// Event is one change of a lock.
type Event struct {
	Revision uint64
	// Kind is queued, left, granted, released, revoked, closed, reopened, put
	// or deleted.
	Kind      string
	Cause     string
	Lock      string
	SessionID uint64
	Label     string
	Host      string
	Grant     uint64
	Token     fence.Token
	Shared    bool
	HasValue  bool
	Value     []byte
	Clock     time.Duration // the log's clock
	By        string        // who revoked, for people
	Burnt     uint64        // revoked: the number of the revocation token
	Audit     *AuditCall    // audit: the operator's call; else nil
}

// Watch goes through the events of locks as they happen, until ctx ends or the
// loop is left. It goes on over reconnects and restarts without a gap and
// without a repetition. Its first element is a batch without events, which
// says that the watch stands and from which revision it counts.
//
// An error ends it, as its last element: that of ctx, [ErrCompacted], or a
// [*driver.Error] that says what is wrong with the request.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		after, err := c.startWatch(ctx, o)
		if err != nil {
			yield(Batch{}, err)
			return
		}
		if !yield(Batch{Revision: after}, nil) {
			return
		}
		w := &watcher{link: c.link, o: o, after: after}
		for {
			more, err := w.stream(ctx, yield)
			if err != nil {
				yield(Batch{}, err)
			}
			if !more || err != nil {
				return
			}
		}
	}
}

// startWatch returns the revision to begin after.
func (c *Client) startWatch(ctx context.Context, o WatchOptions) (uint64, error) {
	if o.Lock != "" && o.Prefix != "" {
		return 0, invalid(o.Lock, "watch of lock %q and prefix %q: want one of them", o.Lock, o.Prefix)
	}
	if o.After != nil {
		return *o.After, nil
	}
	res, _, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.Poll,
		&holdfastv1.PollRequest{Lock: o.Lock, Prefix: o.Prefix})
	if e != nil {
		return 0, asWatchError(ctx, e)
	}
	return res.GetRevision(), nil
}

// watcher is one watch, over as many streams as it takes.
type watcher struct {
	link  *link
	o     WatchOptions
	after uint64
	not   *stream // that broke
}

// stream watches on one connection until it breaks; more reports that the next
// one is to go on from there.
func (w *watcher) stream(ctx context.Context, yield func(Batch, error) bool) (more bool, err error) {
	st, err := w.link.stream(ctx, w.not)
	if err != nil {
		return false, asWatchError(ctx, wire.FromError(err))
	}
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := st.conn.rpc.Watch(call, connect.NewRequest(&holdfastv1.WatchRequest{Lock: w.o.Lock, Prefix: w.o.Prefix, AfterRevision: &w.after}))
	if err != nil {
		return w.broken(ctx, st, err)
	}
	defer func() { _ = s.Close() }()
	var events []Event // of a revision that comes in several messages
	for s.Receive() {
		m := s.Msg()
		if events, err = w.events(events, m); err != nil {
			return false, err
		}
		if m.GetMore() {
			continue // if the rest does not come, the next stream begins before it
		}
		w.after = max(w.after, m.GetRevision())
		if len(events) > 0 && !yield(Batch{Events: events, Revision: w.after}, nil) {
			return false, nil
		}
		events = nil
	}
	return w.broken(ctx, st, s.Err())
}

// events decodes one message's events, and leaves out what was delivered
// before.
func (w *watcher) events(events []Event, m *holdfastv1.WatchResponse) ([]Event, error) {
	var d decoder
	for _, e := range m.GetEvents() {
		if e.GetRevision() > w.after {
			events = append(events, d.event(e))
		}
	}
	return events, d.result()
}

// broken decides what follows the end of one stream.
func (w *watcher) broken(ctx context.Context, st *stream, err error) (more bool, _ error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	e := wire.FromError(err)
	if e != nil && e.Kind != driver.Unavailable {
		return false, asWatchError(ctx, e)
	}
	// The server is gone or ends its streams. The session stream notices by
	// itself if the line is gone; only a server that says it cannot serve is
	// left from here. Either way the watch goes on where it was.
	if e != nil && answered(err) {
		w.link.refusedUnary(st, e)
		w.not = st
		return true, nil
	}
	w.not = nil
	t := time.NewTimer(watchPause)
	defer t.Stop()
	select {
	case <-t.C:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// watchPause spaces the tries of a watch whose stream broke.
const watchPause = 50 * time.Millisecond

// asWatchError gives an error of the service the form that callers look for.
func asWatchError(ctx context.Context, e *driver.Error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e.Kind == driver.NotFound {
		return fmt.Errorf("%w (%w)", ErrCompacted, e)
	}
	return asRead(e)
}

func (d *decoder) event(e *holdfastv1.Event) Event {
	var audit *AuditCall
	if e.GetAudit() != nil {
		audit = auditCall(e.GetAudit())
	}
	return Event{
		Audit:    audit,
		Revision: e.GetRevision(), Kind: e.GetKind(), Cause: e.GetCause(), Lock: e.GetLock(),
		SessionID: e.GetSessionId(), Label: e.GetLabel(), Host: e.GetHost(),
		Grant: e.GetGrant(), Token: d.token(e.GetToken()), Shared: e.GetShared(),
		HasValue: e.Value != nil, Value: e.GetValue(), Clock: wire.FromMillis(e.GetClockMs()),
		By: e.GetBy(), Burnt: e.GetBurnt(),
	}
}
