package core

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestCostIsWhatLeavesTheQueue: what a command is said to cost is what it takes
// out of queues, or more.
func TestCostIsWhatLeavesTheQueue(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "open 2", "open 3",
		"acquire 1 0/1 x", "acquire 2 0/1 x", "acquire 3 0/1 x shared", // one is granted
		"acquire 1 1/1 r", "acquire 2 1/1 r shared", "acquire 2 2/1 r shared", "acquire 3 1/1 r", "acquire 3 2/1 r shared",
		"acquire 1 2/1 s shared", "acquire 2 3/1 s shared", "acquire 3 3/1 s", // the run goes on
		"acquire 1 3/1 once once=1m retry-failed", "acquire 2 4/1 once", "acquire 3 4/1 once",
		"acquire 1 4/1 next", "acquire 2 5/1 next once=1m", "acquire 3 5/1 next",
		"acquire 1 5/1 p limit=2", "acquire 1 6/1 p limit=2", "acquire 2 6/1 p limit=2", "acquire 2 7/1 p limit=2",
		"acquire 1 7/1 alone")
	cost := map[string]int{}
	for _, v := range s.Locks("", "", 99) {
		cost[v.Name] = s.GrantEndCost(v.Holders[0].Number, true)
	}
	if want := "map[alone:0 next:2 once:2 p:1 r:2 s:0 x:1]"; fmt.Sprint(cost) != want {
		t.Errorf("costs %v, want %s", cost, want)
	}
	if v, _ := s.Lock("once", 0); s.GrantEndCost(v.Holders[0].Number, false) != 1 || s.GrantEndCost(999, true) != 0 || s.ReopenCost("none") != 0 {
		t.Error("costs of a failed run, of no grant, of no lock")
	}
}

// TestCostOfAReopen: what is granted when a closed lock opens again is as much as
// finds room, also beside holders that stayed.
func TestCostOfAReopen(t *testing.T) {
	s := testState()
	do(t, s, "open 1", "open 2", "open 3",
		"acquire 1 0/1 p limit=3 delay=1m", "acquire 3 0/1 p limit=3", "revoke p 1 now", "acquire 2 0/1 p limit=3", "acquire 2 1/1 p limit=3", "acquire 2 2/1 p limit=3",
		"acquire 1 1/1 r shared delay=1m", "acquire 3 1/1 r shared", "end 1 operator",
		"acquire 2 3/1 r shared", "acquire 2 4/1 r shared", "acquire 2 5/1 r")
	for name, least := range map[string]int{"p": 2, "r": 2} {
		v, _ := s.Lock(name, 0)
		cost := s.ReopenCost(name)
		a := mustApply(t, s, 0, Reopen{Lock: name, Closing: v.Closing})
		if len(a.Notices) != least || cost < least {
			t.Errorf("%s: reopening settles %d waits, want %d, and was said to cost %d", name, len(a.Notices), least, cost)
		}
	}
}

// TestCostIsAnUpperBound: the same over random states.
func TestCostIsAnUpperBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{s: testState()}
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			c := w.command(t)
			cost := -1
			switch c := c.(type) {
			case Release:
				cost = w.s.GrantEndCost(c.Grant, !c.Failed)
			case Revoke:
				cost = w.s.RevokeCost(c)
			case Reopen:
				cost = w.s.ReopenCost(c.Lock)
			}
			a := mustApply(t, w.s, 0, c)
			if cost >= 0 && len(a.Notices) > cost {
				t.Fatalf("%#v settles %d waits, and was said to cost %d", c, len(a.Notices), cost)
			}
		}
	})
}
