// cannot use holdfast.Arm(g) (value of interface type holdfast.AcquireOption) as holdfast.HoldOption value in argument to l.Acquire
package main

import (
	"context"

	"holdfast"
)

func start(ctx context.Context, l *holdfast.EfficiencyLocker, g holdfast.Gate) {
	_, _ = l.Acquire(ctx, "name", holdfast.Arm(g))
}

func main() {}
