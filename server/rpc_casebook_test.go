package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// soak asks for the full sizes of the casebook.
func soak() bool { return os.Getenv("HOLDFAST_SOAK") != "" }

// C17: the waiter's own session ends while somebody else holds the lock. Its
// call, and its frame, return at once.
func TestCasebookC17_WaiterOfAnEndedSessionReturns(t *testing.T) {
	w := start(t)
	a, b, c := w.open("a", time.Minute), w.open("b", time.Minute), w.open("c", time.Minute)
	a.acquire("x")
	got := make(chan *driver.Error, 1)
	go func() {
		_, e := b.ask(&holdfastv1.AcquireRequest{Lock: "x", WaitForever: true})
		got <- e
	}()
	s := w.overGRPC()
	s.attached(c.ref, "c", 1)
	waiting := s.say(frameAcquire(c.ref.GetId(), 0, 1, "x", true))
	s.answer(waiting)
	w.waiters("x", 2)
	begun := time.Now()
	for _, id := range []uint64{b.ref.GetId(), c.ref.GetId()} {
		res, err := w.rpc.ExpelSession(t.Context(), connect.NewRequest(&holdfastv1.ExpelSessionRequest{SessionId: id, By: "admin"}))
		must(w, res, err)
	}
	if e := <-got; e == nil || e.Kind != driver.SessionLost || e.Outcome != driver.No {
		t.Errorf("the waiting call returned %v", e)
	}
	s.failure(waiting, driver.SessionLost)
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if l := w.lock("x"); l.GetWaiters() != 0 || l.GetHolders()[0].GetSessionId() != a.ref.GetId() {
		t.Errorf("the lock is %v", l)
	}
	again := w.open("b", time.Minute)
	go again.ask(&holdfastv1.AcquireRequest{Lock: "x", WaitForever: true})
	w.waiters("x", 1)
}

// C18: what is left of a TTL is never nonsense, here through restarts: each
// answer is within [0, T], or a retryable error.
func TestCasebookC18_TTLThroughRestarts(t *testing.T) {
	const ttl = 3 * time.Second
	first := start(t)
	c := first.open("c", ttl)
	c.acquire("x")
	addr, dir := first.Addr(), first.cfg.Dir
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var answers, errors atomic.Int64
	wg.Go(func() {
		rpc := holdfastv1connect.NewLockServiceClient(h2c(t), "http://"+addr)
		for stale := false; ; stale = !stale {
			select {
			case <-stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			res, err := rpc.ListSessions(ctx, connect.NewRequest(&holdfastv1.ListSessionsRequest{AllowStale: stale}))
			lock, _ := rpc.GetLock(ctx, connect.NewRequest(&holdfastv1.GetLockRequest{Lock: "x", AllowStale: stale}))
			cancel()
			if err != nil {
				errors.Add(1)
				if k := wire.FromError(err).Kind; k != driver.Unavailable && k != driver.Overloaded {
					t.Errorf("not retryable: %v", err)
				}
				continue
			}
			answers.Add(1)
			for _, s := range res.Msg.GetSessions() {
				if s.GetTtlLeftMs() > wire.Millis(ttl) {
					t.Errorf("%d ms left of %v", s.GetTtlLeftMs(), ttl)
				}
			}
			if lock != nil {
				for _, h := range lock.Msg.GetLock().GetHolders() {
					if h.GetTtlLeftMs() > wire.Millis(ttl) {
						t.Errorf("holder: %d ms left of %v", h.GetTtlLeftMs(), ttl)
					}
				}
			}
		}
	})
	w := first
	for range 4 {
		if err := w.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		w = start(t, func(cfg *Config) { cfg.Dir, cfg.Listen = dir, addr })
		c.w = w
		if _, e := c.keepAlive(); e != nil {
			t.Fatalf("the session did not survive: %v", e)
		}
		before := answers.Load()
		w.until("some more answers", func() bool { return answers.Load() > before+20 })
	}
	close(stop)
	wg.Wait()
	t.Logf("%d answers, %d errors", answers.Load(), errors.Load())
}

// C19: the watch of a lock breaks, the renewals go on: the holder stays the
// holder, and reads so.
func TestCasebookC19_ABrokenWatchLosesNothing(t *testing.T) {
	w := start(t)
	a := w.open("a", 3*time.Second)
	s := w.overConnect()
	s.attached(a.ref, "a", 1)
	g := s.answer(s.say(frameAcquire(a.ref.GetId(), 0, 1, "x", true))).GetAcquire().GetGrant()
	for range 3 {
		ctx, cut := context.WithCancel(t.Context())
		watch, err := w.rpc.Watch(ctx, connect.NewRequest(&holdfastv1.WatchRequest{Lock: "x"}))
		must(w, watch, err)
		if !watch.Receive() {
			t.Fatal(watch.Err())
		}
		cut()
		watch.Close()
		p := s.answer(s.say(frameKeepAlive(a.ref.GetId()))).GetKeepAlives().GetPulses()[0]
		if p.GetAlive() == nil || len(p.GetAlive().GetRevoked()) != 0 {
			t.Fatalf("after the watch broke: %v", p)
		}
		if h := w.lock("x").GetHolders(); len(h) != 1 || h[0].GetGrant() != g.GetNumber() {
			t.Fatalf("after the watch broke: %v", h)
		}
	}
	// And if the grant is gone, the renewals say so, watch or no watch.
	res, err := w.rpc.RevokeGrant(t.Context(), connect.NewRequest(&holdfastv1.RevokeGrantRequest{Lock: "x", Grant: g.GetNumber(), Now: true}))
	must(w, res, err)
	p := s.answer(s.say(frameKeepAlive(a.ref.GetId()))).GetKeepAlives().GetPulses()[0]
	if r := p.GetAlive().GetRevoked(); len(r) != 1 || r[0].GetGrant() != g.GetNumber() || !r[0].GetGone() {
		t.Errorf("revoked now, yet the pulse says %v", p)
	}
}

// C40: a release at any moment around the waiter's arrival wakes it, with many
// watchers on the lock.
func TestCasebookC40_NoWakeUpIsLost(t *testing.T) {
	watchers, rounds := 100, 40
	if soak() {
		watchers, rounds = 500, 10_000
	}
	w := start(t)
	a, b := w.open("a", time.Minute), w.open("b", time.Minute)
	var heard sync.WaitGroup
	for range watchers {
		s, _ := w.watch(&holdfastv1.WatchRequest{Lock: "x"})
		heard.Go(func() {
			granted := 0
			for granted < 2*rounds && s.Receive() {
				for _, e := range s.Msg().GetEvents() {
					if e.GetKind() == "granted" {
						granted++
					}
				}
			}
			if granted != 2*rounds {
				t.Errorf("a watcher heard %d of %d grants: %v", granted, 2*rounds, s.Err())
			}
		})
	}
	var took []time.Duration
	for round := range rounds {
		g := a.acquire("x")
		got := make(chan *holdfastv1.Grant, 1)
		go func() {
			g, e := b.ask(&holdfastv1.AcquireRequest{Lock: "x", WaitMs: 30_000})
			if e != nil {
				t.Errorf("round %d: %v", round, e)
			}
			got <- g
		}()
		for range rand.IntN(400) {
			w.node.Status() // a random moment
		}
		if round%2 == 0 {
			w.waiters("x", 1)
		}
		begun := time.Now()
		a.release(g)
		next := <-got
		took = append(took, time.Since(begun))
		if t.Failed() {
			return
		}
		b.release(next)
	}
	heard.Wait()
	slices.Sort(took)
	if p50 := took[len(took)/2]; p50 > 500*time.Millisecond {
		t.Errorf("wake-up p50 %v, longest %v", p50, took[len(took)-1])
	}
}

// C42: short waits and cut connections leave no places and no permits behind.
func TestCasebookC42_ShortWaitsLeakNothing(t *testing.T) {
	const clients, ttl = 20, 2 * time.Second
	each := 15
	if soak() {
		each = 50
	}
	w := start(t)
	holder := w.open("holder", time.Minute)
	g := holder.acquire("x")
	var wg sync.WaitGroup
	for i := range clients {
		c := w.open(fmt.Sprintf("c%d", i), ttl)
		wg.Go(func() {
			for range each {
				ctx, cut := context.WithCancel(context.Background())
				if rand.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(4000))*time.Microsecond, cut)
				}
				e := w.jsonCall(ctx, "Acquire", &holdfastv1.AcquireRequest{Session: c.ref, Request: c.next(), Lock: "x", WaitMs: 1 + rand.Uint64N(5)}, &holdfastv1.AcquireResponse{})
				cut()
				if e == nil {
					t.Error("granted, though held")
				} else if e.Outcome == driver.Unknown && i%2 == 0 {
					// An orderly client settles what it does not know.
					id := &holdfastv1.RequestID{N: c.n}
					if e := w.jsonCall(context.Background(), "Cancel", &holdfastv1.CancelRequest{Session: c.ref, Request: id}, &holdfastv1.CancelResponse{}); e != nil {
						t.Errorf("cancel: %v", e)
					}
				} else if e.Outcome == driver.Unknown {
					return // this one is never heard of again
				} else if e.Kind != driver.Busy {
					t.Errorf("want busy: %v", e)
				}
			}
		})
	}
	wg.Wait()
	w.waiters("x", 0) // at the latest when the silent ones ran out
	holder.release(g)
	three := w.open("three", time.Minute)
	for i := range uint32(4) {
		_, e := three.ask(&holdfastv1.AcquireRequest{Lock: "permits", Limit: 3, Request: &holdfastv1.RequestID{Lane: i, N: 1}})
		if (e == nil) != (i < 3) {
			t.Errorf("permit %d of 3: %v", i+1, e)
		}
	}
}

// C43: a name that is a prefix of another is another name.
func TestCasebookC43_NamesAreNotPrefixes(t *testing.T) {
	w := start(t)
	a, b := w.open("a", time.Minute), w.open("b", time.Minute)
	a.acquire("a/b")
	a.acquire("ab")
	if _, e := b.ask(&holdfastv1.AcquireRequest{Lock: "a"}); e != nil {
		t.Errorf("a is free: %v", e)
	}
	names := []string{"..", "a/../b", "with space", "日本語", "x%2Fy", "é", strings.Repeat("ü", 256), "a.b", "'\"\\`$(id)", "<b>&amp;"}
	for _, name := range names {
		g := a.acquire(name)
		if l := w.lock(name); g.GetLock() != name || l.GetName() != name {
			t.Errorf("%q became %q and %q", name, g.GetLock(), l.GetName())
		}
	}
	list := func(prefix string) (found []string) {
		req := &holdfastv1.ListLocksRequest{Prefix: prefix, PageSize: 2}
		for {
			res, err := w.rpc.ListLocks(t.Context(), connect.NewRequest(req))
			for _, l := range must(w, res, err).Msg.GetLocks() {
				found = append(found, l.GetName())
			}
			if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
				return found
			}
		}
	}
	if got := list("a/"); !slices.Equal(got, []string{"a/../b", "a/b"}) {
		t.Errorf("list of a/: %q", got)
	}
	if got := list("a"); !slices.Equal(got, []string{"a", "a.b", "a/../b", "a/b", "ab"}) {
		t.Errorf("list of a: %q", got)
	}
	all := list("")
	if want := append(names, "a", "a/b", "ab"); len(all) != len(want) || !slices.IsSorted(all) {
		t.Errorf("list of all: %q", all)
	}
}

// C82: everybody can see who holds a lock, since when, who waits, and the
// number that frees exactly this grant.
func TestCasebookC82_WhoHoldsItAndHowToFreeIt(t *testing.T) {
	w := start(t)
	a, b, c := w.open("a", time.Minute), w.open("b", time.Minute), w.open("c", time.Minute)
	g := a.acquire("x")
	for i, waiter := range []*client{b, c} {
		go waiter.ask(&holdfastv1.AcquireRequest{Lock: "x", WaitForever: true})
		w.waiters("x", uint32(i+1))
	}
	w.until("the grant has an age", func() bool { return w.lock("x").GetHolders()[0].GetHeldMs() > 0 })
	l := w.lock("x")
	h := l.GetHolders()[0]
	if h.GetLabel() != "a" || h.GetHost() != "host-of-a" || h.GetSessionId() != a.ref.GetId() || h.GetGrant() != g.GetNumber() || h.GetToken() != g.GetToken() ||
		h.LastHeardMs == nil || h.GetTtlLeftMs() == 0 || l.GetHolderCount() != 1 {
		t.Errorf("holder: %v", h)
	}
	q := l.GetQueue()
	if len(q) != 2 || q[0].GetLabel() != "b" || q[0].GetPlace() != 1 || q[1].GetHost() != "host-of-c" || q[1].GetPlace() != 2 || q[1].GetSessionId() != c.ref.GetId() {
		t.Errorf("queue: %v", q)
	}
	d := w.open("d", time.Minute)
	_, e := d.ask(&holdfastv1.AcquireRequest{Lock: "x"})
	if e == nil || e.Kind != driver.Busy || e.Holder.Label != "a" || e.Holder.Host != "host-of-a" || e.Holder.GrantNumber != g.GetNumber() || e.Waiters != 2 {
		t.Fatalf("a failed acquire says %+v", e)
	}
	for _, part := range []string{`"a" on host-of-a`, fmt.Sprintf("grant %d", g.GetNumber()), "2 waiting"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q lacks %q", e.Error(), part)
		}
	}
	// What was shown frees this grant, and no other.
	free := &holdfastv1.RevokeGrantRequest{Lock: "x", Grant: h.GetGrant(), Now: true, By: "ann"}
	res, err := w.rpc.RevokeGrant(t.Context(), connect.NewRequest(free))
	must(w, res, err)
	w.until("the next holds it", func() bool {
		h := w.lock("x").GetHolders()
		return len(h) == 1 && h[0].GetLabel() == "b"
	})
	// Told twice is done once; once the old holder knows, it is history.
	res, err = w.rpc.RevokeGrant(t.Context(), connect.NewRequest(free))
	must(w, res, err)
	a.release(g)
	_, err = w.rpc.RevokeGrant(t.Context(), connect.NewRequest(free))
	if e := wire.FromError(err); e == nil || e.Kind != driver.NotHeld || e.Holder == nil || e.Holder.Label != "b" {
		t.Errorf("the same again: %v", e)
	}
	if n := len(w.log.lines(`"msg":"audit"`, `"by":"ann"`, `"call":"revoke"`)); n != 3 {
		t.Errorf("%d audit records of three calls", n)
	}
}
