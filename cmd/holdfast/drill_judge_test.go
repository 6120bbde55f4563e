package main

import (
	"bytes"
	"strings"
	"testing"

	"holdfast/fence"
	"holdfast/lab/stage"
)

func drillToken(n uint64) fence.Token {
	return fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: drillLock, Mode: fence.Exclusive, Number: n}
}

// TestDrillCanFail holds the drill's own judgement: it must object to
// everything that differs from the theory.
func TestDrillCanFail(t *testing.T) {
	a, b := &player{name: "A", value: "a"}, &player{name: "B", value: "b"}
	write := func(w *player, n uint64) attempt {
		return attempt{worker: w.name, value: w.value, offered: drillToken(n)}
	}
	refused := func(w *player, n, seen uint64) attempt {
		t := write(w, n)
		t.seen = drillToken(seen)
		return t
	}
	off := []attempt{write(a, 1), write(b, 3), write(a, 2)}
	on := []attempt{write(a, 1), write(b, 3), refused(a, 2, 3), write(b, 5), refused(a, 4, 5)}
	cases := []struct {
		name    string
		fencing bool
		writes  []attempt
		lines   int
		writer  *player
		right   bool
	}{
		{"off as it must be", false, off, 3, a, true},
		{"on as it must be", true, on, 3, b, true},
		{"refused with fencing off", false, []attempt{write(a, 1), write(b, 3), refused(a, 2, 3)}, 2, b, false},
		{"landed with fencing on", true, []attempt{write(a, 1), write(b, 3), write(a, 2), write(b, 5), refused(a, 4, 5)}, 4, b, false},
		{"landed inside with fencing on", true, []attempt{write(a, 1), write(b, 3), refused(a, 2, 3), write(b, 5), write(a, 4)}, 4, a, false},
		{"number not one higher", false, []attempt{write(a, 1), write(b, 4), write(a, 2)}, 3, a, false},
		{"other mark named", true, []attempt{write(a, 1), write(b, 3), refused(a, 2, 9), write(b, 5), refused(a, 4, 5)}, 3, b, false},
		{"ledger has more lines", false, off, 4, a, false},
		{"wrong survivor", false, off, 3, b, false},
		{"a write is missing", true, on[:4], 3, b, false},
		{"good day refused", false, []attempt{refused(a, 1, 2), write(b, 3), write(a, 2)}, 2, a, false},
		{"late write came first", false, []attempt{write(a, 1), write(a, 2), write(b, 3)}, 3, b, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &story{fencing: c.fencing, writes: c.writes, a: a, b: b}
			wrong := s.compare(make([]stage.Line, c.lines), stage.Invoice{Worker: c.writer.name, Value: c.writer.value})
			if (len(wrong) == 0) != c.right {
				t.Errorf("compare found %q", wrong)
			}
			s.missed("the queue was lost")
			if lost := s.compare(make([]stage.Line, c.lines), stage.Invoice{Worker: c.writer.name, Value: c.writer.value}); len(lost) != len(wrong)+1 {
				t.Errorf("with what an act saw it found %q", lost)
			}
		})
	}
}

func TestDrillFlags(t *testing.T) {
	bad := map[string][]string{
		"--fencing":    {"drill", "--fencing", "maybe"},
		"--ttl":        {"drill", "--ttl", "10ms"},
		"--output":     {"drill", "-o", "xml"},
		"--a":          {"drill", "--a", "line\nbreak"},
		"--b":          {"drill", "--b", strings.Repeat("x", stage.MaxValue+1)},
		"different":    {"drill", "--a", "same", "--b", "same"},
		"no arguments": {"drill", "surprise"},
	}
	for want, args := range bad {
		var out, errs bytes.Buffer
		if code := execute(args, &out, &errs); code != exitUsage {
			t.Errorf("%q: exit %d, want %d", args, code, exitUsage)
		}
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q says %q: want a text with %q", args, errs.String(), want)
		}
		if out.Len() > 0 {
			t.Errorf("%q printed %q", args, out.String())
		}
	}
}

// TestDrillJudgesItsCluster: what must outlive the leader is compared, and what
// differs counts against the theory.
func TestDrillJudgesItsCluster(t *testing.T) {
	t.Parallel()
	at := func(holder string, n uint64, queue ...string) sight { return sight{holder, drillToken(n), queue} }
	before := at("A", 5, "B", "C")
	other := drillToken(5)
	other.Incarnation++
	for name, c := range map[string]struct {
		after   sight
		mayPass bool
		right   bool
	}{
		"the same":                        {at("A", 5, "B", "C"), false, true},
		"the queue moved on":              {at("B", 6, "C"), true, true},
		"the queue moved on too soon":     {at("B", 6, "C"), false, false},
		"the grant is lost":               {sight{}, true, false},
		"the number is used again":        {at("B", 5, "C"), true, false},
		"a number is left out":            {at("B", 7, "C"), true, false},
		"the queue is lost":               {at("A", 5), true, false},
		"the queue's order is lost":       {at("A", 5, "C", "B"), true, false},
		"another one passed the first":    {at("C", 6, "B"), true, false},
		"who waits is lost, and it moved": {at("B", 6), true, false},
		"another token with that number":  {sight{"A", other, []string{"B", "C"}}, true, false},
	} {
		s := &story{}
		if text := s.compareSights(before, c.after, c.mayPass); (len(s.wrong) == 0) != c.right || text == "" {
			t.Errorf("%s: it says %q, and objects %q", name, text, s.wrong)
		}
	}
	nodes := &drillCluster{nodes: []*drillNode{{name: "n1"}, {name: "n2"}, {name: "n3"}}}
	for _, c := range []struct {
		hashes []string
		right  bool
	}{
		{[]string{"x", "x", "x"}, true},
		{[]string{"x", "x", "y"}, false},
		{[]string{"y", "x", "x"}, false},
		{[]string{"x", "y", "x"}, false},
		{[]string{"", "", ""}, false},
	} {
		s := &story{nodes: nodes}
		if text := s.compareStates(c.hashes, 7); (len(s.wrong) == 0) != c.right || !strings.Contains(text, "entry 7") {
			t.Errorf("%q: it says %q, and objects %q", c.hashes, text, s.wrong)
		}
	}
}
