package main

import (
	"bytes"
	"strings"
	"testing"

	"holdfast/fence"
)

func drillToken(n uint64) fence.Token {
	return fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: drillLock, Mode: fence.Exclusive, Number: n}
}

func TestCorruption(t *testing.T) {
	whole := []line{{Seq: 1, Worker: "A", Token: 1}, {Seq: 2, Worker: "B", Token: 3, Basis: 1}}
	if found := corruption(whole); found != nil {
		t.Errorf("a whole ledger is called corrupted: %q", found)
	}
	late := append(whole, line{Seq: 3, Worker: "A", Token: 2, Basis: 1})
	if found := corruption(late); len(found) != 2 {
		t.Errorf("a zombie's line brought %q: want the fallen token and the lost update", found)
	}
	lost := append(whole, line{Seq: 3, Worker: "A", Token: 4, Basis: 1})
	if found := corruption(lost); len(found) != 1 || !strings.Contains(found[0], "lost") {
		t.Errorf("a lost update brought %q", found)
	}
}

// TestDrillCanFail holds the drill's own judgement: it must object to
// everything that differs from the theory.
func TestDrillCanFail(t *testing.T) {
	a, b := &process{name: "A", value: "a"}, &process{name: "B", value: "b"}
	write := func(w *process, n uint64) attempt {
		return attempt{worker: w.name, value: w.value, offered: drillToken(n)}
	}
	refused := func(w *process, n, seen uint64) attempt {
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
		writer  *process
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
			wrong := s.compare(make([]line, c.lines), c.writer.name, c.writer.value)
			if (len(wrong) == 0) != c.right {
				t.Errorf("compare found %q", wrong)
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
		"--b":          {"drill", "--b", strings.Repeat("x", 201)},
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
