package cluster

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// While the servers elect a leader the client looks often, for as long as a few
// elections take. Then, and if it is about anything else, ever more rarely.
func TestBackoffDuringAnElection(t *testing.T) {
	l := newLink([]string{"h:1"}, nil, nil, (&Options{}).logger())
	pauses := func(electing bool, n int) (list []time.Duration) {
		b := backoff{l: l}
		for range n {
			list = append(list, b.pause(electing))
		}
		return list
	}
	ms := time.Millisecond
	if got, want := pauses(false, 8), []time.Duration{25 * ms, 50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}; !slices.Equal(got, want) {
		t.Errorf("no election: %v, want %v", got, want)
	}
	got := pauses(true, electionTries+1)
	if want := []time.Duration{25 * ms, 50 * ms, 100 * ms, 150 * ms, 150 * ms}; !slices.Equal(got[:5], want) {
		t.Errorf("election: %v, want %v", got[:5], want)
	}
	var all time.Duration
	for _, d := range got[:electionTries] {
		all += d / 4 * 3 // the mean wait
	}
	if all < 4*time.Second || all > 6*time.Second || got[electionTries-1] != electionPause {
		t.Errorf("it counts as an election for %v", all)
	}
	if got[electionTries] != time.Second {
		t.Errorf("a long one: %v, want 1s", got[electionTries])
	}
	for _, c := range []struct {
		info *holdfastv1.ErrorInfo
		want bool
	}{{&holdfastv1.ErrorInfo{Term: 3}, true}, {&holdfastv1.ErrorInfo{Term: 3, LeaderAddress: "h:1"}, true}, {&holdfastv1.ErrorInfo{}, false}} {
		if got := electing(&driver.Error{Err: &wire.Remote{Info: c.info}}); got != c.want {
			t.Errorf("%v: %v", c.info, got)
		}
	}
	if electing(errSilent) {
		t.Error("a server that is silent says nothing of an election")
	}
}

// The leader's machine is gone, so that a look at its address takes as long as
// it may. The followers name it until one of them leads. The client learns that
// from them soon, and does not look for the dead one again and again.
func TestDeadLeaderIsNotSoughtAgainAndAgain(t *testing.T) {
	t.Parallel()
	dead := deadAddr(t)
	a, b := newFake(t), newFake(t)
	away := func(int, *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		return refuse(&driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "not the leader",
			Err: &wire.Remote{Info: &holdfastv1.ErrorInfo{LeaderAddress: dead, Term: 3}}})
	}
	a.answers(away)
	b.answers(away)
	var (
		mu    sync.Mutex
		looks []string
	)
	dialer := func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		looks = append(looks, addr)
		n := len(looks)
		mu.Unlock()
		if n == 8 {
			b.answers(nil) // elected
		}
		if addr == dead {
			<-ctx.Done()
			return nil, errors.New("nobody answers")
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	l := newLink([]string{dead, a.addr, b.addr}, dialer, nil, (&Options{}).logger())
	go l.connectLoop()
	t.Cleanup(l.close)
	openOne(t, l)
	mu.Lock()
	defer mu.Unlock()
	sought := 0
	for _, addr := range looks {
		if addr == dead {
			sought++
		}
	}
	if sought > 2 || len(looks) < 8 {
		t.Errorf("the dead leader was sought %d times in %d looks", sought, len(looks))
	}
}

// A server that was absent is found when it is back, by the name that others
// give it and by itself.
func TestAbsentServersComeLast(t *testing.T) {
	l := newLink([]string{"a:1", "b:1", "c:1"}, nil, nil, (&Options{}).logger())
	s := search{l: l, next: 1, absent: make(map[string]time.Time)}
	check := func(hint string, want ...string) {
		t.Helper()
		if got := s.candidates(hint); !slices.Equal(got, want) {
			t.Errorf("hint %q, absent %v: %v, want %v", hint, s.absent, got, want)
		}
	}
	check("", "b:1", "c:1", "a:1")
	check("c:1", "c:1", "b:1", "a:1")
	check("x:1", "x:1", "b:1", "c:1", "a:1")
	s.missed("b:1", 0)
	check("", "c:1", "a:1", "b:1")
	check("b:1", "c:1", "a:1", "b:1")
	s.missed("x:1", time.Hour)
	check("x:1", "c:1", "a:1", "x:1", "b:1")
	s.absent["b:1"] = time.Now() // its time is over
	check("b:1", "b:1", "c:1", "a:1")
	s.missed("a:1", 0)
	if _, kept := s.absent["b:1"]; kept || len(s.absent) != 2 {
		t.Errorf("kept %v", s.absent)
	}
}
