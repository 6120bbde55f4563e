package cluster

import (
	"context"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/wire"
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
	l.leave(must[*stream](t)(l.stream(t.Context(), nil)), errSilent, "")
	attachesSlowDown(f, began)
}

// The same of one that attaches, and then refuses what it is asked.
func TestBackoffFromAServerThatCannotRead(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.read = wire.Error(&driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "no leader"})
	c := dial(t, f.addr, nil)
	openOne(t, c.link)
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan struct{})
	began := time.Now()
	go func() { defer close(read); _, _ = c.Get(ctx, "a", GetOptions{}) }()
	attachesSlowDown(f, began)
	cancel()
	<-read
}

func attachesSlowDown(f *fake, began time.Time) {
	f.t.Helper()
	f.until("seven attaches", func(ms []message) bool {
		return count(ms, func(_ int, fr *holdfastv1.ClientFrame) bool { return fr.GetAttach() != nil }) >= 7
	})
	// At least a quarter of 25, 50, 100, 200, 400, 800 and 1000 ms.
	if took := time.Since(began); took < 600*time.Millisecond {
		f.t.Errorf("seven attaches within %v", took)
	}
}
