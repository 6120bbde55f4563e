package main

import (
	"errors"
	"fmt"
	"strings"

	"holdfast/driver"
)

// The exit codes, the same for every subcommand. They follow sysexits.h where
// it has a word for the case, and the shell for 126 to 128+n.
const (
	exitOK          = 0
	exitFailure     = 1  // refused, or failed for a reason without a code
	exitUsage       = 64 // EX_USAGE
	exitMissing     = 66 // EX_NOINPUT: no such lock or session
	exitUnreachable = 69 // EX_UNAVAILABLE: no server reachable
	exitConflict    = 75 // EX_TEMPFAIL: not acquired
	exitLost        = 79 // the lock was lost while the command ran
	exitNotExec     = 126
	exitNotFound    = 127
	exitSignal      = 128 // + signal number
)

const exitTable = `Exit codes:
  0        done
  1        refused, or failed for another reason; stderr says why
  64       bad usage: flags, names, configuration
  66       no such lock or session
  69       no server reachable`

const runExitTable = `Exit codes:
  the command's own code, or 128+n if signal n ended it; except
  64       bad usage; nothing was started
  69       no server reachable; nothing was started
  75       not acquired: busy, not granted in time, or closed by --once-per;
           nothing was started (--conflict-exit-code N replaces 75)
  79       the lock was lost while the command ran (lease ran out, revoked,
           session ended, maximum hold); the command was ended; the cause is
           on stderr
  126      the command is not executable; nothing was acquired
  127      the command was not found; nothing was acquired
  128+n    holdfast itself was ended by signal n before the command started
  1        failed for another reason before the command started`

// A codedError ends the program with a code of its own. Its text is for a
// person: what is wrong, what is allowed, what to do.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// usagef is an error of usage: exit code 64.
func usagef(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...)}
}

// withCode gives err the exit code; nil stays nil.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// exitCode is the code with which the program ends after err.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*codedError](err); ok {
		return e.code
	}
	switch driver.KindOf(err) {
	case driver.Invalid:
		return exitUsage
	case driver.NotFound:
		return exitMissing
	case driver.Unavailable, driver.Overloaded:
		return exitUnreachable
	case driver.Busy, driver.HeldByYou, driver.Closed, driver.Limit:
		return exitConflict
	}
	return exitFailure
}

// printable makes a text that somebody else chose safe for a terminal: every
// control character becomes an escape.
func printable(s string) string {
	if strings.IndexFunc(s, isControl) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isControl(r rune) bool {
	return r < 0x20 || (r >= 0x7f && r < 0xa0) || r == '\u2028' || r == '\u2029' ||
		(r >= '\u202a' && r <= '\u202e') || (r >= '\u2066' && r <= '\u2069')
}
