package gap

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// An Acquirer takes locks with a service's own client. Its methods may be
// called by several goroutines at once.
type Acquirer interface {
	// Once takes a lock, calls granted as soon as it is held, and releases it.
	// No two calls for one lock are under way at the same time.
	Once(ctx context.Context, lock string, granted func()) error
	// Close ends the client.
	Close()
}

// retryPause is between two tries of a worker of which the first failed.
const retryPause = 10 * time.Millisecond

// load runs workers until its stop is called, which closes a. Each takes and releases a lock
// of its own, again and again, and tries again when that fails.
func load(ctx context.Context, a Acquirer, attempt time.Duration, t *timeline) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for worker := range t.last {
		lock := fmt.Sprintf("gap/%d", worker)
		wg.Go(func() {
			for ctx.Err() == nil {
				try, done := context.WithTimeout(ctx, attempt)
				err := a.Once(try, lock, func() { t.grant(worker) })
				done()
				if err == nil || ctx.Err() != nil {
					continue
				}
				t.fail(err)
				pause(ctx, retryPause)
			}
		})
	}
	return func() {
		cancel()
		a.Close() // what still waits for an answer ends with it
		wg.Wait()
	}
}

// pause waits, or until ctx ends, and reports whether it has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
