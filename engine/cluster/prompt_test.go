package cluster

import (
	"context"
	"testing"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/wire/holdfastv1"
)

var _ driver.Prompter = (*session)(nil)

// B6: a client that meets a server anew lets a keepalive leave at once, and
// counts it: its answer extends the lease, and says what was taken back. Next
// to a session whose owner does not want to be told, each sends one.
func TestKeepaliveAtOnceAfterAReconnect(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := newCutter(t, f.addr)
	pulses := make(chan holdfast.PulseInfo, 100)
	c := dial(t, p.Addr(), &Options{
		TTL: 24 * time.Hour, CallTimeout: 5 * time.Second, // the next pulse is hours away
		OnPulse: func(i holdfast.PulseInfo) { pulses <- i },
	})
	held := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "a"))
	plain := openOne(t, c.link)
	for round := 2; round <= 4; round++ {
		p.Reset()
		select {
		case i := <-pulses:
			if i.Err != nil || len(i.Locks) != 1 {
				t.Fatalf("stream %d: %+v", round, i)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("stream %d: no keepalive of the locker's", round)
		}
		// What is sent after this has gone through the same stream.
		if _, err := plain.Acquire(t.Context(), request("b", 0, uint64(round))); err != nil {
			t.Fatal(err)
		}
		ms := f.until("all", func([]message) bool { return true })
		sent := map[uint64]int{}
		for _, m := range ms {
			for _, fr := range m.frames {
				for _, id := range fr.GetKeepAlives().GetSessionIds() {
					if m.stream == round {
						sent[id]++
					}
				}
			}
		}
		if sent[1] != 1 || sent[2] != 1 || len(sent) != 2 {
			t.Errorf("stream %d: keepalives by session: %v, want one of each", round, sent)
		}
	}
	if len(pulses) != 0 {
		t.Errorf("one more pulse: %+v", <-pulses)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	end, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := plain.End(end); err != nil {
		t.Error(err)
	}
}

// A keepalive that was under way when the line broke is made again on the next
// one; that is the one that leaves at once.
func TestKeepaliveUnderWayIsTheOneThatLeavesAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := newCutter(t, f.addr)
	f.answers(func(n int, fr *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		if n == 1 && fr.GetKeepAlives() != nil {
			return silent
		}
		return nil
	})
	pulses := make(chan holdfast.PulseInfo, 100)
	c := dial(t, p.Addr(), &Options{
		TTL: 24 * time.Hour, KeepaliveInterval: 100 * time.Millisecond, CallTimeout: 5 * time.Second,
		OnPulse: func(i holdfast.PulseInfo) { pulses <- i },
	})
	held := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "a"))
	alive := func(n int) func([]message) bool {
		return func(ms []message) bool {
			return count(ms, func(stream int, fr *holdfastv1.ClientFrame) bool { return stream == n && fr.GetKeepAlives() != nil }) > 0
		}
	}
	f.until("a keepalive", alive(1))
	p.Reset()
	ms := f.until("a keepalive on the next stream", alive(2))
	if i := <-pulses; i.Err != nil {
		t.Errorf("the keepalive over the reset: %+v", i)
	}
	for _, m := range ms {
		if n := count([]message{m}, func(_ int, fr *holdfastv1.ClientFrame) bool { return fr.GetKeepAlives() != nil }); n > 1 {
			t.Errorf("%d keepalives in one message: %v", n, m.frames)
		}
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
