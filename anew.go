package holdfast

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// An acquire whose session turns out to have ended before the request was
// confirmed in it, is begun anew in another session, and its caller need not
// know: nothing was granted to it, and it had no place in a queue to lose. One
// that stood in the queue has lost its place, and is told (C16, C17).

// mostAnew is how often one acquire is begun anew at most. Each time costs a
// session, so a service that ends sessions as soon as they are used is not
// asked for ever.
const mostAnew = 5

// confirmed reports whether w was known to wait in this session: the service
// said so, or answered a keepalive that left after the request had begun, and
// so still knew the session. A try never waits. s.mu is held.
func (s *session) confirmed(w *waiter) bool {
	return !w.try && (w.queued.Load() || s.mu.m.Good() > w.begun)
}

// beforeAnew lets some time pass from the second time on.
func (c *client) beforeAnew(ctx context.Context, times int) {
	if times == 0 {
		return
	}
	pause := min(c.o.KeepaliveInterval/4, 100*time.Millisecond) << times
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// waitLost says why the session was lost in which somebody waited.
type waitLost struct {
	cause Cause
	err   error // what the service last said, or nil
}

func (e *waitLost) Error() string {
	text := fmt.Sprintf("%v while waiting for the lock: %s", ErrSessionLost, e.cause.words())
	if e.err != nil {
		text += fmt.Sprintf(" (%v)", e.err)
	}
	return text
}

func (e *waitLost) Unwrap() error { return e.err }
