package server

import (
	"testing"
	"time"

	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
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

// TestAStreamThatEndedSendsNothingOn: what a client sent before its stream
// ended must not come over the node all at once then.
func TestAStreamThatEndedSendsNothingOn(t *testing.T) {
	w := start(t)
	s := w.overConnect()
	id := s.opened("p", "a", drawSecret())
	blocked, release := make(chan struct{}), make(chan struct{})
	go w.node.View(t.Context(), true, func(Reading) { close(blocked); <-release })
	<-blocked // the loop
	ids := make([]uint64, 300_000)
	for i := range ids {
		ids[i] = id
	}
	s.say(frameKeepAlive(ids...))
	inbox := func() int {
		w.node.in.mu.Lock()
		defer w.node.in.mu.Unlock()
		return len(w.node.in.mu.urgent) + len(w.node.in.mu.refused)
	}
	w.until("the stream is full", func() bool { return inbox() >= maxUnanswered })
	w.service.streams.list()[0].close(errSlow)
	w.until("the stream has ended", func() bool { return len(w.service.streams.list()) == 0 })
	if n := inbox(); n > maxUnanswered+2 {
		t.Errorf("%d requests of a stream that ended wait in the inbox: want at most %d", n, maxUnanswered+2)
	}
	close(release)
	// Nor does it work through what nobody will read.
	other := w.overConnect()
	other.opened("q", "b", drawSecret())
	st := w.service.streams.list()[0]
	st.close(errSlow)
	frames := []*holdfastv1.ClientFrame{frameKeepAlive(1, 2, 3)}
	frames[0].Id = 1
	if err := st.handle(t.Context(), &holdfastv1.SessionRequest{Frames: frames}); err == nil {
		t.Error("a message was dealt with after the end")
	}
}
