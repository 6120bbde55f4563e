package server

import (
	"testing"
	"time"

	"holdfast/server/core"
)

// TestAStreamFillsItsOwnConnectionFirst: what one client sends faster than the
// node answers must not take the room of others, nor memory without end.
func TestAStreamFillsItsOwnConnectionFirst(t *testing.T) {
	tongues(t, func(t *testing.T, w *world, open func(*world) *tongue) {
		s := open(w)
		id := s.opened("p", "a", drawSecret())
		blocked, release := make(chan struct{}), make(chan struct{})
		go w.node.View(t.Context(), true, func(Reading) { close(blocked); <-release })
		<-blocked // the loop
		const keepalives = 300_000
		ids := make([]uint64, keepalives)
		for i := range ids {
			ids[i] = id
		}
		frame := s.say(frameKeepAlive(ids...))
		inbox := func() int {
			w.node.in.mu.Lock()
			defer w.node.in.mu.Unlock()
			return len(w.node.in.mu.urgent) + len(w.node.in.mu.refused)
		}
		w.until("the stream is full", func() bool { return inbox() >= maxUnanswered })
		settled := time.NewTimer(200 * time.Millisecond)
		<-settled.C
		if n := inbox(); n > maxUnanswered+2 {
			t.Errorf("%d requests of one stream wait in the inbox: want at most %d", n, maxUnanswered+2)
		}
		close(release)
		for got := 0; got < keepalives; {
			got += len(s.answer(frame).GetKeepAlives().GetPulses())
		}
		// The session is unharmed, and so is the stream.
		s.answer(s.say(frameKeepAlive(id)))
		if !w.service.voices.attached(core.SessionID(id)) {
			t.Error("the session has no voice any more")
		}
	})
}
