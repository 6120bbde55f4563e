package holdfast

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is CLOCK_BOOTTIME, which counts the time that the machine sleeps.
// CLOCK_MONOTONIC, and with it package time, does not.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Every Linux that Go supports has it. A lease on a clock that
		// does not count sleep would be a promise that cannot be kept.
		panic("holdfast: CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
