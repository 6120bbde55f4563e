package server

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// attached attaches a session to the stream.
func (s *tongue) attached(c *holdfastv1.SessionRef, process string, number uint64) {
	s.t.Helper()
	if f := s.answer(s.say(frameAttach(c, process, number))); f.GetAttach().GetTtlMs() == 0 {
		s.t.Fatalf("attach: %v", f)
	}
}

// A client whose stream breaks in the middle of an acquire sends it again on
// the next one, under the same name: it is the same request, in its place.
func TestABrokenStreamLosesNoPlaceAndNoGrant(t *testing.T) {
	tongues(t, func(t *testing.T, w *world, open func(*world) *tongue) {
		lock := "broken/" + t.Name()
		holder, b, c := w.open("holder", time.Minute), w.open("b", time.Minute), w.open("c", time.Minute)
		g := holder.acquire(lock)
		first := open(w)
		first.attached(b.ref, "b", 1)
		first.answer(first.say(frameAcquire(b.ref.GetId(), 0, 1, lock, true)))
		other := open(w)
		other.attached(c.ref, "c", 1)
		behind := other.say(frameAcquire(c.ref.GetId(), 0, 1, lock, true))
		other.answer(behind)
		first.hangUp()
		<-first.ended
		second := open(w)
		second.attached(b.ref, "b", 2)
		again := second.say(frameAcquire(b.ref.GetId(), 0, 1, lock, true))
		if f := second.answer(again); f.GetQueued().GetPlace() != 1 {
			t.Fatalf("sent again: %v", f)
		}
		holder.release(g)
		got := second.answer(again).GetAcquire().GetGrant()
		if got.GetNumber() != g.GetNumber()+1 {
			t.Fatalf("granted %v", got)
		}
		// Now the answer is lost, and asked for once more.
		second.hangUp()
		<-second.ended
		third := open(w)
		third.attached(b.ref, "b", 3)
		if f := third.answer(third.say(frameAcquire(b.ref.GetId(), 0, 1, lock, true))); f.GetAcquire().GetGrant().GetNumber() != got.GetNumber() {
			t.Errorf("asked again after the grant: %v", f)
		}
		third.answer(third.say(frameRelease(b.ref.GetId(), got.GetNumber())))
		if f := other.answer(behind); f.GetAcquire() == nil {
			t.Errorf("the next in the queue: %v", f)
		}
	})
}

// B12: a higher number of the same process replaces silently; a lower or
// equal one is refused.
func TestAttachByTheSameProcess(t *testing.T) {
	tongues(t, func(t *testing.T, w *world, open func(*world) *tongue) {
		a, b := w.open("a", time.Minute), w.open("b", time.Minute)
		before := len(w.log.lines("two client processes"))
		first, second := open(w), open(w)
		first.attached(a.ref, "p", 1)
		first.attached(a.ref, "p", 1) // a copy of the frame
		first.attached(b.ref, "p", 1)
		if e := second.failure(second.say(frameAttach(a.ref, "p", 1)), driver.Denied); !strings.Contains(e.Error(), "higher number") {
			t.Errorf("the same number on another stream: %v", e)
		}
		second.attached(a.ref, "p", 5)
		first.failure(first.say(frameAttach(a.ref, "p", 4)), driver.Denied)
		// The old stream speaks for its other session, and no more for this.
		first.failure(first.say(frameAcquire(a.ref.GetId(), 0, 1, "x", true)), driver.Denied)
		if f := first.answer(first.say(frameKeepAlive(b.ref.GetId()))); f.GetKeepAlives().GetPulses()[0].GetAlive() == nil {
			t.Errorf("the other session: %v", f)
		}
		if f := second.answer(second.say(frameKeepAlive(a.ref.GetId()))); f.GetKeepAlives().GetPulses()[0].GetAlive() == nil {
			t.Errorf("the new stream: %v", f)
		}
		if n := len(w.log.lines("two client processes")); n != before {
			t.Error("a silent replacement was logged")
		}
		// The end of the old stream takes nothing from the new one.
		first.hangUp()
		<-first.ended
		w.until("the old stream is gone", func() bool { return !w.sessions()[b.ref.GetId()].GetAttached() })
		if !w.sessions()[a.ref.GetId()].GetAttached() {
			t.Error("the old stream took the session along")
		}
	})
}

// An open is idempotent by its secret, also on the stream that comes after the
// one on which its answer was lost.
func TestOpenSentAgainOnTheNextStream(t *testing.T) {
	tongues(t, func(t *testing.T, w *world, open func(*world) *tongue) {
		secret := drawSecret()
		first := open(w)
		id := first.opened("p", "a", secret)
		second := open(w)
		if again := second.opened("p", "a", secret); again != id {
			t.Fatalf("opened %d, then %d", id, again)
		}
		if f := second.answer(second.say(frameKeepAlive(id))); f.GetKeepAlives().GetPulses()[0].GetAlive() == nil {
			t.Errorf("the second stream does not speak for its session: %v", f)
		}
		// Once attached, a late copy of the open takes nothing away.
		third := open(w)
		third.attached(&holdfastv1.SessionRef{Id: id, Secret: secret.String()}, "p", 1)
		second.opened("p", "a", secret)
		if f := third.answer(third.say(frameKeepAlive(id))); f.GetKeepAlives().GetPulses()[0].GetAlive() == nil {
			t.Errorf("a late copy of the open took the session: %v", f)
		}
	})
}

// C80: owner labels and host names never decide. Two clients that look the
// same are two; a copied secret is noticed.
func TestCasebookC80_TwoProcessesWithTheSameIdentity(t *testing.T) {
	tongues(t, func(t *testing.T, w *world, open func(*world) *tongue) {
		lock := "c80/" + t.Name()
		secret := drawSecret()
		one, two := open(w), open(w)
		a, b := one.opened("twin", "same label", secret), two.opened("twin", "same label", drawSecret())
		g := one.answer(one.say(frameAcquire(a, 0, 1, lock, true))).GetAcquire().GetGrant()
		waiting := two.say(frameAcquire(b, 0, 1, lock, true))
		if f := two.answer(waiting); f.GetQueued().GetPlace() != 1 {
			t.Fatalf("the twin does not wait: %v", f)
		}
		two.answer(two.say(frameRelease(b, g.GetNumber())))
		if h := w.lock(lock).GetHolders()[0]; h.GetSessionId() != a || h.GetGrant() != g.GetNumber() {
			t.Fatalf("the twin released what it does not hold: %v", h)
		}
		// Now somebody copies the secret itself.
		before := len(w.log.lines(`"level":"WARN"`, "two client processes", fmt.Sprintf(`"session":%d`, a)))
		thief := open(w)
		thief.attached(&holdfastv1.SessionRef{Id: a, Secret: secret.String()}, "thief", 1)
		if f := one.answer(0); f.GetDetached().GetSessionId() != a || f.GetDetached().GetReason() == "" {
			t.Errorf("the robbed stream was told %v", f)
		}
		if e := one.over(); e == nil || e.Kind != driver.Denied {
			t.Errorf("the robbed stream ended with %v", e)
		}
		if n := len(w.log.lines(`"level":"WARN"`, "two client processes", fmt.Sprintf(`"session":%d`, a))); n != before+1 {
			t.Errorf("%d records of the takeover", n-before)
		}
		if strings.Contains(w.log.String(), secret.String()) {
			t.Error("the secret is in the log")
		}
	})
}

// A client that does not read its answers is cut off, whatever it does with
// the rest of its time; its sessions live on.
func TestASlowReaderIsClosed(t *testing.T) {
	w := start(t)
	w.service.slowAfter = time.Second
	lock := strings.Repeat("l", 512) // so that each answer is long
	w.open("holder", time.Minute).acquire(lock)
	c := w.open("c", time.Minute)
	s := w.deaf()
	s.say(frameAttach(c.ref, "c", 1))
	w.until("attached", func() bool { return w.service.voices.attached(core.SessionID(c.ref.GetId())) })
	n := uint64(0)
	ended := func() bool { return len(w.service.streams.list()) == 0 }
	for !ended() && n < 100_000 {
		frames := make([]*holdfastv1.ClientFrame, 500)
		for i := range frames {
			n++
			frames[i] = frameAcquire(c.ref.GetId(), 0, n, lock, false)
			frames[i].Id = n + 1
		}
		if s.send(&holdfastv1.SessionRequest{Frames: frames}) != nil {
			break
		}
	}
	w.until("the stream of the slow reader is closed", ended)
	if n < 1000 {
		t.Errorf("closed after %d frames: is that the queue's bound?", n)
	}
	if _, e := c.keepAlive(); e != nil {
		t.Errorf("its session must live on: %v", e)
	}
	w.until("the end of the stream is counted as overloaded", func() bool {
		_, page := w.get("/metrics")
		return strings.Contains(page, `holdfast_api_calls_total{method="Session",result="overloaded"} 1`)
	})
}

// B9: draining is over when what had arrived was handled, and not before.
func TestDrainReadsWhatHadArrived(t *testing.T) {
	w := start(t)
	s := w.overConnect()
	s.opened("p", "a", drawSecret())
	idle, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if _, err := idle.Write([]byte("GET /healthz HT")); err != nil {
		t.Fatal(err)
	}
	drain := func() chan struct{} {
		done := make(chan struct{})
		w.drain(func() { close(done) })
		return done
	}
	within := func(what string, done chan struct{}) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("%s: never drained", what)
		}
	}
	begun := time.Now()
	within("idle connections", drain())
	if took := time.Since(begun); took > drainAtMost {
		t.Errorf("draining idle connections took %v", took)
	}
	// A call whose body is on its way holds the drain up.
	w.undecoded.Add(1)
	done := drain()
	select {
	case <-done:
		t.Error("drained while a call was not decoded")
	case <-time.After(50 * time.Millisecond):
	}
	w.undecoded.Add(-1)
	within("the call was decoded", done)
	// So does a stream that has not come back for the next message.
	st := w.service.streams.list()[0]
	st.reading.Store(false)
	done = drain()
	select {
	case <-done:
		t.Error("drained while a stream was busy")
	case <-time.After(50 * time.Millisecond):
	}
	st.reading.Store(true)
	within("the stream waits again", done)
	// And bytes that the kernel holds and nobody reads, but not for ever.
	server, client := pair(t, w)
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	w.until("the byte arrives", func() bool { return unread(server.Conn) == 1 })
	begun = time.Now()
	within("bytes that nobody reads", drain())
	if took := time.Since(begun); took < drainAtMost/2 {
		t.Errorf("drained after %v although a connection holds unread bytes", took)
	}
}

// pair is a connection of which nobody reads the server's end.
func pair(t *testing.T, w *world) (*conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	inner, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server := &conn{Conn: inner, owner: w.conns}
	server.inRead.Store(true) // as of a reader that has not been woken yet
	w.conns.mu.Lock()
	w.conns.all[server] = struct{}{}
	w.conns.mu.Unlock()
	t.Cleanup(func() { client.Close(); server.Close() })
	return server, client
}

// B9: a detached session's keepalive counts as read once the node has it. Its
// secret is checked in between, on the loop; a drain that ended there would
// let the session expire although its keepalive had arrived.
func TestDrainWaitsForKeepalivesOfDetachedSessions(t *testing.T) {
	w := start(t)
	a := w.open("a", time.Minute)
	blocked, release := make(chan struct{}), make(chan struct{})
	go w.node.View(t.Context(), true, func(Reading) { close(blocked); <-release })
	<-blocked // the loop
	answered := make(chan *driver.Error, 1)
	go func() {
		_, err := a.keepAlive()
		answered <- err
	}()
	w.until("its secret is being checked", func() bool {
		w.node.in.mu.Lock()
		defer w.node.in.mu.Unlock()
		return len(w.node.in.mu.urgent) == 1
	})
	done := make(chan struct{})
	w.drain(func() { close(done) })
	select {
	case <-done:
		t.Error("drained before the node had the keepalive")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("never drained")
	}
}
