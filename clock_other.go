//go:build !linux

package holdfast

import (
	"sync"
	"time"
)

// sleepJump is the least difference between wall clock and monotonic clock
// that is taken for sleep.
const sleepJump = time.Second

var sleepless = struct {
	sync.Mutex
	last    time.Time
	elapsed time.Duration
}{last: time.Now()}

// sinceBoot is the monotonic clock, which does not count sleep everywhere; so
// the time by which the wall clock jumps ahead of it is counted as well. A
// wall clock set forward costs leases, and never safety.
func sinceBoot() time.Duration {
	sleepless.Lock()
	defer sleepless.Unlock()
	now := time.Now()
	step := now.Sub(sleepless.last)
	if wall := now.Round(0).Sub(sleepless.last.Round(0)); wall > step+sleepJump {
		step = wall
	}
	sleepless.last = now
	sleepless.elapsed += step
	return sleepless.elapsed
}
