package server

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// An open that is repeated finds its session, and a client may count the lease
// from the try that was answered (B10): each answer must extend it.
func TestARepeatedOpenExtendsTheLease(t *testing.T) {
	const ttl = time.Second
	repeat := func(t *testing.T, w *world, open func() uint64) {
		t.Helper()
		id := open()
		tick := time.NewTicker(ttl / 5)
		defer tick.Stop()
		for end := time.Now().Add(5 * ttl / 2); time.Now().Before(end); {
			<-tick.C
			if again := open(); again != id {
				t.Fatalf("the session ran out although its open was repeated: %d, then %d", id, again)
			}
		}
		w.until("it runs out without", func() bool { return w.sessions()[id] == nil })
	}
	t.Run("unary", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		secret := drawSecret()
		repeat(t, w, func() uint64 {
			res, err := w.rpc.OpenSession(t.Context(), connect.NewRequest(&holdfastv1.OpenSessionRequest{Secret: secret.String(), TtlMs: wire.Millis(ttl)}))
			if got := must(w, res, err).Msg.GetTtlMs(); got != wire.Millis(ttl) {
				t.Errorf("TTL %d", got)
			}
			return res.Msg.GetSessionId()
		})
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		s, secret := w.overConnect(), drawSecret()
		repeat(t, w, func() uint64 {
			f := s.answer(s.say(frameOpen(&holdfastv1.OpenSessionRequest{Secret: secret.String(), TtlMs: wire.Millis(ttl), Instance: instance("p")})))
			if f.GetOpen().GetTtlMs() != wire.Millis(ttl) {
				t.Fatalf("open: %v", f)
			}
			return f.GetOpen().GetSessionId()
		})
	})
}

// An open may find a session whose end is decided just then: that is no lease.
func TestARepeatedOpenOfALostSession(t *testing.T) {
	n := startTestNode(t, nil)
	s := &service{node: n.Node, voices: newVoices()}
	got := make(chan error, 1)
	ask := func() *driver.Error {
		s.found(core.SessionID(77), func(_ time.Duration, err error) { got <- err })
		return classify(<-got)
	}
	if e := ask(); e.Kind != driver.SessionLost || e.Outcome != driver.No {
		t.Errorf("got %v, %v: %v", e.Kind, e.Outcome, e)
	}
	// Any other failure says nothing of the session, which stands.
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := ask(); e.Kind != driver.Unavailable || e.Outcome != driver.Unknown || !errors.Is(e, ErrStopped) {
		t.Errorf("got %v, %v: %v", e.Kind, e.Outcome, e)
	}
}

// What a stream asked for may be answered when the stream has ended.
func TestAStreamThatEndedSpeaksForNobody(t *testing.T) {
	v := newVoices()
	st := &stream{voiceOf: map[core.SessionID]struct{}{}}
	v.opened(1, st, [16]byte{1})
	v.leave(st)
	v.opened(2, st, [16]byte{1})
	if _, err := v.attach(3, st, [16]byte{1}, 7); err == nil {
		t.Error("it attached")
	}
	if v.count() != 0 {
		t.Errorf("%d sessions have a voice", v.count())
	}
}
