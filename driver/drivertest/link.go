package drivertest

import (
	"context"
	"sync"
	"time"

	"holdfast/driver"
)

// An Op names a call of a driver or a session.
type Op string

// The calls.
const (
	OpOpen      Op = "open"
	OpKeepalive Op = "keepalive"
	OpAcquire   Op = "acquire"
	OpCancel    Op = "cancel"
	OpRelease   Op = "release"
	OpEnd       Op = "end"
)

// A Call is one call that came to a [Link].
type Call struct {
	Op     Op
	N      int // counts the calls of this Op on the link, from 1
	Lock   string
	ID     driver.RequestID // acquire, cancel
	Grant  string           // release
	Failed bool             // release
	At     time.Time
}

// A Fault is what happens to a call. The zero Fault passes it.
type Fault struct {
	// Before holds the request back this long, or until the caller's
	// context ends.
	Before time.Duration
	// DropRequest: the service never sees it, and the caller hears nothing.
	DropRequest bool
	// Refuse: the service never sees it, and the caller gets this error.
	Refuse error
	// DropReply: the service answers, and the caller hears nothing.
	DropReply bool
	// Break: the service answers, and the caller gets this error instead.
	Break error
	// Interrupt ends the call's context after this long, as a broken line
	// does; the caller gets Break.
	Interrupt time.Duration
	// Late holds the answer back this long, whatever the caller's context
	// says: the reply that comes when nobody expects it any more.
	Late time.Duration
	// Seen, if not nil, is called when the service has answered.
	Seen func()
}

// A Link is a driver over a line that can be damaged. It passes everything
// until it is told otherwise.
type Link struct {
	inner driver.Driver

	mu struct {
		sync.Mutex
		rule  func(Call) Fault
		cut   bool
		thaw  chan struct{} // not nil: frozen until it is closed
		calls []Call
		count map[Op]int
		told  int // how often an acquire was said to wait
	}
}

// NewLink returns a link to a driver, which it takes over.
func NewLink(inner driver.Driver) *Link {
	l := &Link{inner: inner}
	l.mu.count = make(map[Op]int)
	return l
}

// A FencedLink is a [Link] to an engine with tokens.
type FencedLink struct{ *Link }

// NewFencedLink is [NewLink] for engines with tokens.
func NewFencedLink(inner driver.Fenced) FencedLink { return FencedLink{NewLink(inner)} }

// Fenced marks the link as one to an engine with tokens.
func (FencedLink) Fenced() {}

// On sets the rule that damages calls from now on; nil damages none.
func (l *Link) On(rule func(Call) Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.rule = rule
}

// Cut drops every request and every reply from now on, also of calls that are
// under way.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = true
}

// Freeze holds every request and every reply until Thaw, and hands them on
// then, however late: what a client that was stopped finds in its sockets.
func (l *Link) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.thaw == nil {
		l.mu.thaw = make(chan struct{})
	}
}

// Thaw ends Freeze.
func (l *Link) Thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.thaw != nil {
		close(l.mu.thaw)
		l.mu.thaw = nil
	}
}

// Restore ends Cut.
func (l *Link) Restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = false
}

// Heal ends every damage.
func (l *Link) Heal() {
	l.Thaw()
	l.Restore()
	l.On(nil)
}

// Calls returns the calls of an Op so far.
func (l *Link) Calls(op Op) []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var calls []Call
	for _, c := range l.mu.calls {
		if c.Op == op {
			calls = append(calls, c)
		}
	}
	return calls
}

// Queued is how often an acquire was said to stand in the queue
// ([driver.AcquireRequest].Queued).
func (l *Link) Queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.told
}

// queued passes on that a request waits, as a reply is passed: not over a cut
// line, and not over a frozen one before it thaws.
func (l *Link) queued(tell func()) func() {
	return func() {
		l.mu.Lock()
		cut, thaw := l.mu.cut, l.mu.thaw
		if !cut && thaw == nil {
			l.mu.told++
		}
		l.mu.Unlock()
		switch {
		case cut || tell == nil:
		case thaw == nil:
			tell()
		default:
			go func() {
				<-thaw
				l.queued(tell)()
			}()
		}
	}
}

func (l *Link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.cut
}

// note records a call and says what happens to it.
func (l *Link) note(c Call) Fault {
	l.mu.Lock()
	l.mu.count[c.Op]++
	c.N, c.At = l.mu.count[c.Op], time.Now()
	l.mu.calls = append(l.mu.calls, c)
	rule := l.mu.rule
	l.mu.Unlock()
	if rule == nil {
		return Fault{}
	}
	return rule(c)
}

// frozen waits for the thaw.
func (l *Link) frozen() {
	l.mu.Lock()
	thaw := l.mu.thaw
	l.mu.Unlock()
	if thaw != nil {
		<-thaw
	}
}

// lost is the error of a call of which the caller heard nothing.
func lost(ctx context.Context) error {
	return &driver.Error{Kind: driver.Unavailable, Err: context.Cause(ctx)}
}

// pass sends one call through the link.
func pass[R any](ctx context.Context, l *Link, c Call, call func(context.Context) (R, error)) (R, error) {
	var none R
	f := l.note(c)
	if f.Before > 0 {
		select {
		case <-time.After(f.Before):
		case <-ctx.Done():
			return none, lost(ctx)
		}
	}
	l.frozen()
	switch {
	case f.Refuse != nil:
		return none, f.Refuse
	case f.DropRequest || l.isCut():
		<-ctx.Done()
		return none, lost(ctx)
	}
	callCtx := ctx
	if f.Late > 0 {
		callCtx = context.WithoutCancel(ctx)
	}
	if f.Interrupt > 0 {
		var cancel context.CancelFunc
		callCtx, cancel = context.WithTimeout(callCtx, f.Interrupt)
		defer cancel()
	}
	r, err := call(callCtx)
	if f.Seen != nil {
		f.Seen()
	}
	if f.Late > 0 {
		<-time.After(f.Late)
	}
	l.frozen()
	switch {
	case f.Break != nil:
		return none, f.Break
	case f.DropReply || l.isCut():
		<-ctx.Done()
		return none, lost(ctx)
	}
	return r, err
}

// Open implements [driver.Driver].
func (l *Link) Open(ctx context.Context, req driver.OpenRequest) (driver.Session, error) {
	s, err := pass(ctx, l, Call{Op: OpOpen}, func(ctx context.Context) (driver.Session, error) { return l.inner.Open(ctx, req) })
	if err != nil {
		return nil, err
	}
	return &linkSession{l: l, inner: s}, nil
}

// Close implements [driver.Driver].
func (l *Link) Close() error { return l.inner.Close() }

type linkSession struct {
	l     *Link
	inner driver.Session
}

func (s *linkSession) Keepalive(ctx context.Context) (driver.Pulse, error) {
	return pass(ctx, s.l, Call{Op: OpKeepalive}, s.inner.Keepalive)
}

func (s *linkSession) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.Grant, error) {
	c := Call{Op: OpAcquire, Lock: req.Lock, ID: req.ID}
	req.Queued = s.l.queued(req.Queued)
	return pass(ctx, s.l, c, func(ctx context.Context) (driver.Grant, error) { return s.inner.Acquire(ctx, req) })
}

func (s *linkSession) Cancel(ctx context.Context, id driver.RequestID) error {
	_, err := pass(ctx, s.l, Call{Op: OpCancel, ID: id}, nothing(func(ctx context.Context) error { return s.inner.Cancel(ctx, id) }))
	return err
}

func (s *linkSession) Release(ctx context.Context, req driver.ReleaseRequest) error {
	_, err := pass(ctx, s.l, Call{Op: OpRelease, Grant: req.Grant, Failed: req.Failed}, nothing(func(ctx context.Context) error { return s.inner.Release(ctx, req) }))
	return err
}

func (s *linkSession) End(ctx context.Context) error {
	_, err := pass(ctx, s.l, Call{Op: OpEnd}, nothing(s.inner.End))
	return err
}

func nothing(call func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) }
}
