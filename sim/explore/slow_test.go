//go:build race

package explore

// slow makes the runs under the race detector shallower and leaves the longest
// ones to the plain runs. There is no goroutine here for it to watch.
const slow = 3
