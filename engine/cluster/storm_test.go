package cluster

import (
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/wire/holdfastv1"
)

// A server that is too busy to attach its clients is not asked by all of them
// again and again without a growing pause.
func TestBackoffFromAServerThatCannotAttach(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	l := line(t, f.addr)
	openOne(t, l)
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetAttach() != nil {
			return refuse(&driver.Error{Kind: driver.Overloaded, Outcome: driver.No, Msg: "busy"})
		}
		return nil
	})
	began := time.Now()
	l.mu.Lock()
	l.leaveLocked(l.mu.cur, errSilent, "")
	l.mu.Unlock()
	f.until("seven attaches", func(ms []message) bool {
		return count(ms, func(_ int, fr *holdfastv1.ClientFrame) bool { return fr.GetAttach() != nil }) >= 7
	})
	// At least a quarter of 25, 50, 100, 200, 400, 800 and 1000 ms.
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("seven attaches within %v", took)
	}
}
