// cannot use "33" (untyped string constant) as fence.Token value in argument to g.Arm
package main

import (
	"context"

	"holdfast"
)

func arm(ctx context.Context, g holdfast.Gate) { _ = g.Arm(ctx, "33") }

func main() {}
