package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast"
)

// worded is an error with another text. The chain below stays.
type worded struct {
	error
	text string
}

func (e *worded) Error() string { return e.text }
func (e *worded) Unwrap() error { return e.error }

// plain words an error of the client library, whose texts advise programmers,
// for somebody at a shell.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return &worded{err, plainText(err)}
}

func plainText(err error) string {
	if _, ok := errors.AsType[*worded](err); ok {
		return err.Error()
	}
	if l, ok := errors.AsType[*holdfast.Lost](err); ok {
		return fmt.Sprintf("lock %q was lost: %s", l.Lock, lossReason(l))
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok {
		return refusalText(e)
	}
	return err.Error()
}

// lossReason says why a lock was lost.
func lossReason(l *holdfast.Lost) string {
	text := l.Cause.String()
	switch l.Cause {
	case holdfast.CauseExpired:
		text = "the lease ran out while holdfast, or its machine, did not run"
	case holdfast.CauseUnreachable:
		text = "the lease ran out while the service did not answer"
	case holdfast.CauseSessionEnded:
		text = "the service says that the session has ended"
	case holdfast.CauseRevoked:
		text = "it was revoked"
		if l.By != "" {
			text += fmt.Sprintf(" by %q", l.By)
		}
	case holdfast.CauseMaxHold:
		text = "the maximum hold (--max-hold) is over"
	}
	if l.Err != nil {
		text += fmt.Sprintf(" (%v)", l.Err)
	}
	return text
}

// lossOf is why the lease that ended a command was lost.
func lossOf(err error) error {
	if l, ok := errors.AsType[*holdfast.Lost](err); ok {
		return &worded{err, lossReason(l)}
	}
	return err
}

// refusalText says why an acquire or a release was not done, and what to do.
func refusalText(e *holdfast.Error) string {
	text := "no answer"
	switch {
	case e.Err != nil:
		text = e.Err.Error()
	case e.Kind != nil:
		text = e.Kind.Error()
	}
	about := ""
	if e.Lock != "" {
		about = fmt.Sprintf("lock %q: ", e.Lock)
	}
	text = about + strings.TrimPrefix(text, about)
	switch {
	case errors.Is(e.Kind, holdfast.ErrBusy) && e.Holder != nil:
		h := e.Holder
		return fmt.Sprintf("lock %q is held by %s for %v (grant %d), %d waiting; to wait for it, leave --no-wait away or give --wait",
			e.Lock, holderText(h.Label, h.Host, "session "+h.Session), h.Held.Round(time.Millisecond), h.GrantNumber, e.Waiters)
	case errors.Is(e.Kind, holdfast.ErrBusy):
		return text + "; to wait for it, leave --no-wait away or give --wait"
	case errors.Is(e.Kind, holdfast.ErrOverloaded):
		return text + "; try again later"
	case errors.Is(e.Kind, holdfast.ErrReleasePending):
		return fmt.Sprintf("the release of lock %q was not confirmed (%s); it is free at the latest when its lease has run out (--ttl)",
			e.Lock, strings.TrimPrefix(text, about))
	}
	return text
}
