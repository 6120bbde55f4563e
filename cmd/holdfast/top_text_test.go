package main

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/engine/cluster"
)

func TestShownAndFit(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                           "plain",
		"\x1b[31mred":                     `\u001b[31mred`,
		"a\u202eb":                        `a\u202eb`,
		"a\u0300b":                        "a\u0300b",
		"\u0300a":                         `\u0300a`,
		"a" + strings.Repeat("\u0300", 5): "a" + strings.Repeat("\u0300", 3) + `\u0300\u0300`,
		"a\ufe0f":                         `a\ufe0f`,
		"\u3164":                          `\u3164`,
		"世":                               "世",
		"👩\u200d🚀":                        "👩\\u200d🚀",
	} {
		if got := shown(in); got != want {
			t.Errorf("shown(%q) = %q, want %q", in, got, want)
		}
	}
	for _, s := range []string{"", "a", "世界", "a世", "👩🚀x", "e\u0301e\u0301", strings.Repeat("x", 50), strings.Repeat("界", 50)} {
		for w := range 12 {
			for _, right := range []bool{true, false} {
				if got := fit(s, w, right); cells(got) != w || !utf8.ValidString(got) {
					t.Errorf("fit(%q, %d) = %q, %d cells", s, w, got, cells(got))
				}
			}
		}
	}
}

func FuzzShown(f *testing.F) {
	f.Add("a\u0300\x1b[2J世", 5)
	f.Fuzz(func(t *testing.T, s string, w int) {
		w = max(0, min(w, 300))
		got := fit(shown(s), w, false)
		if cells(got) != w || strings.ContainsFunc(got, isControl) {
			t.Errorf("%q became %q of %d cells, want %d", s, got, cells(got), w)
		}
	})
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	names := func(in string) (out []string, rest string) {
		keys, left := parseKeys([]byte(in))
		for _, k := range keys {
			if k.name == "" {
				k.name = string(k.r)
			}
			out = append(out, k.name)
		}
		return out, string(left)
	}
	for _, c := range []struct{ in, want, rest string }{
		{"qé世", "q é 世", ""},
		{"\x1b[A\x1b[B\x1bOH\x1b[4~\x1b[5~\x1b[6~\x1b[Z", "up down home end pageup pagedown backtab", ""},
		{"\x1b", "escape", ""},
		{"\x1b[200~x\x1b[1;5A\x1b[?1u", "x", ""},
		{"\r\n\t\x7f\x15\x0c\x00\x01", "enter enter tab erase kill redraw", ""},
		{"a\xe4\xb8", "a", "\xe4\xb8"},
		{"\xff\xfea", "a", ""},
		{"\x1b[1", "", ""},
	} {
		got, rest := names(c.in)
		if strings.Join(got, " ") != c.want || rest != c.rest {
			t.Errorf("%q is %q and %q, want %q and %q", c.in, got, rest, c.want, c.rest)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("\x1b[5~é\x1b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, rest := parseKeys(b); len(rest) >= utf8.UTFMax {
			t.Errorf("%q leaves %q", b, rest)
		}
	})
}

func TestColumnWidths(t *testing.T) {
	t.Parallel()
	for _, cols := range [][]topColumn{lockColumns, sessionColumns, memberColumns} {
		for w := 1; w < 300; w++ {
			widths := columnWidths(cols, w)
			sum, n := -1, 0
			for _, x := range widths {
				if x > 0 {
					sum += x + 1
					n++
				}
			}
			if n > 1 && sum > w || w >= 100 && slices.Contains(widths, 0) {
				t.Errorf("%d columns of %d cells in %d: %v", n, sum, w, widths)
			}
			if w >= 100 && sum != w {
				t.Errorf("%d cells of %d are used", sum, w)
			}
		}
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	r := newTopRates(at)
	grant := func(lock string) cluster.Event { return cluster.Event{Kind: "granted", Lock: lock} }
	for i := range 20 {
		r.add(at.Add(time.Duration(i)*time.Second), []cluster.Event{grant("a"), grant("a"), grant("b"), {Kind: "queued", Lock: "a"}, {Kind: "released", Lock: "b", Cause: "expired"}})
	}
	near := func(got, want float64) bool { return got > want*0.95 && got < want*1.1 }
	got := r.rate(at.Add(19*time.Second + 999*time.Millisecond))
	if !near(got.granted, 3) || !near(got.queued, 1) || !near(got.ended, 1) || !near(got.lapsed, 1) || !near(got.byLock["a"], 2) {
		t.Errorf("%+v", got)
	}
	if got := r.rate(at.Add(time.Minute)); got.granted != 0 || len(got.byLock) != 0 {
		t.Errorf("after a quiet minute %+v", got)
	}
	if r.reset(at); r.rate(at.Add(time.Second)).granted != 0 {
		t.Error("reset keeps what was counted")
	}
}

// Lines that did not change are not sent again.
func TestChangedLinesOnly(t *testing.T) {
	t.Parallel()
	before := []string{"one", "two", "three"}
	if got := changed(before, before); got != "" {
		t.Errorf("nothing changed, and %q is sent", got)
	}
	got := changed(before, []string{"one", "2", "three"})
	if strings.Contains(got, "one") || strings.Contains(got, "three") || !strings.Contains(got, "\x1b[2;1H2\x1b[K") {
		t.Errorf("sent %q", got)
	}
}
