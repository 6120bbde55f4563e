package sim

import (
	"time"

	"holdfast/internal/planted"
	"holdfast/server/lease"
)

// weakened is the deadline machine's part of the bug that is planted, if any.
func weakened() (w lease.Weakening) {
	if !planted.Able {
		return w
	}
	if planted.On("B2-clock-of-its-own") {
		w.OwnClock = time.Minute
	}
	w.KeepMemory = planted.On("B3-memory-kept")
	w.AnswerWithoutClear = planted.On("B5-no-clear")
	w.ForgetInFlight = planted.On("B5-in-flight-forgotten")
	w.LeaseReads = planted.On("B5-no-confirmation")
	w.ExpireWithoutSuspicion = planted.On("B4-no-suspicion")
	w.SuspectAtHalfOnly = planted.On("B6-half-only")
	w.CoarseTicks = planted.On("B6-coarse-ticks")
	w.NoTicks = planted.On("B6-no-ticks")
	w.ExpireDespiteClear = planted.On("B4-any-since") // else nothing voids an expiry
	w.CountStalls = planted.On("B9-stalls-count") || planted.On("B9-a-stall-is-silence")
	w.ExpireAfterStallAtOnce = planted.On("B9-expiry-at-once") || planted.On("B9-a-stall-is-silence")
	w.ForgetEnds = planted.On("B8-ends-forgotten")
	w.FreeAtOnce = planted.On("B11-freed-at-once")
	w.ForgetRevokes = planted.On("B11-in-flight-forgotten")
	return w
}
