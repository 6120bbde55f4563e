package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

func isAcquire(_ int, f *holdfastv1.ClientFrame) bool { return f.GetAcquire() != nil }

func TestKeepalivesOfManySessionsShareOneFrame(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	l := line(t, f.addr)
	const n = 200
	var all []*session
	for range n {
		all = append(all, openOne(t, l))
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, s := range all {
		wg.Go(func() {
			<-start
			if _, err := s.Keepalive(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	got := f.until("keepalives", func([]message) bool { return true })
	frames, ids := 0, 0
	for _, m := range got {
		for _, fr := range m.frames {
			if k := fr.GetKeepAlives(); k != nil {
				frames++
				ids += len(k.GetSessionIds())
			}
		}
	}
	// One frame, or a few if the machine took longer than the linger to
	// start so many goroutines; never one a session.
	if ids != n || frames > n/20 {
		t.Errorf("%d keepalives travelled in %d frames", ids, frames)
	}
}

func TestLoneKeepaliveDoesNotLinger(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	l := line(t, f.addr)
	s := openOne(t, l)
	st, err := l.stream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Keepalive(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if st.linger != nil {
		t.Error("a keepalive with no company to wait for waited")
	}
}

// An old stream's answer must not answer a keepalive that was asked later.
func TestKeepaliveAnswersCountOnlyForWhatWasAskedBefore(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	asked := make(chan *holdfastv1.ClientFrame, 2)
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetKeepAlives() != nil {
			asked <- fr
			return silent
		}
		return nil
	})
	l := line(t, f.addr)
	s := openOne(t, l)
	first, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { _, err := s.Keepalive(first); gone <- err }()
	frame := <-asked
	cancel()
	if err := <-gone; !isUnknown(err) {
		t.Fatalf("a keepalive that was sent and given up: %v", err)
	}
	second, cancel2 := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel2()
	done := make(chan error, 1)
	go func() { _, err := s.Keepalive(second); done <- err }()
	<-asked
	// The answer to the first frame comes now.
	st, _ := l.stream(t.Context(), nil)
	l.received(st, &holdfastv1.SessionResponse{Frames: []*holdfastv1.ServerFrame{{
		Id: frame.GetId(), Body: &holdfastv1.ServerFrame_KeepAlives{KeepAlives: &holdfastv1.KeepAlivesResponse{
			Pulses: []*holdfastv1.SessionPulse{{SessionId: s.id, Alive: &holdfastv1.KeepAliveResponse{}}},
		}},
	}}})
	if err := <-done; err == nil {
		t.Error("the second keepalive was answered by the first one's frame")
	}
}

func TestCallsAreSentAgainOnTheNextStreamUnderTheSameName(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := newCutter(t, f.addr)
	f.answers(func(n int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetAcquire() != nil && n < 3 {
			if n == 1 {
				return []*holdfastv1.ServerFrame{{Body: &holdfastv1.ServerFrame_Queued{Queued: &holdfastv1.QueuedNotice{Place: 1}}}}
			}
			return silent
		}
		return nil
	})
	l := line(t, p.Addr())
	s := openOne(t, l)
	type result struct {
		g   driver.Grant
		err error
	}
	got := make(chan result, 1)
	go func() {
		g, err := s.Acquire(t.Context(), request("a", 4, 9))
		got <- result{g, err}
	}()
	for n := range 2 {
		f.until("acquire", func(ms []message) bool { return count(ms, isAcquire) == n+1 })
		p.Reset()
	}
	r := <-got
	if r.err != nil || r.g.Token.Lock != "a" {
		t.Fatalf("got %+v", r)
	}
	ms := f.until("all", func([]message) bool { return true })
	for _, m := range ms {
		for i, fr := range m.frames {
			if a := fr.GetAcquire(); a != nil && (a.GetRequest().GetLane() != 4 || a.GetRequest().GetN() != 9) {
				t.Errorf("sent again under another name: %v", a)
			}
			if m.stream > 1 && i == 0 && fr.GetAttach() == nil && fr.GetKeepAlives() == nil {
				t.Errorf("stream %d: %v came before the attach or the keepalive", m.stream, fr)
			}
		}
	}
	// Attach numbers rise; a keepalive follows each attach at once (B6).
	for stream := 2; stream <= 3; stream++ {
		attach := count(ms, func(n int, fr *holdfastv1.ClientFrame) bool {
			return n == stream && fr.GetAttach().GetNumber() == uint64(stream-1)
		})
		alive := count(ms, func(n int, fr *holdfastv1.ClientFrame) bool { return n == stream && fr.GetKeepAlives() != nil })
		if attach != 1 || alive == 0 {
			t.Errorf("stream %d: %d attaches with its number, %d keepalives", stream, attach, alive)
		}
	}
}

func TestLeaderAddressIsFollowed(t *testing.T) {
	t.Parallel()
	leader, follower := newFake(t), newFake(t)
	follower.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		return refuse(&driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "not the leader",
			Err: &wire.Remote{Info: &holdfastv1.ErrorInfo{LeaderAddress: leader.addr}}})
	})
	l := line(t, follower.addr) // knows the follower only
	s := openOne(t, l)
	if _, err := s.Acquire(t.Context(), request("a", 0, 1)); err != nil {
		t.Fatal(err)
	}
	if st, _ := l.stream(t.Context(), nil); st.conn.addr != leader.addr {
		t.Errorf("connected to %s, the leader is %s", st.conn.addr, leader.addr)
	}
}

func TestServersThatPointAtEachOtherAreNotAskedInATightLoop(t *testing.T) {
	t.Parallel()
	a, b := newFake(t), newFake(t)
	var asked atomic.Int64
	point := func(to *fake) func(int, *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		return func(int, *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
			asked.Add(1)
			return refuse(&driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "not the leader",
				Err: &wire.Remote{Info: &holdfastv1.ErrorInfo{LeaderAddress: to.addr}}})
		}
	}
	a.answers(point(b))
	b.answers(point(a))
	l := line(t, a.addr, b.addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := l.open(ctx, driver.OpenRequest{TTL: time.Second})
	if err == nil || err.Kind != driver.Unavailable {
		t.Fatalf("got %v", err)
	}
	if n := asked.Load(); n > 60 {
		t.Errorf("asked %d times in a second", n)
	}
}

func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	var mute atomic.Pointer[fake] // the server that opened the session, from then on
	servers := []*fake{newFake(t), newFake(t)}
	for _, f := range servers {
		f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
			if mute.Load() == f {
				return silent
			}
			if fr.GetOpen() != nil {
				mute.Store(f)
			}
			return nil
		})
	}
	l := line(t, servers[0].addr, servers[1].addr)
	s, err := l.open(t.Context(), driver.OpenRequest{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := s.Keepalive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < minSilence || took > 3*time.Second {
		t.Errorf("answered by the second server after %v: want after %v and soon", took, minSilence)
	}
}

func TestWaitInTheQueueIsNoSilence(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetAcquire() != nil {
			return []*holdfastv1.ServerFrame{{Body: &holdfastv1.ServerFrame_Queued{Queued: &holdfastv1.QueuedNotice{Place: 3}}}}
		}
		return nil
	})
	l := line(t, f.addr)
	s, _ := l.open(t.Context(), driver.OpenRequest{TTL: 4 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // twice as long as it may be silent
	defer cancel()
	if _, err := s.Acquire(ctx, request("a", 0, 1)); !isUnknown(err) {
		t.Fatalf("got %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.streams != 1 {
		t.Errorf("%d streams: a waiter was taken for a silent server", f.mu.streams)
	}
}

func TestOutcomesOfCallsThatEnd(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := newCutter(t, f.addr)
	l := line(t, p.Addr())
	s := openOne(t, l)
	p.refuse()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Acquire(ended, request("a", 0, 1)); driver.OutcomeOf(err) != driver.No || !errors.Is(err, context.Canceled) {
		t.Errorf("ended before it began: %v", err)
	}
	for n := uint64(1); ; n++ {
		// The client may not have noticed the cut yet: then it is Unknown.
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := s.Acquire(soon, request("b", 1, n))
		cancel()
		if driver.KindOf(err) != driver.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("no server: %v", err)
		}
		if isUnknown(err) {
			continue
		}
		if !strings.Contains(err.Error(), p.Addr()) {
			t.Errorf("the error does not name the server: %v", err)
		}
		break
	}
	// The same request again, after a try that reached a server: not "no".
	p.heal()
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetAcquire() != nil {
			return silent
		}
		return nil
	})
	sent, cancel := context.WithCancel(t.Context())
	go func() {
		f.until("acquire", func(ms []message) bool {
			return count(ms, func(_ int, fr *holdfastv1.ClientFrame) bool { return fr.GetAcquire().GetLock() == "c" }) > 0
		})
		cancel()
	}()
	if _, err := s.Acquire(sent, request("c", 2, 1)); !isUnknown(err) {
		t.Fatalf("sent and unanswered: %v", err)
	}
	p.refuse()
	waitFor(t, "the line is gone", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.mu.cur == nil })
	again, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Acquire(again, request("c", 2, 1)); !isUnknown(err) {
		t.Fatalf("not sent this time, but before: %v", err)
	}
}

func TestSameRequestAskedTwiceIsOneCall(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	release := make(chan struct{})
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetAcquire() != nil {
			<-release
		}
		return nil
	})
	l := line(t, f.addr)
	s := openOne(t, l)
	grants := make(chan driver.Grant, 3)
	first, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { _, err := s.Acquire(first, request("a", 0, 1)); gone <- err }()
	f.until("acquire", func(ms []message) bool { return count(ms, isAcquire) == 1 })
	for range 2 {
		go func() {
			g, err := s.Acquire(t.Context(), request("a", 0, 1))
			if err != nil {
				t.Error(err)
			}
			grants <- g
		}()
	}
	waitFor(t, "three callers", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(s.acquires[driver.RequestID{Lane: 0, N: 1}].callers) == 3
	})
	cancel()
	if err := <-gone; !isUnknown(err) {
		t.Error(err)
	}
	close(release)
	if a, b := <-grants, <-grants; a != b || a.ID == "" {
		t.Errorf("one request, two grants: %v, %v", a, b)
	}
	if n := count(f.until("all", func([]message) bool { return true }), isAcquire); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

func TestTakenOverSessionIsLostAndNotFoughtFor(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers(func(n int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetKeepAlives() != nil {
			return []*holdfastv1.ServerFrame{{Body: &holdfastv1.ServerFrame_Detached{Detached: &holdfastv1.DetachedNotice{SessionId: 1, Reason: "another instance"}}}}
		}
		return nil
	})
	l := line(t, f.addr)
	s := openOne(t, l)
	_, err := s.Keepalive(t.Context())
	if driver.KindOf(err) != driver.SessionLost || !strings.Contains(err.Error(), "another instance") {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Acquire(t.Context(), request("a", 0, 1)); driver.KindOf(err) != driver.SessionLost {
		t.Errorf("after the takeover: %v", err)
	}
	if n := count(f.until("all", func([]message) bool { return true }), func(_ int, fr *holdfastv1.ClientFrame) bool { return fr.GetAttach() != nil }); n != 0 {
		t.Errorf("attached %d times again", n)
	}
}

func TestOpenThatWasGivenUpLeavesNoSession(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	release := make(chan struct{})
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetOpen() != nil {
			<-release
		}
		return nil
	})
	l := line(t, f.addr)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan *driver.Error, 1)
	go func() { _, err := l.open(ctx, driver.OpenRequest{TTL: time.Second}); done <- err }()
	f.until("open", func(ms []message) bool { return len(ms) > 0 })
	cancel()
	if err := <-done; err.Outcome != driver.Unknown {
		t.Errorf("got %v", err)
	}
	close(release)
	f.until("end of the orphan", func(ms []message) bool {
		return count(ms, func(_ int, fr *holdfastv1.ClientFrame) bool { return fr.GetEnd().GetSession().GetId() == 1 }) == 1
	})
}

func TestEndedSessionIsNeitherAttachedNorKeptAlive(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if fr.GetEnd() != nil {
			return silent
		}
		return nil
	})
	p := newCutter(t, f.addr)
	l := line(t, p.Addr())
	a, b := openOne(t, l), openOne(t, l)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.End(soon); !isUnknown(err) {
		t.Fatalf("got %v", err)
	}
	if _, err := a.Keepalive(t.Context()); driver.KindOf(err) != driver.SessionLost {
		t.Errorf("keepalive after an end without an answer: %v", err)
	}
	p.Reset()
	if _, err := b.Keepalive(t.Context()); err != nil {
		t.Fatal(err)
	}
	ms := f.until("all", func([]message) bool { return true })
	for _, m := range ms {
		for _, fr := range m.frames {
			if m.stream > 1 && (fr.GetAttach().GetSession().GetId() == a.id || len(fr.GetKeepAlives().GetSessionIds()) > 1) {
				t.Errorf("stream %d still speaks for the ended session: %v", m.stream, fr)
			}
		}
	}
	// Asked again, the end is sent on the new stream, after an attach.
	f.answers(nil)
	if err := a.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Keepalive(t.Context()); driver.KindOf(err) != driver.SessionLost {
		t.Errorf("keepalive after the end: %v", err)
	}
}

func TestGrantThatMakesNoSenseIsNotHandedOut(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers(func(_ int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if a := fr.GetAcquire(); a != nil {
			a.Lock += "2"
		}
		return nil
	})
	s := openOne(t, line(t, f.addr))
	_, err := s.Acquire(t.Context(), request("a", 0, 1))
	if err == nil || driver.KindOf(err) != driver.Internal || !isUnknown(err) {
		t.Errorf("got %v", err)
	}
}

func TestForeignExtensionIsRefused(t *testing.T) {
	t.Parallel()
	s := openOne(t, line(t, newFake(t).addr))
	req := request("a", 0, 1)
	req.Extension = foreign{}
	_, err := s.Acquire(t.Context(), req)
	if driver.KindOf(err) != driver.Invalid || driver.OutcomeOf(err) != driver.No {
		t.Errorf("got %v", err)
	}
}

type foreign struct{}

func (foreign) Engine() string { return "foreign" }

// isUnknown reports whether err is an error that leaves the outcome open.
func isUnknown(err error) bool { return err != nil && driver.OutcomeOf(err) == driver.Unknown }

// waitFor polls cond until it holds.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not in time", what)
		}
	}
}
