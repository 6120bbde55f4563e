package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

const (
	// A watcher whose filter matches nothing is told the revision it came to
	// this often, so that it resumes from there and not from what is gone.
	progressEvery     = time.Second
	progressRevisions = 1000
	// watchChunk is about how many bytes of events go into one response.
	watchChunk = wire.MaxFrame / 4
)

// filter says which events a watcher wants: of one lock, of a prefix, or all.
type filter struct{ lock, prefix string }

func newFilter(lock, prefix string) (filter, error) {
	if lock != "" && prefix != "" {
		return filter{}, invalid("lock and prefix exclude each other: give one of them, or none for all events")
	}
	if lock != "" {
		if err := checkLock(lock); err != nil {
			return filter{}, err
		}
	}
	return filter{lock, prefix}, checkPrefix(prefix)
}

// wants reports whether e is for this watcher. Events that are of no lock
// (sessions, epochs) are for those who watch everything; that the epoch was
// raised concerns everybody.
func (f filter) wants(e *core.Event) bool {
	switch {
	case f.lock == "" && f.prefix == "", e.Kind == core.EventEpoch:
		return true
	case f.lock != "":
		return e.Lock == f.lock
	}
	return e.Lock != "" && strings.HasPrefix(e.Lock, f.prefix)
}

// follower is one watcher: a place in the stream of events, and a filter.
type follower struct {
	s      *service
	watch  *Watch
	filter filter
	// at is the revision up to which everything was filtered; told and
	// toldAt are that, and when, as of the last return.
	at     core.Revision
	told   core.Revision
	toldAt time.Time
}

// follow starts to watch after a revision, or from now on if it is nil. A
// revision above any that exists is not waited for: it is of another service,
// or of one that was restored, and the watcher must reload.
func (s *service) follow(ctx context.Context, f filter, after *uint64) (*follower, error) {
	var current core.Revision
	reached := func(r Reading) { current = r.State.Revision() }
	if err := s.node.View(ctx, true, reached); err != nil {
		return nil, nothingDone(err)
	}
	from := current
	if after != nil {
		from = core.Revision(*after)
	}
	if from > current {
		// A node that lags may not know it yet; the leader knows.
		err := s.node.View(ctx, false, reached)
		var away *NotLeaderError
		if err != nil && !errors.As(err, &away) {
			return nil, nothingDone(err)
		}
		if err == nil && from > current {
			return nil, reload(from, current, fmt.Sprintf("revision %d is ahead of this service, which is at %d", from, current))
		}
	}
	w, err := s.node.Watch(from)
	if errors.Is(err, ErrCompacted) {
		return nil, reload(from, current, fmt.Sprintf("the events after revision %d are no longer kept", from))
	}
	if err != nil {
		return nil, err
	}
	return &follower{s: s, watch: w, filter: f, at: from, told: from, toldAt: time.Now()}, nil
}

// reload tells a watcher that it missed something. Its error carries the
// current revision, from which it can watch once it has read the state.
func reload(from, current core.Revision, why string) error {
	return &driver.Error{
		Kind: driver.NotFound, Outcome: driver.No,
		Msg: why + ": read the locks again (GetLock, ListLocks), then watch after the revision which that read names",
		Err: errors.Join(errReload, &wire.Remote{Info: &holdfastv1.ErrorInfo{Revision: uint64(current)}}),
	}
}

// errReload is in the chain of what reload returns.
var errReload = errors.New("reload")

// reloadFrom reports whether err tells a watcher to reload, and the revision
// from which it can go on.
func reloadFrom(err error) (revision uint64, ok bool) {
	if !errors.Is(err, errReload) {
		return 0, false
	}
	return wire.RemoteOf(err).Revision(), true
}

// next waits for events that the filter wants. It also returns, without
// events, when the revision moved on for a while, so that the watcher can be
// told.
func (f *follower) next(ctx context.Context) ([]core.Event, error) {
	for {
		events, rev, err := f.watch.Next(ctx)
		if errors.Is(err, ErrCompacted) {
			current := f.s.node.Status().Revision
			return nil, reload(f.at, current, fmt.Sprintf("this watcher fell behind: the events after revision %d are no longer kept", f.at))
		}
		if err != nil {
			return nil, err
		}
		f.at = rev
		var wanted []core.Event
		for i := range events {
			if f.filter.wants(&events[i]) {
				wanted = append(wanted, events[i])
			}
		}
		if len(wanted) > 0 || rev >= f.told+progressRevisions || time.Since(f.toldAt) >= progressEvery {
			f.told, f.toldAt = rev, time.Now()
			return wanted, nil
		}
	}
}

// untilStop is ctx, ended also when the server stops.
func (s *service) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.stopping, func() { cancel(ErrStopped) })
	return ctx, func() { stop(); cancel(nil) }
}

// watchEnded is the error with which a watch ends: nil if it was the caller's
// wish.
func watchEnded(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), ErrStopped):
		return &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "the server is stopping: watch on from the last revision elsewhere, or here when it is back"}
	case ctx.Err() != nil:
		return nothingDone(context.Cause(ctx))
	}
	return err
}

// Watch implements the service.
func (s *service) Watch(ctx context.Context, req *connect.Request[holdfastv1.WatchRequest], stream *connect.ServerStream[holdfastv1.WatchResponse]) error {
	callOf(ctx).decoded()
	m := req.Msg
	filter, err := newFilter(m.GetLock(), m.GetPrefix())
	if err != nil {
		return err
	}
	f, err := s.follow(ctx, filter, m.AfterRevision)
	if err != nil {
		return err
	}
	s.metrics.watchers.Inc()
	defer s.metrics.watchers.Dec()
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	slow := callOf(ctx).slowReader(s.slowAfter, func() {})
	defer slow.done()
	send := func(r *holdfastv1.WatchResponse) error {
		defer slow.writing()()
		return slow.why(stream.Send(r))
	}
	if err := send(&holdfastv1.WatchResponse{Revision: uint64(f.at)}); err != nil {
		return err
	}
	for {
		before := f.at
		events, err := f.next(ctx)
		if err != nil {
			return watchEnded(ctx, err)
		}
		for _, r := range watchResponses(s.at(), events, before, f.at) {
			if err := send(r); err != nil {
				return err
			}
		}
	}
}

// watchResponses puts events into responses of about watchChunk bytes. A
// revision is split only if it is larger than that alone; before its last part
// a resume begins with it again.
func watchResponses(now at, events []core.Event, before, last core.Revision) []*holdfastv1.WatchResponse {
	var out []*holdfastv1.WatchResponse
	r := &holdfastv1.WatchResponse{}
	size := 0
	whole := before // all events up to this revision are in out or r
	for i := range events {
		msg := eventMessage(now, &events[i])
		n := proto.Size(msg)
		if size > 0 && size+n > watchChunk {
			// Cut, if possible between two revisions.
			r.Revision, r.More = uint64(whole), events[i-1].Revision == events[i].Revision
			out = append(out, r)
			r, size = &holdfastv1.WatchResponse{}, 0
		}
		r.Events = append(r.Events, msg)
		size += n
		if i+1 == len(events) || events[i+1].Revision != events[i].Revision {
			whole = events[i].Revision
		}
	}
	r.Revision = uint64(last)
	return append(out, r)
}

// Poll implements the service.
func (s *service) Poll(ctx context.Context, req *connect.Request[holdfastv1.PollRequest]) (*connect.Response[holdfastv1.PollResponse], error) {
	m := req.Msg
	filter, err := newFilter(m.GetLock(), m.GetPrefix())
	if err != nil {
		return nil, err
	}
	wait, err := checkSpan("wait_ms", m.GetWaitMs(), wire.MaxPollWait)
	if err != nil {
		return nil, err
	}
	var after *uint64
	if m.GetAfterRevision() != 0 {
		after = &m.AfterRevision
	}
	f, err := s.follow(ctx, filter, after)
	if err != nil {
		return nil, err
	}
	if after == nil {
		return answer(&holdfastv1.PollResponse{Revision: uint64(f.at)})
	}
	waiting, cancel := s.untilStop(ctx)
	defer cancel()
	waiting, over := context.WithTimeout(waiting, wait)
	defer over()
	for {
		events, err := f.next(waiting)
		out := &holdfastv1.PollResponse{Revision: uint64(f.at)}
		switch {
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return answer(out) // the time is up, or the server stops: nothing yet
		case err != nil:
			return nil, watchEnded(waiting, err)
		case len(events) == 0:
			continue
		}
		if !fillPoll(out, s.at(), events) {
			rev := events[0].Revision
			return nil, reload(rev-1, f.at, fmt.Sprintf("the events of revision %d are more than one answer holds (Watch can tell them)", rev))
		}
		return answer(out)
	}
}

// fillPoll puts events into an answer, whole revisions until they are about
// watchChunk bytes; the next poll goes on from there. It returns false if the
// first revision alone does not fit into a frame.
func fillPoll(out *holdfastv1.PollResponse, now at, events []core.Event) bool {
	size, whole := 0, 0
	for i := range events {
		msg := eventMessage(now, &events[i])
		if size += proto.Size(msg); size > watchChunk && whole > 0 || size > maxPageBytes {
			out.Events, out.Revision = out.Events[:whole], uint64(events[max(whole-1, 0)].Revision)
			return whole > 0
		}
		out.Events = append(out.Events, msg)
		if i+1 == len(events) || events[i+1].Revision != events[i].Revision {
			whole = i + 1
		}
	}
	return true
}
