// compiles: a gate takes a grant's token
package main

import (
	"context"

	"holdfast"
)

func arm(ctx context.Context, g holdfast.Gate, h *holdfast.Grant) { _ = g.Arm(ctx, h.Token()) }

func main() {}
