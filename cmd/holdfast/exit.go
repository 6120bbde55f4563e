package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

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
	exitUnmet       = 80 // sim: nothing violated, but a situation was never met
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

const serveExitTable = `Exit codes:
  0        stopped as asked
  1        it cannot start, or has failed; stderr says why
  64       bad usage: flags, environment, configuration file; or this node was
           removed from its cluster for good: starting it again does not help`

const devExitTable = serveExitTable + `
  128+13   nobody reads its output`

const labExitTable = `Exit codes:
  0        stopped as asked
  1        it cannot start, or has failed; stderr says why
  64       bad usage: flags
  128+13   nobody reads its output`

const drillExitTable = `Exit codes:
  0        what happened is what the theory says
  1        it is not, or the drill could not be played; stderr says why
  64       bad usage: flags
  128+n    ended by signal n`

const simExitTable = `Exit codes:
  0        nothing was violated
  1        a property was violated, or worlds could not be run; the report is on
           standard output
  64       bad usage: flags
  80       nothing was violated, but in a run of many worlds a named situation
           was never met: the run says less than it should
  128+n    ended by signal n before it was done`

const runExitTable = `Exit codes:
  the command's own code, or 128+n if signal n ended it; except
  64       bad usage; nothing was started
  69       no server reachable; nothing was started
  75       not acquired: busy, not granted in time, closed by --once-per, in
           use with another --limit, or a limit of the service is reached;
           nothing was started (--conflict-exit-code N replaces 75)
  79       the lock was lost while the command ran (lease ran out, revoked,
           session ended, maximum hold); the command was ended; the cause is
           on stderr
  126      the command is not executable; nothing was acquired
  127      the command was not found; nothing was acquired
  128+n    holdfast itself was ended by signal n before the command started
  1        failed for another reason before the command started`

const electExitTable = `Exit codes:
  0        ended as a signal asked, or by --stop-on-success; --show: printed
  n        the command ended with n (128+s by signal s), and --stop-on-failure
  1        failed for another reason; stderr says why
  64       bad usage; nothing was started
  66       --show: nobody is in office
  69       --show: no server reachable (a candidate waits until one is)
  126      the command is not executable; nothing was acquired
  127      the command was not found; nothing was acquired`

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

// printable makes a text that somebody else chose safe for a terminal, and
// shows what cannot be seen: every character that is not printable becomes an
// escape.
func printable(s string) string { return escaped(s, isHidden) }

// quoted is printable for a name, which must not be taken for another: one that
// needs escapes, or looks as if it were quoted, is quoted.
func quoted(s string) string {
	if strings.IndexFunc(s, isHidden) < 0 && !strings.HasPrefix(s, `"`) {
		return s
	}
	return strconv.Quote(s)
}

// escaped writes the characters that must not be shown as escapes.
func escaped(s string, must func(rune) bool) string {
	if strings.IndexFunc(s, must) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !must(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isHidden: control characters, those of zero width, marks of direction, and
// blanks other than the space.
func isHidden(r rune) bool { return !strconv.IsPrint(r) }

func isControl(r rune) bool {
	return r < 0x20 || (r >= 0x7f && r < 0xa0) || r == '\u2028' || r == '\u2029' ||
		(r >= '\u202a' && r <= '\u202e') || (r >= '\u2066' && r <= '\u2069')
}

// signalName is a signal as people and kill(1) write it.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
