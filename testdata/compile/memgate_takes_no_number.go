// cannot use 33 (untyped int constant) as fence.Token value in argument to g.Arm
package main

import (
	"context"

	"holdfast/gate/memgate"
)

func arm(ctx context.Context, g *memgate.Gate) { _ = g.Arm(ctx, 33) }

func main() {}
