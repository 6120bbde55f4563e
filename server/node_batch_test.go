package server

import (
	"fmt"
	"testing"
	"time"

	"holdfast/server/core"
)

// TestAnEntryEndsAtMostSoMuch: thousands of sessions can end at once, each
// with thousands of grants. What one entry removes is bounded (D8): the rest
// waits for the next one, in its order.
func TestAnEntryEndsAtMostSoMuch(t *testing.T) {
	n := startTestNode(t, nil)
	var large []core.SessionID
	for i := range 3 {
		s := n.open(fmt.Sprint("large ", i), time.Minute)
		n.hold(s, 4000, func(c *core.Acquire) { c.Lock = fmt.Sprintf("%d/%s", i, c.Lock) })
		large = append(large, s)
	}
	full := n.open("full", time.Minute)
	n.hold(full, core.MaxPerSession, func(c *core.Acquire) { c.Lock = "full/" + c.Lock })
	small := n.open("small", time.Minute)
	expire := func(id core.SessionID) core.Command { return core.Expire{ID: id} }
	end := func(id core.SessionID) core.Command { return core.End{ID: id} }
	// By queue: the lease machine's, then what frees.
	first := []core.Command{expire(small), expire(large[0]), expire(large[1]), expire(large[2]), expire(full)}
	urgent := []core.Command{end(full), end(small), end(large[0]), core.Release{Session: small, Grant: 1}, end(large[1])}
	want := [][]core.Command{
		{expire(small), expire(large[0]), expire(large[1])},
		{expire(large[2])},
		{expire(full)},
		{end(full), end(small)}, // which adds nothing
		{end(large[0]), core.Release{Session: small, Grant: 1}, end(large[1])},
	}
	l := &loop{first: proposals(first), urgent: proposals(urgent)}
	err := n.View(t.Context(), true, func(r Reading) {
		for i, entry := range want {
			b := batch{state: r.State}
			l.first = b.take(l.first)
			l.urgent = b.take(l.urgent)
			if fmt.Sprint(commands(b.items)) != fmt.Sprint(entry) {
				t.Errorf("entry %d has %v, want %v", i, commands(b.items), entry)
			}
		}
	})
	if err != nil || len(l.first)+len(l.urgent) > 0 {
		t.Errorf("%v; left: %v, %v", err, commands(l.first), commands(l.urgent))
	}
}

// TestUsedLanesCountToo: a session that holds nothing may have 10,000 lanes,
// and its end forgets each. Thousands of such ends would take the loop tens of
// seconds.
func TestUsedLanesCountToo(t *testing.T) {
	n := startTestNode(t, nil)
	var queue []core.Command
	for i := range 3 {
		s := n.open(fmt.Sprint(i), time.Minute)
		const lanes = 4000
		done := make(chan Answer, lanes)
		for lane := range uint32(lanes) {
			n.Submit(core.Cancel{Session: s, Request: core.Request{Lane: lane, N: 1}}, func(a Answer) { done <- a })
		}
		for range lanes {
			if a := n.next(done); a.Err != nil || a.Result.Status == core.Refused {
				t.Fatalf("cancel: %+v", a)
			}
		}
		queue = append(queue, core.Expire{ID: s})
	}
	err := n.View(t.Context(), true, func(r Reading) {
		b := batch{state: r.State}
		if left := b.take(proposals(queue)); len(b.items) != 2 || len(left) != 1 {
			t.Errorf("an entry has %d of three ends with 4,000 lanes each, want 2", len(b.items))
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestManySessionsEndInSeveralEntries: the same in a node that runs.
func TestManySessionsEndInSeveralEntries(t *testing.T) {
	n := startTestNode(t, nil)
	const sessions, grants = 5, 4000
	var ids []core.SessionID
	for i := range sessions {
		s := n.open(fmt.Sprint(i), time.Minute)
		n.hold(s, grants, func(c *core.Acquire) { c.Lock = fmt.Sprintf("%d/%s", i, c.Lock) })
		ids = append(ids, s)
	}
	before := n.Status().Applied
	blocked, release := make(chan struct{}), make(chan struct{})
	go n.View(t.Context(), true, func(Reading) { close(blocked); <-release })
	<-blocked
	ended, order := make(chan Answer, sessions), make(chan core.SessionID, sessions)
	for _, id := range ids {
		n.Submit(core.End{ID: id}, func(a Answer) { order <- id; ended <- a })
	}
	close(release)
	for i := range sessions {
		if a := n.next(ended); a.Err != nil || a.Result.Status != core.Done {
			t.Fatalf("end: %+v", a)
		}
		if id := <-order; id != ids[i] {
			t.Errorf("end %d is that of session %d, want %d", i, id, ids[i])
		}
	}
	var now uint64
	if err := n.View(t.Context(), true, func(r Reading) { now = r.Info.Index }); err != nil {
		t.Fatal(err)
	}
	if now-before < 3 {
		t.Errorf("%d grants ended in %d entries, want 3 or more", sessions*grants, now-before)
	}
}

func proposals(cmds []core.Command) (out []proposal) {
	for _, c := range cmds {
		out = append(out, proposal{cmd: c})
	}
	return out
}

func commands(items []proposal) (out []core.Command) {
	for _, p := range items {
		out = append(out, p.cmd)
	}
	return out
}

// TestHandingOnCountsToo: the release of a lock for which thousands of readers
// wait grants all of them, in the same entry.
func TestHandingOnCountsToo(t *testing.T) {
	n := startTestNode(t, nil)
	holder := n.open("holder", time.Minute)
	var queue []core.Command
	for i := range 3 {
		lock := fmt.Sprint("l", i)
		g := n.granted(n.acquire(holder, uint32(i), 1, lock))
		queue = append(queue, core.Release{Session: holder, Grant: g.Number})
		readers := n.open(fmt.Sprint("readers ", i), time.Minute)
		const each = 4000
		waiting := make(chan Answer, 2*each)
		for k := range uint32(each) {
			n.Submit(core.Acquire{Session: readers, Request: core.Request{Lane: k, N: 1}, Lock: lock, Shared: true}, func(a Answer) { waiting <- a })
		}
		for range each {
			n.waiting(waiting)
		}
	}
	l := &loop{urgent: proposals(queue)}
	err := n.View(t.Context(), true, func(r Reading) {
		b := batch{state: r.State}
		if l.urgent = b.take(l.urgent); len(b.items) != 2 || len(l.urgent) != 1 {
			t.Errorf("one entry has %d releases, which grant 4,000 waits each; %d are left", len(b.items), len(l.urgent))
		}
	})
	if err != nil {
		t.Error(err)
	}
}
