package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/fence"
)

func TestAcquireOptions(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	a, b := dial(t, srv.addr, &Options{Label: "a"}), dial(t, srv.addr, &Options{Label: "b"})
	ctx := t.Context()
	grant := func(c *Client, name string, o AcquireOptions) *holdfast.Grant {
		t.Helper()
		return must[*holdfast.Grant](t)(c.Acquire(ctx, name, o))
	}
	release := func(g *holdfast.Grant, opts ...holdfast.ReleaseOption) {
		t.Helper()
		if err := g.Release(ctx, opts...); err != nil {
			t.Fatal(err)
		}
	}

	x, y := grant(a, "shared", AcquireOptions{Shared: true}), grant(b, "shared", AcquireOptions{Shared: true})
	if x.Token().Mode != fence.Shared || x.Token() != y.Token() {
		t.Errorf("shared tokens %v and %v: want one generation", x.Token(), y.Token())
	}
	if _, err := b.Acquire(ctx, "shared", AcquireOptions{Try: true}); !errors.Is(err, holdfast.ErrBusy) && !errors.Is(err, holdfast.ErrHeldByYou) {
		t.Errorf("exclusive beside shared: %v", err)
	}
	release(x)
	release(y)

	x, y = grant(a, "permits", AcquireOptions{Limit: 2}), grant(b, "permits", AcquireOptions{Limit: 2})
	if x.Token().Slot == y.Token().Slot {
		t.Errorf("two permits, one slot: %v, %v", x.Token(), y.Token())
	}
	if _, err := b.Acquire(ctx, "permits", AcquireOptions{Limit: 3, Try: true}); !errors.Is(err, holdfast.ErrLimit) {
		t.Errorf("another limit while in use: %v", err)
	}
	release(x)
	release(y)

	x = grant(a, "valued", AcquireOptions{Value: []byte("10.0.0.1")})
	l := must[*Lock](t)(b.Get(ctx, "valued", GetOptions{}))
	if !l.HasValue || string(l.Value) != "10.0.0.1" || len(l.Holders) != 1 || l.Holders[0].Label != "a" || l.Holders[0].Token != x.Token() {
		t.Errorf("got %+v", l)
	}
	release(x)
	if _, err := b.Get(ctx, "valued", GetOptions{}); driver.KindOf(err) != driver.NotFound {
		t.Errorf("the value outlived its grant: %v", err)
	}

	x = grant(a, "once", AcquireOptions{OncePer: time.Hour})
	release(x, holdfast.Failed())
	_, err := b.Acquire(ctx, "once", AcquireOptions{OncePer: time.Hour})
	if e, ok := errors.AsType[*holdfast.Error](err); !errors.Is(err, holdfast.ErrClosed) || !ok || e.OpensIn < 50*time.Minute || e.OpensIn > 54*time.Minute {
		t.Errorf("again within the period: %v", err)
	}
	x = grant(a, "retry", AcquireOptions{OncePer: time.Hour, RetryFailed: true})
	release(x, holdfast.Failed())
	x = grant(b, "retry", AcquireOptions{OncePer: time.Hour, RetryFailed: true})
	release(x)
	if _, err := a.Acquire(ctx, "retry", AcquireOptions{OncePer: time.Hour, RetryFailed: true}); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("again after success: %v", err)
	}
}

func TestMaxHoldAndRevoke(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	a, op := dial(t, srv.addr, &Options{TTL: 3 * time.Second}), dial(t, srv.addr, nil)
	ctx := t.Context()
	ends := func(g *holdfast.Grant, cause holdfast.Cause, by string) {
		t.Helper()
		select {
		case <-g.Context().Done():
		case <-time.After(10 * time.Second):
			t.Fatal("not lost")
		}
		if c := g.Cause(); c == nil || c.Cause != cause || c.By != by {
			t.Errorf("lost: %v, want %v by %q", c, cause, by)
		}
		if err := g.Release(ctx); err != nil {
			t.Error(err)
		}
	}
	g := must[*holdfast.Grant](t)(a.Acquire(ctx, "maxhold", AcquireOptions{MaxHold: 300 * time.Millisecond}))
	ends(g, holdfast.CauseMaxHold, "")

	for _, now := range []bool{false, true} {
		name := fmt.Sprint("revoked/", now)
		g := must[*holdfast.Grant](t)(a.Acquire(ctx, name, AcquireOptions{LockDelay: 200 * time.Millisecond}))
		l := must[*Lock](t)(op.Get(ctx, name, GetOptions{}))
		if _, err := op.Revoke(ctx, name, l.Holders[0].Grant+1000, RevokeOptions{}); driver.OutcomeOf(err) != driver.No {
			t.Errorf("revoke of a grant that never was: %v", err)
		}
		r := must[*Revoked](t)(op.Revoke(ctx, name, l.Holders[0].Grant, RevokeOptions{Now: now, By: "carol"}))
		if r.Token.Mode != fence.Revocation || r.Token.Number <= g.Token().Number || r.Token.Lock != name {
			t.Errorf("revocation token %v after %v", r.Token, g.Token())
		}
		ends(g, holdfast.CauseRevoked, "carol")
		next := must[*holdfast.Grant](t)(op.Acquire(ctx, name, AcquireOptions{}))
		_, err := op.Revoke(ctx, name, l.Holders[0].Grant, RevokeOptions{})
		e, ok := errors.AsType[*driver.Error](err)
		if !ok || e.Kind != driver.NotHeld || e.Holder == nil || e.Holder.GrantNumber <= l.Holders[0].Grant {
			t.Errorf("revoke of a grant that is gone: %v", err)
		}
		if err := next.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestBadRequestsSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	c := dial(t, srv.addr, nil)
	ctx := t.Context()
	acquire := func(name string, o AcquireOptions) func() error {
		return func() error { _, err := c.Acquire(ctx, name, o); return err }
	}
	for what, call := range map[string]func() error{
		"empty name":           acquire("", AcquireOptions{}),
		"long name":            acquire(strings.Repeat("x", 513), AcquireOptions{}),
		"control character":    acquire("a\x00b", AcquireOptions{}),
		"not in normal form":   acquire("e\u0301", AcquireOptions{}),
		"not UTF-8":            acquire("\xff", AcquireOptions{}),
		"long value":           acquire("x", AcquireOptions{Value: make([]byte, 4097)}),
		"shared with limit":    acquire("x", AcquireOptions{Shared: true, Limit: 2}),
		"retry without period": acquire("x", AcquireOptions{RetryFailed: true}),
		"negative delay":       acquire("x", AcquireOptions{LockDelay: -1}),
		"tiny period":          acquire("x", AcquireOptions{OncePer: time.Microsecond}),
		"huge delay":           acquire("x", AcquireOptions{LockDelay: 1 << 62}),
		"put of a long value":  func() error { _, err := c.Put(ctx, "x", make([]byte, 4097), PutOptions{}); return err },
		"put of a bad name":    func() error { _, err := c.Put(ctx, "", nil, PutOptions{}); return err },
		"put with a token of another lock": func() error {
			_, err := c.Put(ctx, "x", nil, PutOptions{Token: fence.Token{Domain: fence.Domain{1}, Lock: "y", Mode: fence.Exclusive, Number: 1}})
			return err
		},
		"get of a bad name": func() error { _, err := c.Get(ctx, "\x01", GetOptions{}); return err },
		"watch of two": func() error {
			for _, err := range c.Watch(ctx, WatchOptions{Lock: "a", Prefix: "b"}) {
				return err
			}
			return nil
		},
		"list of big pages": func() error {
			for _, err := range c.List(ctx, "", ListOptions{PageSize: 1001}) {
				return err
			}
			return nil
		},
		"revoke of no grant": func() error { _, err := c.Revoke(ctx, "x", 0, RevokeOptions{}); return err },
		"expel of nobody":    func() error { return c.ExpelSession(ctx, 0, "") },
		"report of no token": func() error { return c.ReportRefusal(ctx, "g", fence.Token{}, fence.Token{}) },
	} {
		err := call()
		if driver.KindOf(err) != driver.Invalid && !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", what, err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", what, len(err.Error()))
		}
	}
	for l, err := range c.List(ctx, "", ListOptions{}) {
		t.Errorf("something was changed: %+v, %v", l, err)
	}
	opt := AcquireOptions{Value: []byte("v")}
	all := make([]holdfast.AcquireOption, 1, 2)
	all[0] = holdfast.Arm()
	g := must[*holdfast.Grant](t)(c.Acquire(ctx, "x", opt, all...))
	if extra := all[:2][1]; extra != nil {
		t.Error("Acquire wrote into the caller's slice of options")
	}
	if err := g.Release(ctx); err != nil {
		t.Error(err)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	c, other := dial(t, srv.addr, nil), dial(t, srv.addr, &Options{TTL: time.Second})
	ctx := t.Context()
	if c.Bound() != nil {
		t.Error("bound before the first put")
	}
	conflict := func(what string, err error, found uint64) {
		t.Helper()
		if driver.KindOf(err) != driver.Conflict || driver.OutcomeOf(err) != driver.No || ConflictRevision(err) != found {
			t.Errorf("%s: %v (revision %d), want a conflict with revision %d", what, err, ConflictRevision(err), found)
		}
	}
	rev := must[uint64](t)(c.Put(ctx, "v", []byte("1"), PutOptions{IfRevision: new(uint64(0))}))
	_, err := other.Put(ctx, "v", []byte("2"), PutOptions{IfRevision: new(uint64(0))})
	conflict("second create", err, rev)
	rev2 := must[uint64](t)(other.Put(ctx, "v", nil, PutOptions{IfRevision: &rev}))
	l := must[*Lock](t)(c.Get(ctx, "v", GetOptions{}))
	if l.ModifyRevision != rev2 || !l.HasValue || len(l.Value) != 0 {
		t.Errorf("got %+v, want an empty value of revision %d", l, rev2)
	}
	_, err = c.Delete(ctx, "v", DeleteOptions{IfRevision: &rev})
	conflict("delete of an old revision", err, rev2)
	must[uint64](t)(c.Delete(ctx, "v", DeleteOptions{IfRevision: &rev2}))
	if _, err := c.Delete(ctx, "v", DeleteOptions{}); driver.KindOf(err) != driver.NotFound {
		t.Errorf("delete of nothing: %v", err)
	}

	g := must[*holdfast.Grant](t)(c.Locker().Acquire(ctx, "guarded"))
	must[uint64](t)(other.Put(ctx, "guarded", []byte("x"), PutOptions{Token: g.Token()}))
	if _, err := c.Delete(ctx, "guarded", DeleteOptions{}); driver.OutcomeOf(err) != driver.No || err == nil {
		t.Errorf("delete of a held lock: %v", err)
	}
	if err := g.Release(ctx); err != nil {
		t.Fatal(err)
	}
	g2 := must[*holdfast.Grant](t)(other.Locker().Acquire(ctx, "guarded"))
	if _, err := c.Put(ctx, "guarded", []byte("zombie"), PutOptions{Token: g.Token()}); driver.KindOf(err) != driver.Stale {
		t.Errorf("put with an old token: %v", err)
	}
	if err := g2.Release(ctx); err != nil {
		t.Fatal(err)
	}

	must[uint64](t)(other.Put(ctx, "presence", []byte("here"), PutOptions{Bind: true}))
	if l := must[*Lock](t)(c.Get(ctx, "presence", GetOptions{})); l.ValueSession == 0 {
		t.Errorf("not bound: %+v", l)
	} else if err := c.ExpelSession(ctx, l.ValueSession, "op"); err != nil {
		t.Error(err)
	}
	select {
	case <-other.Bound():
	case <-time.After(10 * time.Second):
		t.Error("the client was not told that its bound values are gone")
	}
	if _, err := c.Get(ctx, "presence", GetOptions{}); driver.KindOf(err) != driver.NotFound {
		t.Errorf("bound value after the end of its session: %v", err)
	}
	must[uint64](t)(other.Put(ctx, "presence", []byte("again"), PutOptions{Bind: true}))
	if err := c.ExpelSession(ctx, 12345, ""); driver.KindOf(err) != driver.NotFound {
		t.Errorf("expel of an unknown session: %v", err)
	}
}

func TestListsAndStatus(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	c := dial(t, srv.addr, &Options{Label: "lister", Host: "here"})
	ctx := t.Context()
	for i := range 25 {
		must[uint64](t)(c.Put(ctx, fmt.Sprintf("l/%02d", i), nil, PutOptions{}))
	}
	must[uint64](t)(c.Put(ctx, "lx", nil, PutOptions{}))
	n := 0
	for l, err := range c.List(ctx, "l/", ListOptions{PageSize: 10}) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("l/%02d", n); l.Name != want || l.Read.Revision == 0 {
			t.Errorf("lock %d is %+v, want %s", n, l, want)
		}
		n++
	}
	if n != 25 {
		t.Errorf("%d locks, want 25", n)
	}
	for range c.List(ctx, "", ListOptions{}) {
		break // leaving early is no error
	}
	sessions := 0
	for s, err := range c.Sessions(ctx, ListOptions{PageSize: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Label != "lister" || s.Host != "here" || s.TTL != 15*time.Second || !s.Attached || s.TTLLeft > s.TTL {
			t.Errorf("got %+v", s)
		}
		sessions++
	}
	if sessions != 1 {
		t.Errorf("%d sessions, want one", sessions)
	}
	st := must[*Status](t)(c.Status(ctx))
	if st.Server != srv.addr || !st.Ready || st.Role != "leader" || st.Domain == (fence.Domain{}) || st.Sessions != 1 || st.Locks != 26 {
		t.Errorf("got %+v", st)
	}
}

func TestRefusalsReachTheService(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	p := newCutter(t, srv.addr)
	c := dial(t, p.Addr(), nil)
	g := must[*holdfast.Grant](t)(c.Locker().Acquire(t.Context(), "r"))
	seen := g.Token()
	seen.Number++
	r := fence.Refusal{Gate: "orders", Lock: "r", Kind: fence.KindStale, Offered: g.Token(), Seen: seen}
	p.Reset() // the report waits for the next connection
	c.Reporter().Report(t.Context(), r)
	c.Reporter().Report(t.Context(), fence.Refusal{Gate: "orders"}) // nothing to tell
	waitFor(t, "the report", func() bool { return srv.counter("gate_refusals_total") >= 1 })
	if err := c.ReportRefusal(t.Context(), "orders", g.Token(), seen); err != nil {
		t.Error(err)
	}
	waitFor(t, "the second report", func() bool { return srv.counter("gate_refusals_total") >= 2 })
	if err := g.Release(context.Background()); err != nil {
		t.Error(err)
	}
}
