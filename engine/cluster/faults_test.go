package cluster

import (
	"context"
	"errors"

	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/driver"
)

// The cases here damage the line below HTTP/2: TCP connections are reset, or
// keep everything back without a word. (The suite in driver/drivertest damages
// the calls above.)

func TestCasebookC19_BrokenWatchDoesNotTouchTheLease(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	var pulse pulses
	c := dial(t, srv.addr, &Options{TTL: 2 * time.Second, OnPulse: pulse.on})
	g := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "c19"))
	watching, breakWatch := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		first := true
		for _, err := range c.Watch(watching, WatchOptions{Lock: "c19"}) {
			if first {
				close(began)
				first = false
			}
			if err != nil {
				ended <- err
			}
		}
	}()
	<-began
	breakWatch()
	<-ended
	pulse.next(t, 6) // a TTL and more
	if g.State() != holdfast.StateHeld {
		t.Errorf("the watch broke, and the grant is %v: %v", g.State(), g.Cause())
	}
	l := must[*Lock](t)(c.Get(t.Context(), "c19", GetOptions{}))
	if len(l.Holders) != 1 || l.Holders[0].Token != g.Token() {
		t.Errorf("the service says %+v", l)
	}
}

func TestCasebookC20_ClosedClientIsGone(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	p := newCutter(t, srv.addr)
	op := dial(t, srv.addr, nil)
	c, err := Dial(t.Context(), p.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "c20"))
	must[uint64](t)(c.Put(t.Context(), "c20/presence", []byte("here"), PutOptions{Bind: true}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := c.Close(ended); err != nil {
			t.Fatal(err)
		}
	}
	if g.State() != holdfast.StateLost || g.Cause().Cause != holdfast.CauseClosed {
		t.Errorf("after Close: %v, %v", g.State(), g.Cause())
	}
	for s, err := range op.Sessions(t.Context(), ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("a session outlived its client: %+v", s)
	}
	for l, err := range op.List(t.Context(), "", ListOptions{}) {
		t.Errorf("a lock outlived its client: %+v, %v", l, err)
	}
	waitFor(t, "the connection is closed", func() bool {
		_, open := p.Connections()
		return open == 0
	})
	if _, err := c.Get(t.Context(), "c20", GetOptions{}); driver.KindOf(err) != driver.Unavailable || !errors.Is(err, errClosed) {
		t.Errorf("get after Close: %v", err)
	}
	if _, err := c.Put(t.Context(), "c20", nil, PutOptions{}); !errors.Is(err, errClosed) {
		t.Errorf("put after Close: %v", err)
	}
}

// TestCloseIsBoundedWithoutAServer: no answer, no orphan goroutine (goleak in
// TestMain), no endless Close.
func TestCloseIsBoundedWithoutAServer(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	p := newCutter(t, srv.addr)
	c, err := Dial(t.Context(), p.Addr(), &Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "bounded"))
	must[uint64](t)(c.Put(t.Context(), "bounded/v", nil, PutOptions{}))
	p.stall(true, true)
	began := time.Now()
	if err := c.Close(t.Context()); err == nil {
		t.Error("the sessions could not be ended, and Close says nothing")
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// C21 and C22 are the two sides of one machine that vanishes without closing
// its connections.
func TestCasebookC21_C22_LineThatSwallowsEverything(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	const margin = ttl / 10
	srv := startService(t)
	p := newCutter(t, srv.addr)
	op := dial(t, srv.addr, nil)
	var mu sync.Mutex
	var sent time.Time // before the last good keepalive left, or a little later
	a := dial(t, p.Addr(), &Options{TTL: ttl, Label: "vanishing", OnPulse: func(i holdfast.PulseInfo) {
		mu.Lock()
		defer mu.Unlock()
		if i.Err == nil {
			sent = time.Now().Add(-i.Took)
		}
	}})
	g := must[*holdfast.Grant](t)(a.Locker().Acquire(t.Context(), "c22"))
	granted := make(chan time.Time, 1)
	b := dial(t, srv.addr, &Options{TTL: ttl})
	go func() {
		next, err := b.Locker().Acquire(t.Context(), "c22")
		if state := g.State(); state != holdfast.StateLost {
			t.Errorf("granted to the next while the first holder says %v", state)
		}
		granted <- time.Now()
		if err != nil {
			t.Error(err)
			return
		}
		_ = next.Release(context.Background())
	}()
	waitFor(t, "a good keepalive", func() bool { mu.Lock(); defer mu.Unlock(); return !sent.IsZero() })
	p.stall(true, true)
	var last time.Time
	waitFor(t, "the grant is lost", func() bool {
		mu.Lock()
		defer mu.Unlock()
		last = sent
		return g.Context().Err() != nil
	})
	lost := time.Now()
	// The observer notes a keepalive a little after it left, more so on a busy
	// machine, so that the loss seems early by as much.
	if off := lost.Sub(last.Add(ttl - margin)); off < -margin || off > ttl/3 {
		t.Errorf("lost %v after the last good keepalive left, want %v", lost.Sub(last), ttl-margin)
	}
	if g.Cause().Cause != holdfast.CauseUnreachable {
		t.Errorf("cause: %v", g.Cause())
	}
	for s, err := range op.Sessions(t.Context(), ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Label == "vanishing" && (s.LastHeard == nil || *s.LastHeard < ttl/2 || s.TTLLeft > ttl/2) {
			t.Errorf("the vanished session is shown as %+v, last heard %v ago", s, s.LastHeard)
		}
	}
	at := <-granted
	if bound := 2*ttl + 300*time.Millisecond; at.Sub(last) > bound {
		t.Errorf("granted to the next %v after the last keepalive, want at most %v", at.Sub(last), bound)
	}
	p.heal()
}

func TestCasebookC23_LineFailuresAreRetriedInTime(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	for name, damage := range map[string]struct{ on func(cutter) }{
		"reset":                {func(p cutter) { p.Reset() }},
		"refused":              {cutter.refuse},
		"requests kept back":   {func(p cutter) { p.stall(true, false) }},
		"replies kept back":    {func(p cutter) { p.stall(false, true) }},
		"everything kept back": {func(p cutter) { p.stall(true, true) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newCutter(t, srv.addr)
			var pulse pulses
			c := dial(t, p.Addr(), &Options{TTL: 4 * time.Second, OnPulse: pulse.on})
			g := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "c23/"+name))
			for range 2 {
				pulse.next(t, 1)
				damage.on(p)
				hold(t, 1500*time.Millisecond) // below TTL − margin, with the time to reconnect
				p.heal()
				pulse.next(t, 1)
				if g.State() == holdfast.StateLost {
					t.Fatalf("lost: %v", g.Cause())
				}
			}
		})
	}
}

// hold lets real time pass: what is under test is what happens meanwhile.
func hold(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func TestCasebookC30_LostRepliesAreNoConflict(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	p := newCutter(t, srv.addr)
	var pulse pulses
	c := dial(t, p.Addr(), &Options{TTL: 3 * time.Second, OnPulse: pulse.on})
	g := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "c30"))
	for range 4 {
		p.stall(false, true) // the service hears the next one, the client not its answer
		hold(t, 700*time.Millisecond)
		p.heal()
		pulse.next(t, 1)
	}
	if g.State() == holdfast.StateLost {
		t.Fatalf("lost: %v", g.Cause())
	}
	if st := c.Locker().Stats(); st.Losses != 0 || st.Sessions != 1 {
		t.Errorf("counted %+v", st)
	}
}

// lossy loses the reply of calls on one line.
type lossy struct {
	t *testing.T
	p cutter
}

// lose makes the call on a line that swallows replies, until the service has
// done it, and then on one that works. ready says that the line works.
func (l lossy) lose(what string, ready, call func() error, done func() bool) {
	l.t.Helper()
	if err := ready(); err != nil {
		l.t.Fatal(err)
	}
	l.p.stall(false, true)
	got := make(chan error, 1)
	go func() { got <- call() }()
	waitFor(l.t, what+" at the service", done)
	l.p.heal()
	if err := <-got; err != nil {
		l.t.Errorf("%s: %v", what, err)
	}
}

// holders are those of a lock, as another client sees it.
func holders(t *testing.T, op *Client, lock string) []Holder {
	t.Helper()
	l, err := op.Get(t.Context(), lock, GetOptions{})
	if driver.KindOf(err) == driver.NotFound {
		return nil
	}
	return must[*Lock](t)(l, err).Holders
}

// labelled counts the sessions with a label.
func labelled(t *testing.T, op *Client, label string) (n int) {
	t.Helper()
	for s, err := range op.Sessions(t.Context(), ListOptions{}) {
		if must[*Session](t)(s, err).Label == label {
			n++
		}
	}
	return n
}

// TestLostReplies loses the reply of each kind of call of a session, and
// checks that the call was one call.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	op := dial(t, srv.addr, nil)
	p := newCutter(t, srv.addr)
	l := line(t, p.Addr())
	const label = "lost replies"
	var s *session
	lossy := lossy{t, p}
	lossy.lose("open", func() error { _, err := l.stream(t.Context(), nil); return err }, func() error {
		var e *driver.Error
		if s, e = l.open(t.Context(), driver.OpenRequest{TTL: 20 * time.Second, Label: label}); e != nil {
			return e
		}
		return nil
	}, func() bool { return labelled(t, op, label) == 1 })
	if n := labelled(t, op, label); n != 1 {
		t.Errorf("one open, %d sessions", n)
	}
	alive := func() error { _, err := s.Keepalive(t.Context()); return err }
	held := func(n int) func() bool { return func() bool { return len(holders(t, op, "lost/a")) == n } }
	var g driver.Grant
	lossy.lose("acquire", alive, func() (err error) { g, err = s.Acquire(t.Context(), request("lost/a", 0, 1)); return err }, held(1))
	if h := holders(t, op, "lost/a"); len(h) != 1 || h[0].Token != g.Token {
		t.Errorf("holders %+v, got %v", h, g)
	}
	lossy.lose("release", alive, func() error { return s.Release(t.Context(), driver.ReleaseRequest{Grant: g.ID}) }, held(0))
	must[driver.Grant](t)(s.Acquire(t.Context(), request("lost/a", 0, 2)))
	lossy.lose("cancel", alive, func() error { return s.Cancel(t.Context(), driver.RequestID{Lane: 0, N: 2}) }, held(0))
	lossy.lose("end", alive, func() error { return s.End(t.Context()) }, func() bool { return labelled(t, op, label) == 0 })
}

func TestLostRepliesOfWrites(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	op := dial(t, srv.addr, nil)
	p := newCutter(t, srv.addr)
	c := dial(t, p.Addr(), nil)
	rev := must[uint64](t)(c.Put(t.Context(), "v", []byte("0"), PutOptions{}))
	value := func() *Lock { l, _ := op.Get(t.Context(), "v", GetOptions{}); return l }
	ready := func() error { _, err := c.Status(t.Context()); return err }
	lossy := lossy{t, p}
	lossy.lose("put", ready, func() (err error) {
		rev, err = c.Put(t.Context(), "v", []byte("1"), PutOptions{IfRevision: &rev})
		return err
	}, func() bool { return string(value().Value) == "1" })
	if got := value().ModifyRevision; got != rev {
		t.Errorf("one put, revision %d, and the value is of revision %d", rev, got)
	}
	lossy.lose("delete", ready, func() error { _, err := c.Delete(t.Context(), "v", DeleteOptions{IfRevision: &rev}); return err },
		func() bool { return value() == nil })
}

func TestCasebookC26_C42_ShortWaitsOverResetsLeakNothing(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	p := newCutter(t, srv.addr)
	op := dial(t, srv.addr, nil)
	blocker := must[*holdfast.Grant](t)(op.Locker().Acquire(t.Context(), "c42"))
	clients := make([]*Client, 10)
	for i := range clients {
		clients[i] = dial(t, p.Addr(), &Options{TTL: 4 * time.Second})
	}
	stop := p.often(40 * time.Millisecond)
	defer stop()
	var work sync.WaitGroup
	for i, c := range clients {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 42))
			for n := range 40 {
				wait := time.Duration(1+rng.IntN(5)) * time.Millisecond
				if n%2 == 0 {
					shortWait(t, c, wait, "c42", AcquireOptions{}, false)
				} else {
					shortWait(t, c, wait, "c42/permits", AcquireOptions{Limit: 3}, true)
				}
			}
		})
	}
	work.Wait()
	stop()
	waitFor(t, "the queue is empty", func() bool {
		l, err := op.Get(t.Context(), "c42", GetOptions{})
		return err == nil && l.Waiters == 0
	})
	waitFor(t, "no permit is taken", func() bool { return len(holders(t, op, "c42/permits")) == 0 })
	for range 3 {
		must[*holdfast.Grant](t)(op.Acquire(t.Context(), "c42/permits", AcquireOptions{Limit: 3, Try: true}))
	}
	if _, err := op.Acquire(t.Context(), "c42/permits", AcquireOptions{Limit: 3, Try: true}); !errors.Is(err, holdfast.ErrBusy) && !errors.Is(err, holdfast.ErrHeldByYou) {
		t.Errorf("a fourth permit of three: %v", err)
	}
	if err := blocker.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// shortWait is one acquire that hardly has the time, and its release.
func shortWait(t *testing.T, c *Client, wait time.Duration, name string, o AcquireOptions, mayBeGranted bool) {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	g, err := c.Acquire(ctx, name, o)
	switch {
	case err != nil && g != nil:
		t.Errorf("both a grant and an error: %v", err)
	case err != nil:
	case !mayBeGranted:
		t.Error("granted while another holds it")
	default:
		if err := g.Release(t.Context()); err != nil && !errors.Is(err, holdfast.ErrReleasePending) {
			t.Error(err)
		}
	}
}

// A copy of a client's secret, used by another process, closes the first one's
// stream; its other sessions live on.
func TestCasebookC80_CopiedSecret(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	l, thief := line(t, srv.addr), line(t, srv.addr)
	s, other := openOne(t, l), openOne(t, l)
	must[driver.Grant](t)(s.Acquire(t.Context(), request("c80", 0, 1)))
	openOne(t, thief) // so that its stream stands
	stolen := &session{link: thief, id: s.id, secret: s.secret, ttl: s.ttl, attaches: 100,
		gone: make(chan struct{}), calls: map[*call]struct{}{}, asked: map[uint32]uint64{}, acquires: map[driver.RequestID]*call{}}
	if _, err := stolen.Keepalive(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.gone:
	case <-time.After(10 * time.Second):
		t.Fatal("the first client was not told")
	}
	if _, err := s.Keepalive(t.Context()); driver.KindOf(err) != driver.SessionLost {
		t.Errorf("keepalive of the taken session: %v", err)
	}
	if _, err := other.Keepalive(t.Context()); err != nil {
		t.Errorf("keepalive of another session of the same stream: %v", err)
	}
	if _, err := stolen.Keepalive(t.Context()); err != nil {
		t.Errorf("the two take turns: %v", err)
	}
	if err := stolen.End(t.Context()); err != nil {
		t.Error(err)
	}
}
