package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/fence"
)

// Fenced runs the contract of engines whose grants carry fencing tokens. newWorld
// is called once for each case, within its bubble on virtual time; names of
// locks and labels do not repeat, so it may return one world again and again.
func Fenced(t *testing.T, m Timing, newWorld func(testing.TB) World) {
	run(t, m, fencedCases(), func(t testing.TB) any { return newWorld(t) })
}

func fencedCases() []testCase {
	return []testCase{
		{"Grant", (*stage).grantCase},
		{"Requests", (*stage).requestsCase},
		{"Busy", (*stage).busyCase},
		{"Exclusion", (*stage).exclusionCase},
		{"TokensRise", (*stage).tokensRiseCase},
		{"Gates", (*stage).gatesCase},
		{"QueueOrder", (*stage).queueOrderCase},
		{"CasebookC16_EndedWaiterIsNeverGranted", (*stage).c16},
		{"CasebookC17_ExpelledWaiterIsTold", (*stage).c17},
		{"CasebookC19_LostIsNotRenewed", (*stage).c19},
		{"CasebookC20_ClosedClientStopsRenewing", (*stage).c20},
		{"CasebookC22_LossOnTime", (*stage).c22},
		{"CasebookC23_FailedKeepalivesAreRetried", (*stage).c23},
		{"CasebookC24_SecondGrantIsRenewed", (*stage).c24},
		{"CasebookC25_NothingOutlivesRelease", (*stage).c25},
		{"CasebookC26_CancelAtEveryStep", (*stage).c26},
		{"CasebookC27_ReleaseIgnoresCancelledContext", (*stage).c27},
		{"CasebookC28_FailedReleaseIsPending", (*stage).c28},
		{"CasebookC29_OldReleaseSparesNewGrant", (*stage).c29},
		{"CasebookC30_LostKeepaliveReplies", (*stage).c30},
		{"CasebookC31_LateReplyRevivesNothing", (*stage).c31},
		{"CasebookC33_RunReleasesAfterWork", (*stage).c33},
		{"CasebookC34_DeadWorkerLosesLock", (*stage).c34},
		{"CasebookC39_DeadWaiterAtHead", (*stage).c39},
		{"CasebookC40_NoLostWakeup", (*stage).c40},
		{"CasebookC41_FailedWaitKeepsPlace", (*stage).c41},
		{"CasebookC42_ShortTimeoutsLeakNothing", (*stage).c42},
		{"CasebookC43_NamesAreNotPrefixes", (*stage).c43},
		{"CasebookC80_LabelsAreNotIdentity", (*stage).c80},
	}
}

// grantCase: what a grant is, and what is left of it after its release.
func (s *stage) grantCase() {
	a := s.actor("a")
	g := s.mustAcquire(a, s.lock)
	if err := g.Token().Validate(); err != nil || g.Token().Lock != s.lock || g.Lock() != s.lock || g.Token().Mode != fence.Exclusive {
		s.Errorf("token %v of lock %q: %v", g.Token(), s.lock, err)
	}
	if got := g.State(); got != holdfast.StateHeld {
		s.Errorf("state is %v, want held", got)
	}
	if left := g.Deadline(); left <= 0 || left > s.TTL-s.margin() {
		s.Errorf("deadline in %v, want within 0 and %v", left, s.TTL-s.margin())
	}
	if g.Err() != nil || g.Cause() != nil || g.Context().Err() != nil {
		s.Errorf("held, yet Err %v, Cause %v, context %v", g.Err(), g.Cause(), g.Context().Err())
	}
	for range 3 {
		s.mustRelease(g)
	}
	if got := g.State(); got != holdfast.StateReleased {
		s.Errorf("state is %v, want released", got)
	}
	if !errors.Is(g.Err(), holdfast.ErrReleased) || context.Cause(g.Context()) != holdfast.ErrReleased || g.Cause() != nil {
		s.Errorf("released, yet Err %v, Cause %v, context's cause %v", g.Err(), g.Cause(), context.Cause(g.Context()))
	}
	if _, open := <-g.Contended(); open {
		s.Error("Contended tells of a waiter; there was none")
	}
	s.free(s.lock, s.TTL/2)
}

// requestsCase: the calls of a session, without the client in between.
func (s *stage) requestsCase() {
	d := s.world.(World).Driver(s)
	defer d.Close()
	ctx, cancel := context.WithTimeout(s.ctx, 10*s.TTL)
	defer cancel()
	x, err := d.Open(ctx, driver.OpenRequest{TTL: s.TTL, Label: s.lock})
	if err != nil {
		s.Fatal(err)
	}
	first := driver.AcquireRequest{ID: driver.RequestID{Lane: 0, N: 1}, Lock: s.lock}
	g, err := x.Acquire(ctx, first)
	again, err2 := x.Acquire(ctx, first)
	if err != nil || err2 != nil || g != again {
		s.Fatalf("the same request gave %v, %v and then %v, %v", g, err, again, err2)
	}
	unseen := driver.RequestID{Lane: 1, N: 1}
	for range 2 {
		if err := x.Cancel(ctx, unseen); err != nil {
			s.Errorf("cancel of a request that the service has not seen: %v", err)
		}
	}
	if g, err := x.Acquire(ctx, driver.AcquireRequest{ID: unseen, Lock: s.lock + "2"}); err == nil {
		s.Errorf("a cancelled request was granted: %v", g)
	}
	second := driver.AcquireRequest{ID: driver.RequestID{Lane: 1, N: 2}, Lock: s.lock + "2"}
	if _, err := x.Acquire(ctx, second); err != nil {
		s.Errorf("next request on the lane of a cancelled one: %v", err)
	}
	if err := x.Cancel(ctx, second.ID); err != nil {
		s.Errorf("cancel of a granted request: %v", err)
	}
	s.free(s.lock+"2", s.TTL/2)
	for range 2 {
		if err := x.Release(ctx, driver.ReleaseRequest{Grant: g.ID}); err != nil {
			s.Errorf("release: %v", err)
		}
	}
	if _, err := x.Acquire(ctx, driver.AcquireRequest{ID: driver.RequestID{Lane: 0, N: 2}, Lock: s.lock}); err != nil {
		s.Errorf("acquire after release: %v", err)
	}
	for range 2 {
		if err := x.End(ctx); err != nil {
			s.Errorf("end: %v", err)
		}
	}
	s.free(s.lock, s.TTL/2)
	if _, err := x.Keepalive(ctx); driver.KindOf(err) != driver.SessionLost {
		s.Errorf("keepalive of an ended session: %v, want session-lost", err)
	}
	_, err = x.Acquire(ctx, driver.AcquireRequest{ID: driver.RequestID{Lane: 0, N: 3}, Lock: s.lock})
	if driver.KindOf(err) != driver.SessionLost {
		s.Errorf("acquire of an ended session: %v, want session-lost", err)
	}
}

// busyCase: a try tells who holds the lock, and leaves nothing behind.
func (s *stage) busyCase() {
	a, b := s.actor("a"), s.actor("b")
	g := s.mustAcquire(a, s.lock)
	_, err := b.TryAcquire(s.ctx, s.lock)
	var e *holdfast.Error
	if !errors.Is(err, holdfast.ErrBusy) || !errors.As(err, &e) {
		s.Fatalf("try of a held lock: %v, want ErrBusy", err)
	}
	if e.Holder == nil || e.Holder.Label != a.label || !strings.Contains(err.Error(), a.label) {
		s.Errorf("busy does not name the holder %q: %v", a.label, err)
	}
	if _, err := a.TryAcquire(s.ctx, s.lock); !errors.Is(err, holdfast.ErrHeldByYou) {
		s.Errorf("try of the own lock: %v, want ErrHeldByYou", err)
	}
	if n := s.waiters(s.lock); n != 0 {
		s.Errorf("%d wait after tries, want 0", n)
	}
	other := s.mustAcquire(a, s.lock+".other") // a second handle of the same session
	s.mustRelease(g)
	if other.State() != holdfast.StateHeld {
		s.Errorf("releasing one lock changed another: %v", other.State())
	}
	g2, err := b.TryAcquire(s.ctx, s.lock)
	if err != nil {
		s.Fatalf("try of a free lock: %v", err)
	}
	s.mustRelease(g2)
	s.mustRelease(other)
}

// exclusionCase: sections of live holders never overlap, and tokens rise, also
// while one client after the other is cut off.
func (s *stage) exclusionCase() {
	var ledger Ledger
	var all sync.WaitGroup
	actors := make([]*actor, 5)
	for i := range actors {
		actors[i] = s.actor(fmt.Sprint("worker", i))
	}
	rounds := s.scale(6, 30, 1000)
	for i, a := range actors {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for n := 0; n < rounds; n++ {
				cut := i == 0 && n%5 == 1
				err := a.Run(s.ctx, s.lock, func(ctx context.Context, g *holdfast.Grant) error {
					ledger.Enter(a.label, g.Token())
					defer ledger.Leave(a.label)
					if cut {
						a.link.Cut()
						<-ctx.Done()
						return nil
					}
					<-time.After(time.Duration(rng.Int64N(int64(s.TTL / 100))))
					return ledger.Write(a.label, g.Token())
				})
				if cut {
					a.link.Restore()
				} else if err != nil {
					s.Errorf("%s: %v", a.label, err)
				}
			}
		})
	}
	all.Wait()
	wrongs, writes, _ := ledger.Verdict()
	for _, w := range wrongs {
		s.Error(w)
	}
	if least := rounds * (len(actors) - 1); writes < least {
		s.Errorf("%d writes, want at least %d", writes, least)
	}
}

// tokensRiseCase: over release, expiry, and after the lock was forgotten.
func (s *stage) tokensRiseCase() {
	a, b := s.actor("a"), s.actor("b")
	var last fence.Token
	rise := func(how string, t fence.Token) {
		if t.Number <= last.Number || (last.Number != 0 && t.Domain != last.Domain) {
			s.Errorf("after %s: token %v does not follow %v", how, t, last)
		}
		last = t
	}
	for range 3 {
		g := s.mustAcquire(a, s.lock)
		rise("release", g.Token())
		s.mustRelease(g)
		rise("release to another", s.free(s.lock, s.TTL/2))
	}
	g := s.mustAcquire(a, s.lock)
	rise("release", g.Token())
	a.link.Cut()
	g = s.mustAcquire(b, s.lock)
	rise("expiry", g.Token())
	s.mustRelease(g)
	s.pass(s.TTL / 4) // nobody holds, waits for or values it: it may be forgotten
	rise("forgetting the lock", s.free(s.lock, s.TTL/2))
}

// gatesCase: gates are armed before the grant is handed out, a stale token is
// "superseded", and a gate that fails costs the grant.
func (s *stage) gatesCase() {
	a, b := s.actor("a"), s.actor("b")
	fenced := &Ledger{Fence: true}
	zombie := s.mustAcquire(a, s.lock, holdfast.Arm(fenced))
	a.link.Cut()
	g := s.mustAcquire(b, s.lock, holdfast.Arm(fenced))
	if err := fenced.Write("zombie", zombie.Token()); !errors.Is(err, fence.ErrRefused) {
		s.Errorf("late write before any write of the new holder: %v, want a refusal", err)
	}
	if err := fenced.Write("holder", g.Token()); err != nil {
		s.Error(err)
	}
	s.mustRelease(g)

	ahead := &Ledger{Fence: true}
	high := g.Token()
	high.Number += 1000
	if err := ahead.Arm(s.ctx, high); err != nil {
		s.Fatal(err)
	}
	_, err := b.Acquire(s.ctx, s.lock, holdfast.Arm(fenced, ahead))
	var arm *holdfast.ArmError
	if !errors.Is(err, holdfast.ErrSuperseded) || !errors.As(err, &arm) || arm.Gate != holdfast.Gate(ahead) || arm.Index != 1 {
		s.Errorf("stale at the second gate: %v, want ErrSuperseded with that gate", err)
	}
	s.free(s.lock, s.TTL/2)
}

// queueOrderCase: first come, first served.
func (s *stage) queueOrderCase() {
	g := s.mustAcquire(s.actor("a"), s.lock)
	var queue []*pending
	for i := range 5 {
		queue = append(queue, s.queue(s.actor(fmt.Sprint("waiter", i)), s.lock))
	}
	select {
	case _, open := <-g.Contended():
		if !open {
			s.Error("Contended is closed while the lock is held")
		}
	case <-time.After(2*s.interval() + s.Slack):
		s.Error("the holder was not told that somebody waits")
	}
	for i, p := range queue {
		s.mustRelease(g)
		next := s.granted(p, s.TTL/2)
		if next.Token().Number <= g.Token().Number {
			s.Errorf("token %d after %d", next.Token().Number, g.Token().Number)
		}
		for _, later := range queue[i+1:] {
			select {
			case <-later.done:
				s.Errorf("somebody was granted before waiter %d", i)
			default:
			}
		}
		g = next
	}
	s.mustRelease(g)
}
