package gap

import (
	"fmt"
	"sync"
	"time"
)

// success is one grant: which worker got it, and when, on the timeline's clock.
type success struct {
	worker int
	at     time.Duration
}

// A timeline records grants, on one monotonic clock.
type timeline struct {
	began time.Time

	mu     sync.Mutex
	all    []success       // in the order of their times, since the last forget
	last   []time.Duration // of each worker; 0: none yet
	grants int             // since the beginning
	failed map[string]int  // tries that failed, by what was said
}

func newTimeline(workers int) *timeline {
	return &timeline{began: time.Now(), last: make([]time.Duration, workers), failed: make(map[string]int)}
}

func (t *timeline) now() time.Duration { return time.Since(t.began) }

// grant records a grant as of now.
func (t *timeline) grant(worker int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.now() // under the lock, so that the times never fall
	t.all = append(t.all, success{worker: worker, at: at})
	t.last[worker] = at
	t.grants++
}

func (t *timeline) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed[err.Error()]++
}

// forget drops what is recorded, but for the latest grant.
func (t *timeline) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.all); n > 0 {
		t.all = append([]success(nil), t.all[n-1])
	}
}

// since reports the longest time that any worker is without a grant by now,
// and the number of grants so far.
func (t *timeline) since() (longest time.Duration, grants int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, at := range t.last { // 0, the beginning, if there was none
		longest = max(longest, now-at)
	}
	return longest, t.grants
}

// judge is the outage around a kill, from what is recorded so far.
func (t *timeline) judge(killed, gone time.Duration) (Outage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return judge(t.all, len(t.last), killed, gone, t.now())
}

// An Outage is what one death of a leader did.
type Outage struct {
	// Gap is the longest time between two successive grants, of whichever
	// workers, of which the second came after the kill.
	Gap time.Duration
	// Leader is from the kill until another node said that it leads. It is
	// asked every 20 ms.
	Leader time.Duration
	// All is from the kill until every worker had two grants after the end of
	// the process: its first may have been on its way by then.
	All time.Duration
}

// lively is how recent a worker's latest grant is while it is served.
const lively = time.Second

// judge finds the outage in a timeline that ends at end. Grants are in the
// order of their times. The leader was killed at killed, and its process had
// ended at gone.
func judge(all []success, workers int, killed, gone, end time.Duration) (Outage, error) {
	var o Outage
	from, after := killed, make([]int, workers)
	served := 0
	for _, s := range all {
		if s.at <= killed {
			from = s.at
			continue
		}
		o.Gap, from = max(o.Gap, s.at-from), s.at
		if s.at <= gone {
			continue
		}
		if after[s.worker]++; after[s.worker] == 2 {
			served++
			o.All = s.at - killed
		}
	}
	if end-from > lively {
		return o, fmt.Errorf("no grant in the last %v: the outage has not ended", end-from)
	}
	if served < workers {
		return o, fmt.Errorf("%d of %d workers were not served again", workers-served, workers)
	}
	return o, nil
}
