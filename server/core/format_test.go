package core

import (
	"fmt"
	"strings"
	"time"
)

// How transcripts show results, events and views.

var reasonNames = map[Reason]string{
	Busy: "busy", HeldByYou: "held-by-you", Closed: "closed", SessionLost: "session-lost", LimitMismatch: "limit-mismatch",
	TooMany: "too-many", NotHeld: "not-held", NoSuchGrant: "no-such-grant", NotFound: "not-found", Conflict: "conflict",
	Stale: "stale", InUse: "in-use", CounterFull: "counter-full", Malformed: "malformed", TooNew: "too-new",
}

var eventNames = map[EventKind]string{
	EventOpened: "opened", EventEnded: "ended", EventQueued: "queued", EventLeft: "left", EventGranted: "granted",
	EventReleased: "released", EventRevoked: "revoked", EventClosed: "closed", EventReopened: "reopened",
	EventPut: "put", EventDeleted: "deleted", EventEpoch: "epoch", EventVersion: "version", EventAudit: "audit",
}

var causeNames = map[Cause]string{
	CauseReleased: "released", CauseExpired: "expired", CauseEnded: "ended", CauseOperator: "operator", CauseMaxHold: "max-hold",
	CauseCancelled: "cancelled", CauseClosed: "closed", CauseLockDelay: "lock-delay", CauseOncePer: "once-per",
	CauseDeleted: "deleted", CauseEpoch: "epoch",
}

func formatClock(c Clock) string { return time.Duration(c).String() }

func formatGrant(g Grant) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s #%s", g.Lock, formatNumber(g.Number))
	if g.Generation != g.Number {
		fmt.Fprintf(&b, " token=%s", formatNumber(g.Generation))
	}
	if g.Slot != 0 {
		fmt.Fprintf(&b, " slot=%d", g.Slot)
	}
	if g.Shared {
		b.WriteString(" shared")
	}
	if g.EndsAt != 0 {
		fmt.Fprintf(&b, " ends=%s", formatClock(g.EndsAt))
	}
	return b.String()
}

func formatResult(r Result) string {
	switch r.Status {
	case Done:
		s := "done"
		if r.Session != 0 {
			s += fmt.Sprintf(" session=%d", r.Session)
		}
		if len(r.Lost) > 0 {
			s += fmt.Sprintf(" lost=%v", r.Lost)
		}
		if r.Revision != 0 {
			s += fmt.Sprintf(" revision=%d", r.Revision)
		}
		if r.Number != 0 {
			s += " burnt=#" + formatNumber(r.Number)
		}
		return s
	case Waiting:
		return fmt.Sprintf("waiting place=%d", r.Place)
	case Granted:
		if r.Ended {
			return "granted " + formatGrant(*r.Grant) + " ended"
		}
		return "granted " + formatGrant(*r.Grant)
	case Cancelled:
		return "cancelled"
	case Settled:
		return fmt.Sprintf("settled last=%d", r.Last)
	case Refused:
		return "refused " + formatRefusal(*r.Refusal)
	}
	return fmt.Sprintf("status %d", r.Status)
}

func formatRefusal(f Refusal) string {
	s := reasonNames[f.Reason]
	if f.Lock != "" {
		s += " lock=" + f.Lock
	}
	if h := f.Holder; h != nil {
		s += fmt.Sprintf(" holder=%d#%s", h.Session, formatNumber(h.Number))
		if h.Label != "" {
			s += "(" + h.Label + ")"
		}
	}
	if f.Waiters != 0 {
		s += fmt.Sprintf(" waiters=%d", f.Waiters)
	}
	if f.OpensAt != 0 {
		s += " opens=" + formatClock(f.OpensAt)
	}
	if f.Revision != 0 {
		s += fmt.Sprintf(" revision=%d", f.Revision)
	}
	return s + ": " + f.Msg
}

func formatEvent(e Event) string {
	s := fmt.Sprintf("r%d %s", e.Revision, eventNames[e.Kind])
	if e.Cause != 0 {
		s += "(" + causeNames[e.Cause] + ")"
	}
	if e.Lock != "" {
		s += " " + e.Lock
	}
	if e.Grant != 0 {
		s += " #" + formatNumber(e.Grant)
	}
	if e.Token != 0 && e.Token != e.Grant {
		s += " token=" + formatNumber(e.Token)
	}
	if e.Slot != 0 {
		s += fmt.Sprintf(" slot=%d", e.Slot)
	}
	if e.Shared {
		s += " shared"
	}
	if e.Session != 0 {
		s += fmt.Sprintf(" session=%d", e.Session)
	}
	if e.Burnt != 0 {
		s += " burnt=#" + formatNumber(e.Burnt)
	}
	if e.Value != nil {
		s += fmt.Sprintf(" value=%q", e.Value)
	}
	if e.OpensAt != 0 {
		s += " opens=" + formatClock(e.OpensAt)
	}
	if e.By != "" {
		s += " by=" + e.By
	}
	if e.Audit != nil {
		s += " " + formatAudit(*e.Audit)
	}
	return s
}

var outcomeNames = map[AuditOutcome]string{
	AuditDone: "done", AuditRefused: "refused", AuditUnknown: "unknown", AuditDenied: "denied", AuditBegun: "begun",
}

func formatAudit(c AuditCall) string {
	s := fmt.Sprintf("%s on=%s %s", c.Call, c.On, outcomeNames[c.Outcome])
	if c.Reason != 0 {
		s += " " + reasonNames[c.Reason]
	}
	if c.Kind != "" {
		s += " kind=" + c.Kind
	}
	if c.Count != 1 {
		s += fmt.Sprintf(" count=%d", c.Count)
	}
	return s
}

func formatNotice(n Notice) string {
	return fmt.Sprintf("notice %d %d/%d: %s", n.Session, n.Request.Lane, n.Request.N, formatResult(n.Result))
}

// formatApplied shows results beside their commands, then all the rest.
func formatApplied(lines []string, a Applied) string {
	var b strings.Builder
	for i, r := range a.Results {
		fmt.Fprintf(&b, "%s -> %s\n", strings.Fields(lines[i])[0], formatResult(r))
	}
	for _, e := range a.Events {
		fmt.Fprintf(&b, "  %s\n", formatEvent(e))
	}
	for _, n := range a.Notices {
		fmt.Fprintf(&b, "  %s\n", formatNotice(n))
	}
	if len(a.Sessions)+len(a.Grants)+len(a.Locks) > 0 {
		b.WriteString("  timing:")
		for _, id := range a.Sessions {
			fmt.Fprintf(&b, " %d", id)
		}
		for _, n := range a.Grants {
			fmt.Fprintf(&b, " #%s", formatNumber(n))
		}
		for _, name := range a.Locks {
			fmt.Fprintf(&b, " %s", name)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func formatLock(v LockView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s created=%d", v.Name, v.Created)
	if v.Limit > 1 {
		fmt.Fprintf(&b, " limit=%d", v.Limit)
	}
	if v.Sealed {
		b.WriteString(" sealed")
	}
	if v.HasValue {
		fmt.Fprintf(&b, " value=%q modified=%d", v.Value, v.Modified)
	}
	if v.ValueGrant != 0 {
		fmt.Fprintf(&b, " of=#%s", formatNumber(v.ValueGrant))
	}
	if v.ValueSession != 0 {
		fmt.Fprintf(&b, " bound=%d", v.ValueSession)
	}
	if v.Closed {
		fmt.Fprintf(&b, " closed=%s closing=%d opens=%s", causeNames[v.ClosedCause], v.Closing, formatClock(v.OpensAt))
	}
	if v.Waiters != 0 {
		fmt.Fprintf(&b, " waiters=%d", v.Waiters)
	}
	b.WriteString("\n")
	for _, h := range v.Holders {
		fmt.Fprintf(&b, "  held by %d since %s: %s", h.Session, formatClock(h.Since), formatGrant(h.Grant))
		if h.Revoked {
			fmt.Fprintf(&b, " revoked=%s cause=%d by=%s", formatClock(h.RevokedAt), h.Cause, h.By)
		}
		b.WriteString("\n")
	}
	for _, w := range v.Queue {
		fmt.Fprintf(&b, "  %d. %s\n", w.Place, formatWait(w))
	}
	return b.String()
}

func formatWait(w WaitView) string {
	s := fmt.Sprintf("session %d %d/%d for %s since %s", w.Session, w.Request.Lane, w.Request.N, w.Lock, formatClock(w.Since))
	if w.Shared {
		s += " shared"
	}
	return s
}

func formatSession(v SessionView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "session %d ttl=%s opened=%s", v.ID, v.TTL, formatClock(v.Opened))
	if v.Label != "" || v.Host != "" {
		fmt.Fprintf(&b, " label=%s host=%s", v.Label, v.Host)
	}
	if v.Suspected {
		fmt.Fprintf(&b, " suspected since=%s", formatClock(v.Since))
	}
	b.WriteString("\n")
	for _, g := range v.Grants {
		fmt.Fprintf(&b, "  holds %s\n", formatGrant(g))
	}
	for _, w := range v.Waits {
		fmt.Fprintf(&b, "  waits %s place=%d\n", formatWait(w), w.Place)
	}
	for _, d := range v.Tombstones {
		fmt.Fprintf(&b, "  lost #%s %s cause=%d by=%s\n", formatNumber(d.Grant), d.Lock, d.Cause, d.By)
	}
	return b.String()
}
