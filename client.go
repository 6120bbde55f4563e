package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/driver"
	"holdfast/fence"
)

// client opens sessions on a driver, one at a time, and hands requests to the
// newest. It refers to no locker and no grant.
type client struct {
	d driver.Driver
	o Options // complete

	sessionsOpened, keepalives, failures, losses atomic.Uint64

	mu struct {
		sync.Mutex // a session's mu may be held when it is taken, never the reverse
		current    *session
		opening    *opening
		sessions   map[*session]struct{} // not finished
		closed     bool
	}
	closing   sync.Once
	closeDone chan struct{}
	closeErr  error
}

func newClient(d driver.Driver, o *Options) (*client, error) {
	complete, err := o.complete()
	if err == nil && d == nil {
		err = fmt.Errorf("%w: no driver: pass one of an engine", ErrInvalid)
	}
	if err != nil {
		return nil, wrap("new locker", "", nil, err)
	}
	if complete.Host == "" {
		if host, err := os.Hostname(); err == nil {
			complete.Host = strings.ToValidUTF8(host[:min(len(host), MaxLabel)], "")
		}
	}
	c := &client{d: d, o: complete, closeDone: make(chan struct{})}
	c.mu.sessions = make(map[*session]struct{})
	return c, nil
}

func (c *client) stats() Stats {
	return Stats{
		Sessions: c.sessionsOpened.Load(), Keepalives: c.keepalives.Load(),
		KeepaliveFailures: c.failures.Load(), Losses: c.losses.Load(),
	}
}

func (c *client) grant(ctx context.Context, op, name string, try bool, opts []AcquireOption) (*Grant, error) {
	o, err := collect(name, opts)
	if err != nil {
		return nil, wrap(op, name, nil, err)
	}
	h, err := c.acquire(ctx, op, name, try, o)
	if err != nil {
		return nil, err
	}
	if err := checkToken(h); err != nil {
		_ = h.release(ctx, nil) // if not confirmed, it goes on in the background
		return nil, wrap(op, name, nil, err)
	}
	if err := h.prepare(ctx, op, o); err != nil {
		return nil, err
	}
	g := &Grant{h: h, ctx: leaseContext{Context: h.ctx, h: h}}
	runtime.AddCleanup(g, (*handle).drops, h)
	return g, nil
}

func (c *client) hold(ctx context.Context, op, name string, try bool, opts []HoldOption) (*Hold, error) {
	o, err := collect(name, opts)
	if err != nil {
		return nil, wrap(op, name, nil, err)
	}
	h, err := c.acquire(ctx, op, name, try, o)
	if err != nil {
		return nil, err
	}
	h.token = fence.Token{}
	if err := h.prepare(ctx, op, o); err != nil {
		return nil, err
	}
	g := &Hold{h: h, ctx: leaseContext{Context: h.ctx, h: h}}
	runtime.AddCleanup(g, (*handle).drops, h)
	return g, nil
}

// acquire returns a handle, or an error with nothing held.
func (c *client) acquire(ctx context.Context, op, name string, try bool, o acquireOptions) (*handle, error) {
	for anew := 0; ; {
		if ctx.Err() != nil {
			return nil, wrap(op, name, nil, endOf(ctx))
		}
		s, err := c.session(ctx)
		switch {
		case errors.Is(err, ErrLockerClosed):
			return nil, wrap(op, name, ErrLockerClosed, nil)
		case err != nil && ctx.Err() != nil:
			return nil, wrap(op, name, nil, err)
		case err != nil:
			return nil, wrap(op, name, cmp.Or(kindOf(err), ErrUnavailable), err)
		}
		w, err := s.begin(ctx, name, try, o)
		switch {
		case errors.Is(err, errSessionOver):
			continue // it has left c.mu.current
		case err != nil:
			return nil, wrap(op, name, ErrLimit, err)
		}
		h, err := s.await(ctx, w)
		if err == nil {
			return h, nil
		}
		if w.anew && anew < mostAnew {
			c.beforeAnew(ctx, anew)
			anew++
			continue
		}
		return nil, wrap(op, name, w.kind, err)
	}
}

// endOf returns why ctx ended, such that both ctx.Err and its cause are wrapped.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// opening is one search for a session, shared by all that need it.
type opening struct {
	done    chan struct{}
	s       *session
	err     error
	waiting int // guarded by client.mu
	cancel  context.CancelFunc
}

// session returns the current session, or opens one.
func (c *client) session(ctx context.Context) (*session, error) {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return nil, ErrLockerClosed
	}
	if s := c.mu.current; s != nil {
		c.mu.Unlock()
		return s, nil
	}
	if c.mu.opening == nil {
		c.mu.opening = c.startOpening()
	}
	op := c.mu.opening
	op.waiting++
	c.mu.Unlock()

	select {
	case <-op.done:
		return op.s, op.err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if op.waiting--; op.waiting == 0 {
			op.cancel()
			if c.mu.opening == op {
				c.mu.opening = nil
			}
		}
		return nil, endOf(ctx)
	}
}

// startOpening is called with c.mu held.
func (c *client) startOpening() *opening {
	ctx, cancel := context.WithTimeout(context.Background(), c.o.OpenTimeout)
	op := &opening{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(op.done)
		defer cancel()
		s, err := c.open(ctx)
		c.mu.Lock()
		mine := c.mu.opening == op
		if mine {
			c.mu.opening = nil
		}
		keep := err == nil && mine && !c.mu.closed
		if keep {
			c.mu.current = s
		}
		if s != nil {
			c.mu.sessions[s] = struct{}{}
		}
		closed := c.mu.closed
		c.mu.Unlock()
		switch {
		case s != nil && !keep:
			s.close()
			err = ErrLockerClosed
		case err != nil && closed:
			err = ErrLockerClosed
		}
		if s != nil {
			s.tick() // sets the timer that retires it if nobody comes
		}
		op.s, op.err = s, err
	}()
	return op
}

// open asks until a session is open, the time is up, or asking is no use.
func (c *client) open(ctx context.Context) (*session, error) {
	req := driver.OpenRequest{TTL: c.o.TTL, Label: c.o.Label, Host: c.o.Host}
	pause := min(c.o.KeepaliveInterval/4, 100*time.Millisecond)
	for {
		s, err := c.tryOpen(ctx, req)
		if err == nil {
			c.sessionsOpened.Add(1)
			return s, nil
		}
		switch driver.KindOf(err) {
		case driver.Invalid, driver.Unsupported, driver.Denied, driver.Limit:
			return nil, err
		}
		c.o.Logger.Debug("no session yet", "error", err)
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause/2 + rand.N(pause/2+1)):
			pause = min(2*pause, time.Second)
		}
	}
}

func (c *client) tryOpen(ctx context.Context, req driver.OpenRequest) (*session, error) {
	lease := c.o.TTL - c.o.Margin
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	sent := c.o.Clock() // before the call leaves (B10)
	ds, err := c.d.Open(ctx, req)
	switch {
	case err == nil && ds == nil:
		return nil, &driver.Error{Kind: driver.Internal, Msg: "the engine opened a session and returned none"}
	case err != nil && driver.KindOf(err) == driver.Internal && ctx.Err() != nil:
		return nil, &driver.Error{Kind: driver.Unavailable, Msg: "no answer in time", Err: err}
	case err != nil:
		return nil, err
	}
	s := newSession(c, ds, sent)
	if c.o.Clock() >= sent+lease {
		s.close()
		return nil, &driver.Error{Kind: driver.Unavailable, Msg: fmt.Sprintf("the session took longer to open than its lease of %v is good for", lease)}
	}
	return s, nil
}

// leave makes the next acquire open a new session, if s is still the current.
func (c *client) leave(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.current == s {
		c.mu.current = nil
	}
}

// forget is called when a session wants nothing any more.
func (c *client) forget(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.current == s {
		c.mu.current = nil
	}
	delete(c.mu.sessions, s)
}

// close ends everything; see [FencedLocker.Close].
func (c *client) close(context.Context) error {
	c.closing.Do(func() {
		defer close(c.closeDone)
		c.mu.Lock()
		c.mu.closed = true
		op := c.mu.opening
		c.mu.Unlock()
		bound := time.NewTimer(c.releaseBound())
		defer bound.Stop()
		if op != nil {
			op.cancel()
			select {
			case <-op.done:
			case <-bound.C:
				bound.Reset(0)
			}
		}
		c.mu.Lock()
		sessions := slices.Collect(maps.Keys(c.mu.sessions))
		c.mu.Unlock()
		for _, s := range sessions {
			s.close()
		}
		for _, s := range sessions {
			select {
			case <-s.finished:
				continue
			case <-bound.C:
				bound.Reset(0) // the others are not waited for either
			}
			if err := s.kill(); err != nil {
				c.closeErr = wrap("close", "", ErrReleasePending, err)
			}
		}
		if err := c.d.Close(); err != nil {
			c.closeErr = errors.Join(c.closeErr, wrap("close", "", nil, err))
		}
	})
	<-c.closeDone
	return c.closeErr
}

// mostRelease is how long Release and Close wait for the service at most: a
// long lease makes for long calls, and nobody waits minutes to let go.
const mostRelease = 10 * time.Second

// releaseBound is how long Release and Close wait for the service.
func (c *client) releaseBound() time.Duration {
	return min(max(2*c.o.CallTimeout, time.Second), mostRelease)
}
