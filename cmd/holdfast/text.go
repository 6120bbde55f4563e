package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// holderName says who a holder is, for people.
func holderName(label, host string, session uint64) string {
	return holderText(label, host, "session "+number(session))
}

// holderText is holderName for one whose session has any name.
func holderText(label, host, session string) string {
	switch {
	case label != "" && host != "":
		return fmt.Sprintf("%q on %s", label, printable(host))
	case label != "":
		return fmt.Sprintf("%q", label)
	case host != "":
		return "a client on " + printable(host)
	}
	return session
}

// shellQuote makes s one word of a shell, so that a printed command can be
// pasted. What cannot be seen, or would change how the line looks, is printed
// by the shell itself; that drops newlines at the end, which no name has.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,", r)
	}
	if s != "" && !strings.HasPrefix(s, "-") && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	if strings.IndexFunc(s, isHidden) < 0 {
		return singleQuoted(s)
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case !isHidden(r):
			b.WriteRune(r)
		default:
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\0%03o`, c)
			}
		}
	}
	return `"$(printf %b ` + singleQuoted(b.String()) + `)"`
}

func singleQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// printJSON prints one object on one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table prints aligned columns.
func table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = printable(row[i])
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// brief is a duration to three digits or so.
func brief(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// agoText says how long ago something was; nil is not known.
func agoText(d *time.Duration) string {
	if d == nil {
		return "not since this server leads"
	}
	return brief(*d) + " ago"
}

// valueText shows a value that may be anything.
func valueText(v []byte) string {
	if utf8.Valid(v) {
		return printable(string(v))
	}
	return fmt.Sprintf("%d bytes: %x", len(v), v)
}

// millis is a duration in JSON: a number of milliseconds.
func millis(d time.Duration) int64 { return d.Milliseconds() }

// millisOf is millis for one that may not be known.
func millisOf(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
