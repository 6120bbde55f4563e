// cannot use h (variable of type *holdfast.Hold) as fence.Token value in argument to g.Arm
package main

import (
	"context"

	"holdfast"
)

func arm(ctx context.Context, g holdfast.Gate, h *holdfast.Hold) { _ = g.Arm(ctx, h) }

func main() {}
