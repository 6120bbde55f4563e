package sqlgate

import (
	"context"
	"time"
)

// The points at which a test can stop a Do.
const (
	PointPlanned     = pointPlanned
	PointLocked      = pointLocked
	PointUncommitted = pointUncommitted
)

// SetReached has f called at each point of the gate's steps.
func (g *Gate) SetReached(f func(ctx context.Context, point string)) { g.reached = f }

// CheckWrite and CheckRead say whether a text is one that Do or a Snapshot
// takes.
func CheckWrite(text string) error { return SQLite.check(text, true) }
func CheckRead(text string) error  { return SQLite.check(text, false) }

// SetBound changes how long the gate waits, after New has had its own time.
func (g *Gate) SetBound(d time.Duration) { g.bound = d }

// SetReached has f called at each point of the gate's steps.
func (g *Postgres) SetReached(f func(ctx context.Context, point string)) { g.reached = f }

// SetBound changes how long the gate waits, after New has had its own time.
func (g *Postgres) SetBound(d time.Duration) { g.bound = d }
