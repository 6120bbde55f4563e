package holdfast_test

import (
	"context"
	"log/slog"
	"testing"

	"holdfast"
)

// stuckHandler is a log whose reader has stopped.
type stuckHandler struct {
	slog.Handler
	release chan struct{}
}

func (h stuckHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h stuckHandler) Handle(context.Context, slog.Record) error {
	<-h.release
	return nil
}

// A log that nobody reads must not keep the holders from learning that their
// leases have run out.
func TestAStuckLoggerHoldsNobodyUp(t *testing.T) {
	bubble(t, func(b *bench) {
		o := b.options()
		h := stuckHandler{slog.DiscardHandler, make(chan struct{})}
		o.Logger = slog.New(h)
		l, link := b.locker(o)
		x, y := b.acquire(l, "x"), b.acquire(l, "y")
		link.Cut()
		pass(ttl)
		for _, g := range []*holdfast.Grant{x, y} {
			select {
			case <-g.Context().Done():
			default:
				t.Errorf("%s: the context lives on after the deadline", g.Lock())
			}
			if s := g.State(); s != holdfast.StateLost {
				t.Errorf("%s is %v", g.Lock(), s)
			}
		}
		close(h.release)
	})
}
