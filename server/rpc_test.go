package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/wire/holdfastv1"
)

// ok calls a method that must succeed.
func ok[T proto.Message](t *testing.T, call caller, method string, in proto.Message, out T) T {
	t.Helper()
	if e := call(t.Context(), method, in, out); e != nil {
		t.Fatalf("%s: %v (%v, %v)", method, e, e.Kind, e.Outcome)
	}
	return out
}

// refusedAs calls a method that must be refused with a kind; nothing happened.
func refusedAs(t *testing.T, call caller, method string, in proto.Message, kind driver.Kind) *driver.Error {
	t.Helper()
	e := call(t.Context(), method, in, &holdfastv1.GetStatusResponse{})
	if e == nil {
		t.Fatalf("%s: no error, want %v", method, kind)
	}
	if e.Kind != kind || e.Outcome != driver.No {
		t.Fatalf("%s: %v, outcome %v, want %v and no: %v", method, e.Kind, e.Outcome, kind, e)
	}
	return e
}

func TestLifeOfALockOverEveryProtocol(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		lock := "life/" + strings.ReplaceAll(t.Name(), "/", "-")
		opened := ok(t, call, "OpenSession", &holdfastv1.OpenSessionRequest{Label: "a", Host: "h", TtlMs: 30_000}, &holdfastv1.OpenSessionResponse{})
		if opened.GetTtlMs() != 30_000 || len(opened.GetSecret()) != 64 || opened.GetSessionId() == 0 {
			t.Fatalf("opened %v", opened)
		}
		me := &holdfastv1.SessionRef{Id: opened.GetSessionId(), Secret: opened.GetSecret()}
		acquire := &holdfastv1.AcquireRequest{Session: me, Request: &holdfastv1.RequestID{N: 1}, Lock: lock, Value: []byte{}, MaxHoldMs: 60_000}
		g := ok(t, call, "Acquire", acquire, &holdfastv1.AcquireResponse{}).GetGrant()
		token, err := fence.ParseToken(g.GetToken())
		if err != nil || token.Lock != lock || token.Mode != fence.Exclusive || token.Number != g.GetNumber() || g.GetTokenNumber() != token.Number {
			t.Fatalf("grant %v, token %v, %v", g, token, err)
		}
		if left := g.GetMaxHoldLeftMs(); left < 50_000 || left > 61_000 {
			t.Errorf("max hold left %d ms", left)
		}
		if again := ok(t, call, "Acquire", acquire, &holdfastv1.AcquireResponse{}).GetGrant(); again.GetNumber() != g.GetNumber() {
			t.Errorf("the same request got another grant: %v", again)
		}
		if p := ok(t, call, "KeepAlive", &holdfastv1.KeepAliveRequest{Session: me}, &holdfastv1.KeepAliveResponse{}); p.GetTtlMs() != 30_000 || len(p.GetRevoked()) > 0 {
			t.Errorf("pulse %v", p)
		}
		l := ok(t, call, "GetLock", &holdfastv1.GetLockRequest{Lock: lock}, &holdfastv1.GetLockResponse{})
		h := l.GetLock().GetHolders()[0]
		if h.GetGrant() != g.GetNumber() || h.GetToken() != g.GetToken() || h.GetSessionId() != me.GetId() || h.GetLabel() != "a" || h.GetHost() != "h" ||
			h.LastHeardMs == nil || h.GetTtlLeftMs() == 0 || h.GetTtlLeftMs() > 30_000 || l.GetLock().Value == nil || l.GetLock().GetValueGrant() != g.GetNumber() {
			t.Errorf("lock %v", l)
		}
		if l.GetRead().GetStale() || l.GetRead().GetRevision() == 0 || l.GetRead().GetIndex() == 0 {
			t.Errorf("read %v", l.GetRead())
		}
		if ls := ok(t, call, "ListLocks", &holdfastv1.ListLocksRequest{Prefix: lock}, &holdfastv1.ListLocksResponse{}); len(ls.GetLocks()) != 1 {
			t.Errorf("list %v", ls)
		}
		stale := ok(t, call, "GetLock", &holdfastv1.GetLockRequest{Lock: lock, AllowStale: true}, &holdfastv1.GetLockResponse{})
		if !stale.GetRead().GetStale() {
			t.Errorf("stale read is not marked: %v", stale.GetRead())
		}
		ok(t, call, "Release", &holdfastv1.ReleaseRequest{Session: me, Grant: g.GetNumber()}, &holdfastv1.ReleaseResponse{})
		ok(t, call, "Release", &holdfastv1.ReleaseRequest{Session: me, Grant: g.GetNumber()}, &holdfastv1.ReleaseResponse{})
		ok(t, call, "Cancel", &holdfastv1.CancelRequest{Session: me, Request: &holdfastv1.RequestID{N: 7}}, &holdfastv1.CancelResponse{})
		refusedAs(t, call, "Acquire", &holdfastv1.AcquireRequest{Session: me, Request: &holdfastv1.RequestID{N: 7}, Lock: lock}, driver.Cancelled)
		refusedAs(t, call, "Release", &holdfastv1.ReleaseRequest{Session: me, Grant: g.GetNumber() + 1_000_000}, driver.Invalid)
		free := refusedAs(t, call, "GetLock", &holdfastv1.GetLockRequest{Lock: lock}, driver.NotFound)
		if !strings.Contains(free.Msg, "free") {
			t.Errorf("a free lock is told as %q", free.Msg)
		}
		values(t, call, me, lock)
		ok(t, call, "EndSession", &holdfastv1.EndSessionRequest{Session: me}, &holdfastv1.EndSessionResponse{})
		refusedAs(t, call, "KeepAlive", &holdfastv1.KeepAliveRequest{Session: me}, driver.SessionLost)
	})
}

// values is the life of a value.
func values(t *testing.T, call caller, me *holdfastv1.SessionRef, lock string) {
	t.Helper()
	zero := new(uint64)
	put := ok(t, call, "Put", &holdfastv1.PutRequest{Lock: lock, Value: []byte("a"), IfRevision: zero}, &holdfastv1.PutResponse{})
	refusedAs(t, call, "Put", &holdfastv1.PutRequest{Lock: lock, Value: []byte("b"), IfRevision: zero}, driver.Conflict)
	named := &holdfastv1.PutRequest{Session: me, Request: &holdfastv1.RequestID{Lane: 3, N: 1}, Lock: lock, Value: []byte("b"), IfRevision: &put.Revision, Bind: true}
	first := ok(t, call, "Put", named, &holdfastv1.PutResponse{})
	if again := ok(t, call, "Put", named, &holdfastv1.PutResponse{}); again.GetRevision() != first.GetRevision() {
		t.Errorf("the same put twice: revisions %d and %d", first.GetRevision(), again.GetRevision())
	}
	l := ok(t, call, "GetLock", &holdfastv1.GetLockRequest{Lock: lock}, &holdfastv1.GetLockResponse{}).GetLock()
	if string(l.GetValue()) != "b" || l.GetModifyRevision() != first.GetRevision() || l.GetValueSession() != me.GetId() {
		t.Errorf("lock with a value: %v", l)
	}
	ok(t, call, "Delete", &holdfastv1.DeleteRequest{Lock: lock, IfRevision: &first.Revision}, &holdfastv1.DeleteResponse{})
	refusedAs(t, call, "Delete", &holdfastv1.DeleteRequest{Lock: lock}, driver.NotFound)
}

func TestOperatorsAndReadsOverEveryProtocol(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		lock := "op/" + strings.ReplaceAll(t.Name(), "/", "-")
		a := w.open("a", time.Minute)
		g := a.acquire(lock)
		refusedAs(t, call, "RevokeGrant", &holdfastv1.RevokeGrantRequest{Lock: lock, Grant: g.GetNumber() + 5, By: "ann"}, driver.Invalid)
		r := ok(t, call, "RevokeGrant", &holdfastv1.RevokeGrantRequest{Lock: lock, Grant: g.GetNumber(), By: "ann"}, &holdfastv1.RevokeGrantResponse{})
		burnt, err := fence.ParseToken(r.GetRevocationToken())
		if err != nil || burnt.Mode != fence.Revocation || burnt.Number <= g.GetNumber() || burnt.Lock != lock {
			t.Errorf("revocation token %v, %v", burnt, err)
		}
		p, e := a.keepAlive()
		if e != nil || len(p.GetRevoked()) != 1 || p.GetRevoked()[0].GetGrant() != g.GetNumber() || p.GetRevoked()[0].GetCause() != "operator" || p.GetRevoked()[0].GetBy() != "ann" || p.GetRevoked()[0].GetGone() {
			t.Errorf("pulse %v, %v", p, e)
		}
		a.release(g)
		if p, e := a.keepAlive(); e != nil || len(p.GetRevoked()) != 0 {
			t.Errorf("acknowledged, yet told again: %v, %v", p, e)
		}
		g = a.acquire(lock)
		late := refusedAs(t, call, "RevokeGrant", &holdfastv1.RevokeGrantRequest{Lock: lock, Grant: g.GetNumber() - 2}, driver.NotHeld)
		if late.Holder == nil || late.Holder.GrantNumber != g.GetNumber() || late.Holder.Label != "a" {
			t.Errorf("the refusal does not show the holder: %+v", late.Holder)
		}
		ok(t, call, "RevokeGrant", &holdfastv1.RevokeGrantRequest{Lock: lock, Grant: g.GetNumber(), Now: true}, &holdfastv1.RevokeGrantResponse{})
		if w.lock(lock).GetHolderCount() != 0 {
			t.Error("revoked now, yet still held")
		}
		ok(t, call, "ReportRefusal", &holdfastv1.ReportRefusalRequest{Gate: "ledger", Offered: g.GetToken(), Seen: r.GetRevocationToken()}, &holdfastv1.ReportRefusalResponse{})
		ss := ok(t, call, "ListSessions", &holdfastv1.ListSessionsRequest{PageSize: 1000}, &holdfastv1.ListSessionsResponse{})
		if len(ss.GetSessions()) == 0 {
			t.Error("no sessions")
		}
		ok(t, call, "ExpelSession", &holdfastv1.ExpelSessionRequest{SessionId: a.ref.GetId(), By: "ann"}, &holdfastv1.ExpelSessionResponse{})
		refusedAs(t, call, "ExpelSession", &holdfastv1.ExpelSessionRequest{SessionId: a.ref.GetId(), By: "ann"}, driver.NotFound)
		if _, e := a.keepAlive(); e == nil || e.Kind != driver.SessionLost {
			t.Errorf("expelled, yet %v", e)
		}
		if n := len(w.log.lines(`"msg":"audit"`, `"by":"ann"`, `"call":"expel"`, `"outcome":"done"`)); n == 0 {
			t.Error("no audit record of the expulsion")
		}
		st := ok(t, call, "GetStatus", &holdfastv1.GetStatusRequest{}, &holdfastv1.GetStatusResponse{})
		if !st.GetReady() || st.GetRole() != "leader" || st.GetLastNumber() < burnt.Number || st.GetDomain() != burnt.Domain.String() || st.GetVersion() != "dev" {
			t.Errorf("status %v", st)
		}
		hashed := ok(t, call, "GetStatus", &holdfastv1.GetStatusRequest{WithHash: true}, &holdfastv1.GetStatusResponse{})
		if st.GetStateHash() != "" || len(hashed.GetStateHash()) != 64 || hashed.GetAppliedIndex() < st.GetAppliedIndex() {
			t.Errorf("hash %q without, %q with asking", st.GetStateHash(), hashed.GetStateHash())
		}
		poll := ok(t, call, "Poll", &holdfastv1.PollRequest{Lock: lock, AfterRevision: 1, WaitMs: 1}, &holdfastv1.PollResponse{})
		kinds := ""
		for _, e := range poll.GetEvents() {
			kinds += e.GetKind() + " "
		}
		if !strings.HasPrefix(kinds, "granted revoked released granted") {
			t.Errorf("events %q", kinds)
		}
	})
}

// A report of a token that was never minted here is the sign of a fork (A4).
func TestReportOfATokenNeverMintedRaisesTheAlarm(t *testing.T) {
	w := start(t)
	a := w.open("a", time.Minute)
	g := a.acquire("x")
	token, _ := fence.ParseToken(g.GetToken())
	report := func(seen fence.Token) {
		t.Helper()
		ok(t, w.callers()["connect"], "ReportRefusal", &holdfastv1.ReportRefusalRequest{Gate: "db", Offered: g.GetToken(), Seen: seen.String()}, &holdfastv1.ReportRefusalResponse{})
	}
	alarms := func() int { return len(w.log.lines(`"level":"ERROR"`, "ALARM")) }
	report(token)
	foreign := token
	foreign.Domain[0]++
	foreign.Number += 1000
	report(foreign)
	if alarms() != 0 {
		t.Fatal("alarm for a token that is not ahead, or of another domain")
	}
	token.Number++
	report(token)
	if alarms() != 1 {
		t.Fatal("no alarm for a token that was never minted")
	}
	if _, page := w.get("/metrics"); !strings.Contains(page, "\nholdfast_gate_refusals_ahead_total 1\n") || !strings.Contains(page, "\nholdfast_gate_refusals_total 3\n") {
		t.Error("the metrics do not count the reports")
	}
}

func TestSecretsAreAskedForAndNeverLogged(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		a, b := w.open("a", time.Minute), w.open("b", time.Minute)
		g := a.acquire("s/" + t.Name())
		robber := &holdfastv1.SessionRef{Id: a.ref.GetId(), Secret: b.ref.GetSecret()}
		refusedAs(t, call, "Release", &holdfastv1.ReleaseRequest{Session: robber, Grant: g.GetNumber()}, driver.Denied)
		refusedAs(t, call, "KeepAlive", &holdfastv1.KeepAliveRequest{Session: robber}, driver.Denied)
		refusedAs(t, call, "EndSession", &holdfastv1.EndSessionRequest{Session: robber}, driver.Denied)
		refusedAs(t, call, "Cancel", &holdfastv1.CancelRequest{Session: robber, Request: &holdfastv1.RequestID{N: 1}}, driver.Denied)
		refusedAs(t, call, "Acquire", &holdfastv1.AcquireRequest{Session: robber, Request: &holdfastv1.RequestID{N: 9}, Lock: "x"}, driver.Denied)
		refusedAs(t, call, "Put", &holdfastv1.PutRequest{Session: robber, Request: &holdfastv1.RequestID{N: 9}, Lock: "x", Bind: true}, driver.Denied)
		nobody := &holdfastv1.SessionRef{Id: 1 << 62, Secret: b.ref.GetSecret()}
		refusedAs(t, call, "KeepAlive", &holdfastv1.KeepAliveRequest{Session: nobody}, driver.SessionLost)
		// Another's grant is not released by one's own secret.
		if e := call(t.Context(), "Release", &holdfastv1.ReleaseRequest{Session: b.ref, Grant: g.GetNumber()}, &holdfastv1.ReleaseResponse{}); e != nil && e.Kind != driver.NotHeld {
			t.Errorf("release of another's grant: %v", e)
		}
		if w.lock("s/" + t.Name()).GetHolders()[0].GetGrant() != g.GetNumber() {
			t.Error("the lock was released by another session")
		}
		for _, secret := range []string{a.secret.String(), b.secret.String()} {
			if strings.Contains(w.log.String(), secret) {
				t.Error("a secret is in the log")
			}
		}
	})
}

func TestOpenIsIdempotentByItsSecret(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		secret := drawSecret().String()
		first := ok(t, call, "OpenSession", &holdfastv1.OpenSessionRequest{Secret: secret, TtlMs: 20_000}, &holdfastv1.OpenSessionResponse{})
		again := ok(t, call, "OpenSession", &holdfastv1.OpenSessionRequest{Secret: secret, TtlMs: 40_000}, &holdfastv1.OpenSessionResponse{})
		if first.GetSessionId() != again.GetSessionId() || again.GetTtlMs() != 20_000 || first.GetSecret() != "" {
			t.Errorf("opened %v, then %v", first, again)
		}
	})
}

func TestAcquireWaitsAsLongAsItWasTold(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		lock := "wait/" + strings.ReplaceAll(t.Name(), "/", "-")
		a, b := w.open("a", time.Minute), w.open("b", time.Minute)
		g := a.acquire(lock)
		busy := refusedAs(t, call, "Acquire", &holdfastv1.AcquireRequest{Session: b.ref, Request: &holdfastv1.RequestID{N: 1}, Lock: lock}, driver.Busy)
		if busy.Holder == nil || busy.Holder.Label != "a" || busy.Holder.Host != "host-of-a" || busy.Holder.GrantNumber != g.GetNumber() || busy.Holder.Token != g.GetToken() || busy.Lock != lock {
			t.Errorf("busy says %+v, holder %+v", busy, busy.Holder)
		}
		mine := refusedAs(t, call, "Acquire", &holdfastv1.AcquireRequest{Session: a.ref, Request: &holdfastv1.RequestID{Lane: 9, N: 1}, Lock: lock}, driver.HeldByYou)
		if mine.Holder == nil {
			t.Error("held by you, but no holder")
		}
		begun := time.Now()
		late := refusedAs(t, call, "Acquire", &holdfastv1.AcquireRequest{Session: b.ref, Request: &holdfastv1.RequestID{N: 2}, Lock: lock, WaitMs: 60}, driver.Busy)
		if took := time.Since(begun); took < 60*time.Millisecond {
			t.Errorf("gave up after %v, told to wait 60 ms", took)
		}
		if late.Holder == nil || late.Holder.GrantNumber != g.GetNumber() {
			t.Errorf("after the wait: %+v", late)
		}
		if n := w.lock(lock).GetWaiters(); n != 0 {
			t.Errorf("%d waiters stay behind", n)
		}
		// The request is settled: the same name says so, for ever.
		refusedAs(t, call, "Acquire", &holdfastv1.AcquireRequest{Session: b.ref, Request: &holdfastv1.RequestID{N: 2}, Lock: lock, WaitMs: 60_000}, driver.Cancelled)
		got := make(chan *driver.Error, 1)
		go func() {
			got <- call(context.WithoutCancel(t.Context()), "Acquire", &holdfastv1.AcquireRequest{Session: b.ref, Request: &holdfastv1.RequestID{N: 3}, Lock: lock, WaitMs: 60_000}, &holdfastv1.AcquireResponse{})
		}()
		w.waiters(lock, 1)
		a.release(g)
		if e := <-got; e != nil {
			t.Errorf("the waiter was not granted: %v", e)
		}
	})
}

// A caller that goes away keeps its place; asked again under the same name, it
// is the same request.
func TestACallerThatGoesAwayKeepsItsPlace(t *testing.T) {
	each(t, func(t *testing.T, w *world, call caller) {
		lock := "gone/" + strings.ReplaceAll(t.Name(), "/", "-")
		a, b, c := w.open("a", time.Minute), w.open("b", time.Minute), w.open("c", time.Minute)
		g := a.acquire(lock)
		ask := func(ctx context.Context, who *client) chan *driver.Error {
			got := make(chan *driver.Error, 1)
			go func() {
				got <- call(ctx, "Acquire", &holdfastv1.AcquireRequest{Session: who.ref, Request: &holdfastv1.RequestID{N: 1}, Lock: lock, WaitForever: true}, &holdfastv1.AcquireResponse{})
			}()
			return got
		}
		ctx, hangUp := context.WithCancel(t.Context())
		first := ask(ctx, b)
		w.waiters(lock, 1)
		hangUp()
		if e := <-first; e == nil || e.Outcome != driver.Unknown {
			t.Fatalf("hung up, and got %v", e)
		}
		behind := ask(t.Context(), c)
		w.waiters(lock, 2)
		if q := w.lock(lock).GetQueue(); q[0].GetSessionId() != b.ref.GetId() {
			t.Fatalf("the place was lost: %v", q)
		}
		again := ask(t.Context(), b)
		replaced := ask(t.Context(), b)
		w.until("one of two equal calls is told that it was replaced", func() bool { return len(again)+len(replaced) == 1 })
		a.release(g)
		outcomes := map[driver.Outcome]int{}
		for _, ch := range []chan *driver.Error{again, replaced} {
			if e := <-ch; e == nil {
				outcomes[driver.Yes]++
			} else {
				outcomes[e.Outcome]++
			}
		}
		if outcomes[driver.Yes] != 1 || outcomes[driver.Unknown] != 1 {
			t.Errorf("outcomes of the two calls: %v", outcomes)
		}
		ok(t, call, "EndSession", &holdfastv1.EndSessionRequest{Session: b.ref}, &holdfastv1.EndSessionResponse{})
		if e := <-behind; e != nil {
			t.Errorf("the next in the queue: %v", e)
		}
	})
}
