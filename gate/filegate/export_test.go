package filegate

import (
	"context"
	"time"
)

// The points at which tests stop a call.
const (
	PointPlanned = pointPlanned
	PointLocked  = pointLocked
	PointFinal   = pointFinal
	PointRaise   = pointRaise
)

// SetReached has f called at each point of the gate's calls.
func (g *Gate) SetReached(f func(ctx context.Context, point string)) { g.reached = f }

// SetBound changes how long the gate waits, after New has had its own time.
func (g *Gate) SetBound(d time.Duration) { g.bound = d }

// CheckMagic judges a file system by its number.
var CheckMagic = checkMagic

// SetNowhere has f called at each point of gates that are opened from now on.
func SetNowhere(f func(ctx context.Context, point string)) { nowhere = f }
