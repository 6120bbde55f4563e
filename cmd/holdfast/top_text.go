package main

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// maxMarks is how many combining marks one letter may carry on the screen; more
// of them grow over the lines above and below.
const maxMarks = 3

// shown makes a text that somebody else chose safe for a screen of cells:
// printable, and without what changes how wide its neighbours are.
func shown(s string) string {
	s = printable(s)
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	marks := maxMarks // none before the first letter
	for _, r := range s {
		switch {
		case widens(r):
			b.WriteString(escaped(string(r), widens))
			marks = 0
		case cellsOf(r) > 0:
			b.WriteRune(r)
			marks = 0
		case marks < maxMarks:
			b.WriteRune(r)
			marks++
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// widens: variation selectors, which change the width of the character before
// them on some terminals, and letters that look like blanks.
func widens(r rune) bool {
	switch {
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef:
		return true
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x2800, r == 0x3164, r == 0xffa0:
		return true
	}
	return false
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) < 0
}

// cellsOf is how many cells of the screen a character takes.
func cellsOf(r rune) int {
	switch {
	case r < 0x80:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

func cells(s string) int {
	n := 0
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

// fit makes s exactly w cells wide. What is cut off is marked.
func fit(s string, w int, right bool) string {
	have := cells(s)
	if have > w {
		s, have = cut(s, w), w
	}
	pad := strings.Repeat(" ", max(0, w-have))
	if right {
		return pad + s
	}
	return s + pad
}

// cut shortens s to w cells, the last of them a mark.
func cut(s string, w int) string {
	if w <= 0 {
		return ""
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		c := cellsOf(r)
		if n+c > w-1 {
			break
		}
		b.WriteRune(r)
		n += c
	}
	b.WriteString("…")
	return b.String() + strings.Repeat(" ", w-1-n)
}
