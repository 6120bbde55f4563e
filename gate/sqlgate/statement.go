package sqlgate

import (
	"fmt"
	"slices"
	"strings"
)

// A Stmt is one SQL statement that Do applies: INSERT, REPLACE, UPDATE,
// DELETE (each also after WITH), CREATE, ALTER or DROP. Values belong in Args.
//
// What could leave the guarded step is refused before anything runs: more
// than one statement in a text (so also CREATE TRIGGER), transaction control,
// PRAGMA, ATTACH, and names that begin with holdfast_gate.
type Stmt struct {
	SQL  string
	Args []any
}

// Exec makes a [Stmt].
func Exec(sql string, args ...any) Stmt { return Stmt{SQL: sql, Args: args} }

// tablePrefix begins the name of everything that a gate keeps in the database.
const tablePrefix = "holdfast_gate"

// checkSQL returns an error that wraps [ErrStatement] unless text is a single
// statement that begins with one of the allowed words. It reads text as SQLite
// does, and refuses what it would read otherwise.
func checkSQL(text string, own bool, allowed ...string) error {
	if at := strings.IndexByte(text, 0); at >= 0 {
		return fmt.Errorf("%w: there is a NUL byte at %d in %q", ErrStatement, at, clip(text))
	}
	l := lexer{text: text}
	first := ""
	ended := false
	for {
		t, err := l.next()
		if err != nil {
			return fmt.Errorf("%w: %w: in %q", ErrStatement, err, clip(text))
		}
		if t.kind == tokenEnd {
			break
		}
		if ended {
			return fmt.Errorf("%w: more than one statement in %q: give each its own Stmt (a trigger's body counts as statements)", ErrStatement, clip(text))
		}
		switch {
		case t.kind == tokenSemicolon:
			ended = true
		case first == "":
			first = strings.ToUpper(t.text)
			if t.kind != tokenWord || !slices.Contains(allowed, first) {
				return fmt.Errorf("%w: %q begins with %q: want %s", ErrStatement, clip(text), clip(t.text), strings.Join(allowed, ", "))
			}
		case own && (t.kind == tokenWord || t.kind == tokenQuoted) && strings.HasPrefix(strings.ToLower(t.text), tablePrefix):
			return fmt.Errorf("%w: %q names %q, which belongs to the gate; if it is a value, pass it in Args", ErrStatement, clip(text), clip(t.text))
		}
	}
	if first == "" {
		return fmt.Errorf("%w: it is empty: want %s", ErrStatement, strings.Join(allowed, ", "))
	}
	return nil
}

// clip shortens a statement for an error text.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

type tokenKind uint8

const (
	tokenEnd       tokenKind = iota
	tokenWord                // keyword or plain identifier
	tokenQuoted              // string, or quoted identifier: SQLite lets one stand for the other
	tokenVariable            // ?, ?1, :a, @a, $a
	tokenSemicolon           // ;
	tokenOther               // any other byte
)

type token struct {
	kind tokenKind
	text string
}

// lexer splits a text into tokens where SQLite does (its tokenizer knows four
// kinds of quotes and two of comments).
type lexer struct {
	text string
	at   int
}

func (l *lexer) next() (token, error) {
	if err := l.skipBlank(); err != nil {
		return token{}, err
	}
	if l.at >= len(l.text) {
		return token{kind: tokenEnd}, nil
	}
	c := l.text[l.at]
	switch {
	case c == '\'' || c == '"' || c == '`':
		return l.quoted(c)
	case c == '[':
		end := strings.IndexByte(l.text[l.at:], ']')
		if end < 0 {
			return token{}, fmt.Errorf("a name that begins with [ at byte %d does not end", l.at)
		}
		t := token{tokenQuoted, l.text[l.at+1 : l.at+end]}
		l.at += end + 1
		return t, nil
	case c == ';':
		l.at++
		return token{tokenSemicolon, ";"}, nil
	case strings.IndexByte("?:@$#", c) >= 0:
		return l.variable()
	case wordByte(c):
		from := l.at
		for l.at < len(l.text) && wordByte(l.text[l.at]) {
			l.at++
		}
		return token{tokenWord, l.text[from:l.at]}, nil
	}
	l.at++
	return token{tokenOther, string(rune(c))}, nil
}

// byteOrderMark is a blank where a token could begin; within a word it is a
// letter like any other.
const byteOrderMark = "\ufeff"

func (l *lexer) skipBlank() error {
	for l.at < len(l.text) {
		rest := l.text[l.at:]
		switch {
		case strings.IndexByte(" \t\n\f\r", rest[0]) >= 0:
			l.at++
		case strings.HasPrefix(rest, byteOrderMark):
			l.at += len(byteOrderMark)
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest) - 1
			}
			l.at += end + 1
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return fmt.Errorf("the comment at byte %d does not end", l.at)
			}
			l.at += end + 4
		default:
			return nil
		}
	}
	return nil
}

// quoted reads a string or name in quotes; a doubled quote stands for one.
func (l *lexer) quoted(quote byte) (token, error) {
	var b strings.Builder
	from := l.at
	for l.at++; l.at < len(l.text); l.at++ {
		c := l.text[l.at]
		if c != quote {
			b.WriteByte(c)
			continue
		}
		l.at++
		if l.at >= len(l.text) || l.text[l.at] != quote {
			return token{tokenQuoted, b.String()}, nil
		}
		b.WriteByte(quote)
	}
	return token{}, fmt.Errorf("the quote %c at byte %d does not end", quote, from)
}

// variable reads a placeholder. The form $name::more(…) is refused: SQLite
// takes quotes and semicolons within its brackets for a part of the name.
func (l *lexer) variable() (token, error) {
	from := l.at
	numbered := l.text[from] == '?' // digits only, then the next token begins
	for l.at++; l.at < len(l.text); l.at++ {
		if c := l.text[l.at]; !wordByte(c) || (numbered && (c < '0' || c > '9')) {
			break
		}
	}
	if l.text[from] == '#' {
		return token{}, fmt.Errorf("there is a # at byte %d", from)
	}
	if l.at < len(l.text) && !numbered && strings.IndexByte(":(", l.text[l.at]) >= 0 {
		return token{}, fmt.Errorf("the placeholder at byte %d is followed by %q: want ?, ?1, :name, @name or $name", from, l.text[l.at])
	}
	return token{tokenVariable, l.text[from:l.at]}, nil
}

func wordByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c >= 0x80:
		return true
	}
	return c == '_' || c == '$'
}
