package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/engine/cluster"
)

// The picture follows what happens, in every view.
func TestTopLive(t *testing.T) {
	t.Parallel()
	s := scene(t)
	r := topOn(t, 140, 34, s.on(), "--interval", "1h")
	r.shows("a/invoices", "b/readers", "c/value", `"billing" on here`, "3 locks", "shared", "by name")
	// The chosen lock's details, with who waits.
	r.shows(`lock a/invoices, value x`, `1. waits `, `"second run" on here`)
	late := tenant(t, s, "late")
	awaits(t, s, late, "a/invoices", 2)
	r.shows("2. waits ", `"late" on here`)
	third := tenant(t, s, "third")
	g := takes(t, third, "d/new", cluster.AcquireOptions{})
	r.shows("d/new", "4 locks")
	eventually(t, "a rate", func() bool { i := r.rowOf("d/new"); return i > 0 && strings.Contains(r.vt.lines()[i], "0.") })
	if err := g.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.showsNot("d/new")
	// Down to the next lock, and its details.
	r.keys("\x1b[B")
	r.shows("lock b/readers")
	r.keys("\r")
	r.showsNot("LOCK  ")
	r.shows("lock b/readers", "shared", `by "second run" on here`)
	r.keys("\x1b")
	r.shows("LOCK  ")
	r.keys("2")
	r.shows("[2 sessions]", `"third" on here`, "attached", "2: a/invoices b/readers", "by ID")
	r.keys("\t")
	r.shows("[3 members]", "leader", "ready", s.addr)
	r.keys("\x1b[Z\x1b[Zq")
	r.ends(0)
}

// Members are shown with their roles, and with how far behind they are.
func TestTopMembers(t *testing.T) {
	t.Parallel()
	s := dev(t)
	c := tenant(t, s, "operator")
	if _, err := c.AddMember(t.Context(), cluster.Member{ID: 0xabc, Name: "n2", PeerAddr: "127.0.0.1:1", ClientAddr: "127.0.0.1:2", Supports: 1 << 20}, ""); err != nil {
		t.Fatal(err)
	}
	r := topOn(t, 140, 20, s.on())
	r.keys("3")
	r.shows("[3 members]", "n2", "learner", "NOT REACHED", "127.0.0.1:2", "leader", "ready", "BEHIND")
	r.keys("q")
	r.ends(0)
	var p topPicture
	if err := json.Unmarshal([]byte(run(t, 0, s.on(), "top", "-o", "json").stdout.String()), &p); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.Members, func(m memberJSON) bool { return m.Name == "n2" })
	if len(p.Members) != 2 || i < 0 || p.Members[i].Role != "learner" || *p.Members[i].Reached || p.Members[1-i].ID != p.Server.LeaderID || !*p.Members[1-i].Ready {
		t.Errorf("members %+v", p.Members)
	}
}

func TestTopOrders(t *testing.T) {
	t.Parallel()
	s := dev(t)
	a, b := tenant(t, s, "a"), tenant(t, s, "b")
	for _, name := range []string{"l3", "l1", "l2"} {
		takes(t, a, name, cluster.AcquireOptions{})
		eventually(t, "time", func() bool { l, _ := s.lock(t, name); return l.Holders[0].HeldMS > 20 })
	}
	awaits(t, s, b, "l2", 1)
	awaits(t, s, b, "l1", 1)
	awaits(t, s, tenant(t, s, "c"), "l1", 2)
	r := topOn(t, 100, 16, s.on())
	order := func(by string, names ...string) {
		t.Helper()
		r.shows("by " + by)
		eventually(t, "the order "+fmt.Sprint(names), func() bool {
			last := 0
			for _, n := range names {
				row := r.rowOf(n + "  ")
				if row <= last {
					return false
				}
				last = row
			}
			return true
		})
	}
	order("name", "l1", "l2", "l3")
	r.keys("s")
	order("waiters", "l1", "l2", "l3")
	r.keys("s")
	order("age", "l3", "l1", "l2")
	r.keys("2ss")
	r.shows("[2 sessions]", "by age")
	r.keys("q")
	r.ends(0)
	r = topOn(t, 100, 16, s.on(), "--sort", "age")
	order("age", "l3", "l1", "l2")
}

// A prefix narrows locks and sessions; a name that no lock can have is refused.
func TestTopPrefix(t *testing.T) {
	t.Parallel()
	s := scene(t)
	r := topOn(t, 120, 30, s.on())
	r.shows("a/invoices", "c/value")
	r.keys("/b/\x7f\x7f\x7f\x00c/")
	r.shows("prefix: c/_", "enter: show these")
	r.keys("\r")
	r.showsNot("a/invoices")
	r.shows("c/value", "prefix c/", "row 1 of 1")
	r.keys("2")
	r.shows("no session")
	r.keys("/\x15e\u0301\r")
	r.shows("not in normal form C")
	r.keys("\x15\u00e9\r")
	r.shows("prefix é", "none")
	r.keys("\x1b1")
	r.shows("a/invoices", "c/value")
	r.keys("q")
	r.ends(0)
}

// Only a page is asked for and drawn, however many locks there are.
func TestTopPages(t *testing.T) {
	t.Parallel()
	s := dev(t)
	c := tenant(t, s, "many")
	for i := range 60 {
		takes(t, c, fmt.Sprintf("l/%02d", i), cluster.AcquireOptions{})
	}
	r := topOn(t, 100, 16, s.on()) // ten locks on a page
	r.shows("l/00", "l/09", "page 1, more below")
	if r.rowOf("l/10") >= 0 {
		t.Error("more than a page")
	}
	r.keys("\x1b[6~")
	r.shows("l/10", "l/19", "page 2, more below")
	r.keys("\x1b[A")
	r.shows("l/09", "page 1, more below")
	r.keys("\x1b[B")
	r.shows("l/10", "page 2")
	r.keys("     ")
	r.shows("l/59", "page 6")
	r.keys("\x1b[H")
	r.shows("l/00", "page 1")
	r.keys("s")
	r.shows("row 1 of 60")
	r.keys("G")
	r.shows("row 60 of 60", "l/59")
	r.keys("q")
	r.ends(0)
}

// What is lost and found again is said, and the picture goes on by itself.
func TestTopServerGoneAndBack(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s := startService(t, "serve", "--data", data, "--listen", "127.0.0.1:0")
	run(t, 0, s.on(), "run", "kept", "--once-per", "24h", "--", "true")
	r := topOn(t, 120, 30, s.on())
	r.shows("kept", "connected")
	s.signal(unix.SIGKILL)
	r.shows("CONNECTION LOST", "what is shown is", "kept")
	again := startService(t, "serve", "--data", data, "--listen", s.addr)
	r.showsNot("CONNECTION LOST")
	r.shows("connected to "+s.addr+" again", "kept")
	c := tenant(t, again, "after")
	takes(t, c, "later", cluster.AcquireOptions{})
	r.shows("later")
	again.signal(unix.SIGTERM)
	again.expect(0)
	r.shows("CONNECTION LOST")
	began := time.Now()
	r.keys("q")
	r.ends(0)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("q took %v while nobody answers", took)
	}
}

// A line on which nothing passes any more, though nobody was told.
func TestTopSilentLine(t *testing.T) {
	t.Parallel()
	s := scene(t)
	line := newCable(t, s.addr)
	r := topOn(t, 120, 30, line.on())
	r.shows("a/invoices", "connected")
	line.cut()
	eventually(t, "that nobody answers, on the screen", func() bool {
		text := r.vt.text()
		return strings.Contains(text, "NO ANSWER") || strings.Contains(text, "CONNECTION LOST") || strings.Contains(text, "waiting for an answer")
	})
	r.shows("a/invoices", " old")
	r.keys("q")
	r.ends(0)
}

// Any size of terminal shows what fits, and no line goes past its edge.
func TestTopSizes(t *testing.T) {
	t.Parallel()
	s := scene(t)
	r := topOn(t, 120, 30, s.on())
	r.shows("a/invoices", "HOLDER")
	for _, size := range [][2]int{{60, 20}, {30, 10}, {200, 50}, {12, 5}, {5, 2}, {1, 1}, {100, 30}} {
		r.vt.resize(size[0], size[1])
		r.size(size[0], size[1])
		kill(r.cmd.Process.Pid, unix.SIGWINCH)
		switch {
		case size[0] >= 60:
			r.shows("a/invoices", "WAIT", "q quit")
		case size[0] >= 12:
			r.shows("a/invoi")
		}
	}
	r.keys("q")
	r.ends(0)
}

func TestTopNoColor(t *testing.T) {
	t.Parallel()
	s := scene(t)
	r := topOn(t, 100, 30, append(s.on(), "NO_COLOR=1"))
	r.shows("a/invoices", "connected")
	r.keys("q")
	r.ends(0)
	for _, look := range []string{"\x1b[1;31m", "\x1b[32m"} {
		if strings.Contains(string(r.vt.raw), look) {
			t.Errorf("it sent %q", look)
		}
	}
}

// Names and labels that are made to spoil a screen spoil nothing.
func TestTopHostileNames(t *testing.T) {
	t.Parallel()
	s := dev(t)
	c := tenant(t, s, "\u202eevil\"")
	for _, name := range []string{"世界/銀行/とても長い名前のロックがここにあります", "q\u0301\u0301\u0301\u0301\u0301", "\"quoted\\u001b", strings.Repeat("w", 512), "zz"} {
		takes(t, c, name, cluster.AcquireOptions{Value: []byte("\x1b[2J\u009b1mvalue\r\n\a")})
	}
	r := topOn(t, 80, 30, s.on())
	r.shows("世界/銀行", "wwww", "…", `"\"quoted`, "zz")
	r.shows(`value \u001b[2J`)
	for _, line := range r.vt.lines() {
		if cells(line) > 80 {
			t.Errorf("a line of %d cells: %q", cells(line), line)
		}
	}
	// Columns begin at one place, whatever stands before them.
	row, want := r.vt.lines()[r.rowOf("世界")], r.vt.lines()[r.rowOf("zz  ")]
	if cells(row[:strings.Index(row, "held")]) != cells(want[:strings.Index(want, "held")]) {
		t.Errorf("columns are at different places:\n%s\n%s", row, want)
	}
	r.keys("2")
	r.shows("[2 sessions]", `evil`)
	if text := r.vt.text(); strings.ContainsAny(text, "\u202e\u009b\x07") {
		t.Errorf("the screen:\n%q", text)
	}
	r.keys("q")
	r.ends(0)
}
