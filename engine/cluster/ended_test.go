package cluster

import (
	"testing"

	"holdfast/driver"
	"holdfast/wire/holdfastv1"
)

// TestAnEndedGrantIsNotHeld: the service answers a repeated acquire with its one
// grant, also when that was revoked meanwhile; the client must not take it for
// one that it holds, nor ask again for ever.
func TestAnEndedGrantIsNotHeld(t *testing.T) {
	f := newFake(t)
	s := openOne(t, line(t, f.addr))
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetAcquire() == nil {
			return nil
		}
		out := f.yes(fr)
		out.GetAcquire().Ended = true
		return []*holdfastv1.ServerFrame{out}
	})
	g, err := s.Acquire(t.Context(), request("x", 0, 1))
	if driver.KindOf(err) != driver.NotHeld || driver.OutcomeOf(err) != driver.No || g.ID != "" {
		t.Errorf("an ended grant: %+v, %v", g, err)
	}
}
