// compiles: gates on a fenced locker, liveness on both
package main

import (
	"context"
	"time"

	"holdfast"
)

func start(ctx context.Context, f *holdfast.FencedLocker, e *holdfast.EfficiencyLocker, g holdfast.Gate) {
	alive := holdfast.Alive(time.Second, 3, func() error { return nil })
	_, _ = f.Acquire(ctx, "name", holdfast.Arm(g), alive)
	_, _ = e.Acquire(ctx, "name", alive)
}

func main() {}
