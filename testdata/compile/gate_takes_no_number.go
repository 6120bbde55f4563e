// cannot use uint64(33) (constant 33 of type uint64) as fence.Token value in argument to g.Arm
package main

import (
	"context"

	"holdfast"
)

func arm(ctx context.Context, g holdfast.Gate) { _ = g.Arm(ctx, uint64(33)) }

func main() {}
