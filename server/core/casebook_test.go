package core

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Cases of the casebook that live at this level: what the log decides.

// The grant and the check of the waiter's session are one command.
func TestCasebookC16_WaiterOfEndedSessionIsNeverGranted(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "open 2", "open 3", "acquire 1 0/1 l", "acquire 2 0/1 l", "acquire 3 0/1 l",
		"suspect since=5s 2", "expire 2 since=5s")
	if v, _ := s.Lock("l", 9); v.Waiters != 1 || v.Queue[0].Session != 3 {
		t.Fatalf("queue after the end of 2: %s", formatLock(v))
	}
	a := doAll(t, s, "release 1 #1")
	if len(a.Notices) != 1 || a.Notices[0].Session != 3 || a.Notices[0].Result.Status != Granted {
		t.Errorf("release: %s", formatApplied([]string{"release"}, a))
	}
	if r := do(t, s, "acquire 2 0/1 l"); r.Status != Refused || r.Refusal.Reason != SessionLost {
		t.Errorf("2 asks again: %s", formatResult(r))
	}
	// Release and end in one entry, in both orders: 2 is never a holder.
	for _, lines := range [][]string{{"end 2", "release 1 #1"}, {"release 1 #1", "end 2"}} {
		s := testState()
		do(t, s, "open 1", "open 2", "open 3", "acquire 1 0/1 l", "acquire 2 0/1 l", "acquire 3 0/1 l")
		doAll(t, s, lines...)
		if v, _ := s.Lock("l", 9); len(v.Holders) != 1 || v.Holders[0].Session != 3 {
			t.Errorf("%v: %s", lines, formatLock(v))
		}
	}
}

// The waiter is told at once, while another holds the lock, and can queue
// again with a new session.
func TestCasebookC17_WaiterWhoseSessionEndsIsToldAtOnce(t *testing.T) {
	for _, end := range [][]string{{"end 2"}, {"end 2 operator by=admin"}, {"suspect since=1s 2", "expire 2 since=1s"}} {
		s := testState()
		do(t, s, "open 1", "open 2", "acquire 1 0/1 l", "acquire 2 7/3 l")
		var a Applied
		for _, line := range end {
			a = doAll(t, s, line)
		}
		if len(a.Notices) != 1 {
			t.Fatalf("%v: %d notices", end, len(a.Notices))
		}
		n := a.Notices[0]
		if n.Session != 2 || n.Request != (Request{7, 3}) || n.Result.Status != Refused || n.Result.Refusal.Reason != SessionLost {
			t.Errorf("%v: %s", end, formatNotice(n))
		}
		do(t, s, "open 3 secret=another")
		if r := do(t, s, "acquire 3 0/1 l"); r.Status != Waiting || r.Place != 1 {
			t.Errorf("%v: new session: %s", end, formatResult(r))
		}
	}
}

// A release names the grant, so an old one does nothing to a newer grant.
func TestCasebookC29_LateReleaseDoesNotTouchANewerGrant(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "acquire 1 0/1 l", "release 1 #1", "acquire 1 0/2 l")
	a := doAll(t, s, "release 1 #1")
	if a.Results[0].Status != Done || len(a.Events) != 0 {
		t.Errorf("late release: %s", formatApplied([]string{"release"}, a))
	}
	// A revoke of the old grant is refused, and shows the holder.
	for _, line := range []string{"revoke l #1 by=ann", "revoke l #1 now by=ann", "revoke l #1 free"} {
		r := do(t, s, line)
		if r.Status != Refused || r.Refusal.Reason != NotHeld || r.Refusal.Holder.Number != 2 {
			t.Errorf("%s: %s", line, formatResult(r))
		}
	}
	// So is a late copy of the request that got the old grant.
	if r := do(t, s, "acquire 1 0/1 l"); r.Status != Settled {
		t.Errorf("late acquire: %s", formatResult(r))
	}
	if h, ok := s.GrantByNumber(2); !ok || h.Session != 1 {
		t.Error("grant 2 is not held any more")
	}
}

// A queue entry lives on its session and on nothing else.
func TestCasebookC39_DeadWaiterAtTheHeadDoesNotBlock(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "open 2", "open 3", "open 4", "acquire 1 0/1 l", "acquire 2 0/1 l", "acquire 3 0/1 l", "acquire 4 0/1 l")
	// A releases while B is dead but not yet expired: B is granted, and the
	// end of its session hands on to C in the same command.
	do(t, s, "release 1 #1", "suspect since=1s 2")
	a := doAll(t, s, "expire 2 since=1s")
	if len(a.Notices) != 1 || a.Notices[0].Session != 3 {
		t.Fatalf("expiry: %s", formatApplied([]string{"expire"}, a))
	}
	// B, restarted with a new session, goes to the tail.
	do(t, s, "open 5 secret=B2")
	if r := do(t, s, "acquire 5 0/1 l"); r.Status != Waiting || r.Place != 2 {
		t.Error(formatResult(r))
	}
	if v, _ := s.Lock("l", 9); v.Holders[0].Session != 3 || v.Queue[0].Session != 4 {
		t.Errorf("D overtook C: %s", formatLock(v))
	}
	// Dead at the head while A holds: gone from the queue at its expiry.
	s = testState()
	do(t, s, "open 1", "open 2", "open 3", "acquire 1 0/1 l", "acquire 2 0/1 l", "acquire 3 0/1 l", "suspect since=1s 2", "expire 2 since=1s")
	if a := doAll(t, s, "release 1 #1"); len(a.Notices) != 1 || a.Notices[0].Session != 3 {
		t.Error("C was not granted at once")
	}
}

// A release at any moment around the enqueue wakes the waiter: the queue and
// the lock are one state, and a watcher resumes from the revision it read,
// also over snapshots, or is told to reload.
func TestCasebookC40_NoWakeUpIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := testState()
		for id := SessionID(1); id <= 4; id++ {
			mustApply(t, s, 0, Open{ID: id, SecretHash: [32]byte{1, byte(id)}, TTL: MinTTL})
		}
		seen := s.Revision()
		holders := map[uint64]SessionID{} // as the watcher sees them
		n := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := SessionID(rapid.IntRange(1, 4).Draw(t, "session"))
			if v, _ := s.Session(id); len(v.Grants) > 0 && rapid.Bool().Draw(t, "release") {
				mustApply(t, s, 0, Release{Session: id, Grant: v.Grants[0].Number})
			} else {
				n++
				mustApply(t, s, 0, Acquire{Session: id, Request: Request{uint32(n), 1}, Lock: "l"})
			}
			if rapid.IntRange(0, 5).Draw(t, "snapshot") == 0 {
				s = reload(t, s)
			}
			if rapid.IntRange(0, 3).Draw(t, "watch") == 0 {
				seen = catchUp(t, s, seen, holders)
			}
			v, ok := s.Lock("l", 1)
			if ok && v.Waiters > 0 && len(v.Holders) == 0 {
				t.Fatal("somebody waits for a lock that nobody holds")
			}
		}
		catchUp(t, s, seen, holders)
		v, _ := s.Lock("l", 1)
		if len(v.Holders) != len(holders) || len(holders) == 1 && holders[v.Holders[0].Number] != v.Holders[0].Session {
			t.Fatalf("the watcher believes in %v: %s", holders, formatLock(v))
		}
	})
}

func catchUp(t tester, s *State, seen Revision, holders map[uint64]SessionID) Revision {
	events, ok := s.EventsAfter(seen, math.MaxInt)
	if !ok {
		t.Fatal("events are gone")
	}
	for _, e := range events {
		switch e.Kind {
		case EventGranted:
			holders[e.Grant] = e.Session
		case EventReleased:
			delete(holders, e.Grant)
		}
		seen = e.Revision
	}
	return seen
}

// However a wait fails, its place is given up or kept by name; nobody behind
// it is blocked.
func TestCasebookC41_FailedAcquireLeavesNoEntry(t *testing.T) {
	for _, settle := range []string{"cancel 2 0/1", "end 2", "end 2 operator", "acquire 2 0/1 l"} {
		s := testState()
		do(t, s, "open 1", "open 2", "open 3", "acquire 1 0/1 l", "acquire 2 0/1 l", "acquire 3 0/1 l")
		r := do(t, s, settle)
		resumed := r.Status == Waiting
		if resumed && r.Place != 1 {
			t.Errorf("%s: the place was lost: %s", settle, formatResult(r))
		}
		a := doAll(t, s, "release 1 #1")
		want := SessionID(3)
		if resumed {
			want = 2
		}
		if len(a.Notices) != 1 || a.Notices[0].Session != want || a.Notices[0].Result.Status != Granted {
			t.Errorf("%s, then release: %s", settle, formatApplied([]string{"release"}, a))
		}
	}
}

// A thousand short waits, each cancelled at some moment and over a network
// that doubles, leave the queue empty and the permits whole.
func TestCasebookC42_ShortWaitsLeakNoPlaceAndNoPermit(t *testing.T) {
	for _, limit := range []int{1, 3} {
		s := testState()
		for id := 1; id <= 20; id++ {
			quick(t, s, fmt.Sprintf("open %d", id))
		}
		quick(t, s, "open 99")
		for i := range limit {
			quick(t, s, fmt.Sprintf("acquire 99 %d/1 l limit=%d", i, limit))
		}
		for i := range 1000 {
			id, n := i%20+1, i/20+1
			acquire := fmt.Sprintf("acquire %d 0/%d l limit=%d", id, n, limit)
			cancel := fmt.Sprintf("cancel %d 0/%d", id, n)
			switch i % 4 {
			case 0:
				quick(t, s, acquire, cancel)
			case 1:
				quick(t, s, cancel, acquire) // the acquire was late
			case 2:
				quick(t, s, acquire, acquire, cancel, acquire, cancel)
			case 3:
				quick(t, s, acquire, "release 99 #1", cancel, acquire)
				quick(t, s, cancel)
			}
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		v, _ := s.Lock("l", 9)
		if v.Waiters != 0 {
			t.Errorf("limit %d: %d wait", limit, v.Waiters)
		}
		granted := 0
		for id := 1; id <= 20; id++ {
			if r := quick(t, s, fmt.Sprintf("acquire %d 1/1 l limit=%d try", id, limit)); r.Status == Granted {
				granted++
			}
		}
		if granted+len(v.Holders) != limit {
			t.Errorf("limit %d: %d were held, %d more granted", limit, len(v.Holders), granted)
		}
	}
}

// Names are compared whole; a list is by prefix with its delimiter.
func TestCasebookC43_NameThatIsAPrefixOfAnother(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "open 2", "acquire 1 0/1 a/b", "acquire 1 1/1 ab", "acquire 1 2/1 a/")
	if r := do(t, s, "acquire 2 0/1 a try"); r.Status != Granted {
		t.Error(formatResult(r))
	}
	var names []string
	for _, v := range s.Locks("a/", "", 9) {
		names = append(names, v.Name)
	}
	if fmt.Sprint(names) != "[a/ a/b]" {
		t.Errorf("list of a/: %v", names)
	}
	odd := []string{"..", "a/../b", "a b", " ", "日本/é", strings.Repeat("x", 512), strings.Repeat("é", 256), "a//b", "A"}
	for i, name := range odd {
		r := mustApply(t, s, 0, Acquire{Session: 2, Request: Request{9, uint64(i + 1)}, Lock: name}).Results[0]
		if r.Status != Granted {
			t.Errorf("%.20q: %s", name, formatResult(r))
		}
		if v, ok := s.Lock(name, 0); !ok || v.Name != name {
			t.Errorf("%.20q is not found", name)
		}
	}
	s = reload(t, s)
	for _, name := range odd {
		if v, ok := s.Lock(name, 0); !ok || v.Name != name {
			t.Errorf("%.20q is not found after a snapshot", name)
		}
	}
	if r := mustApply(t, s, 0, Acquire{Session: 2, Request: Request{10, 1}, Lock: strings.Repeat("x", 513)}).Results[0]; r.Status != Refused || r.Refusal.Reason != Malformed {
		t.Error(formatResult(r))
	}
}

// Numbers go on through deletion and restore, and what another run of the
// service minted can be told apart.
func TestCasebookC45_NumbersOfALineageNeverStartAgain(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "acquire 1 0/1 l", "release 1 #1", "put l value=x", "delete l", "acquire 1 0/2 l")
	if h, ok := s.GrantByNumber(2); !ok || h.Lock != "l" {
		t.Fatal("the number started again with the lock")
	}
	backup := reload(t, s)
	old := do(t, s, "release 1 #2", "acquire 1 0/3 l").Grant // minted after the backup
	// Restored once: above everything that the lost run minted.
	restored := backup.Clone()
	do(t, restored, "raise-epoch 300 incarnation=21", "open 1 secret=new")
	first := do(t, restored, "acquire 1 0/1 l").Grant
	if first.Number <= old.Number || first.Number != 300<<48+1 || first.Incarnation == old.Incarnation {
		t.Errorf("restored service minted %+v, lost one %+v", first, old)
	}
	// The same backup restored twice in one way mints equal numbers; the
	// incarnation tells them apart.
	twin := backup.Clone()
	do(t, twin, "raise-epoch 300 incarnation=22", "open 1 secret=new")
	if g := do(t, twin, "acquire 1 0/1 l").Grant; g.Number != first.Number || g.Incarnation == first.Incarnation {
		t.Errorf("twin minted %+v, first %+v", g, first)
	}
	// The epoch only rises, and a session of the backup is void.
	if r := do(t, restored, "raise-epoch 300 incarnation=23"); r.Status != Refused {
		t.Error(formatResult(r))
	}
	if r := do(t, backup.Clone(), "acquire 1 0/9 x"); r.Status != Granted {
		t.Error(formatResult(r))
	}
	if restored.SessionCount() != 1 || restored.Domain() != s.Domain() {
		t.Error("a session of the backup is left, or the domain changed")
	}
	// A service that was set up anew has another domain.
	if New(Config{Domain: [16]byte{1}}).Domain() == s.Domain() {
		t.Error("two services with one domain")
	}
}
