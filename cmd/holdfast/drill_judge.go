package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/fence"
	"holdfast/lab/stage"
)

// report turns what a worker said into the story, and notes its writes.
func (s *story) report(h heard) {
	e := event{Event: h.said.Event, Worker: h.from.name, Token: tokenText(h.said.Token), Seen: tokenText(h.said.Seen)}
	n, left := h.said.Token.Number, h.said.Left.Truncate(time.Millisecond)
	switch h.said.Event {
	case stage.SaidReady, stage.SaidGaveUp:
		return
	case stage.SaidPulse:
		e.Text = fmt.Sprintf("♥ renewed: may rely on its lease for another %v", left)
		switch {
		case h.from.queued:
			e.Text = "♥ renewed, while it waits in the queue"
		case n == 0:
			e.Text = "♥ renewed, while it holds nothing"
		}
	case stage.SaidQueued:
		h.from.queued = true
		e.Text = fmt.Sprintf("waits for %q: somebody holds it, as far as the service knows", drillLock)
	case stage.SaidAcquired:
		h.from.queued = false
		e.Text = fmt.Sprintf("holds %q with token %d", drillLock, n)
		if h.said.Took > s.flags.ttl/4 {
			e.Text += fmt.Sprintf(", after waiting %v", h.said.Took.Round(10*time.Millisecond))
		}
	case stage.SaidRead:
		e.Text = fmt.Sprintf("reads the ledger: the last line is %d", h.said.Line)
	case stage.SaidLooked:
		e.Event = "about-to-write"
		e.Text = fmt.Sprintf("says: I hold token %d and am about to write", n)
	case stage.SaidInside:
		e.Text = fmt.Sprintf("is inside the guarded step with token %d, and has read", n)
	case stage.SaidWrote:
		e.Event, e.Value, e.Verdict = "written", h.said.Value, "accepted"
		e.Text = s.note(h)
	case stage.SaidRefused:
		e.Value, e.Verdict = h.said.Value, "refused"
		e.Text = s.note(h)
	case stage.SaidReleased:
		e.Text = fmt.Sprintf("releases token %d", n)
	case stage.SaidLost:
		e.Text = fmt.Sprintf("(its watchdog wakes at the same moment, beside the write that is under way: %s)", h.said.Text)
	}
	s.out.tell(e)
}

func tokenText(t fence.Token) string {
	if t.IsZero() {
		return ""
	}
	return t.String()
}

func (s *story) note(h heard) string {
	s.writes = append(s.writes, attempt{
		at: s.out.since(), worker: h.from.name, value: h.said.Value, offered: h.said.Token, seen: h.said.Seen,
	})
	switch {
	case h.said.Event == stage.SaidRefused:
		return fmt.Sprintf("REFUSED by the gate: %s", h.said.Text)
	case s.fencing:
		return fmt.Sprintf("writes %q with token %d; the gate lets it in", h.said.Value, h.said.Token.Number)
	}
	return fmt.Sprintf("writes %q with token %d; nobody asks for it", h.said.Value, h.said.Token.Number)
}

// judge compares what happened with what the theory says. It looks at the
// ledger itself, not at what the workers said of it.
func (s *story) judge(ctx context.Context) (bool, error) {
	lines, last, err := s.ledger.Lines(ctx)
	if err != nil {
		return false, err
	}
	s.out.table(s.writes)
	wrong := s.compare(lines, last)
	found := stage.Corruption(lines)
	v := event{Event: "verdict", Value: last.Value, Verdict: "whole", Expected: "whole"}
	if len(found) > 0 {
		v.Verdict = "corrupted"
	}
	if !s.fencing {
		v.Expected = "corrupted"
	}
	var text strings.Builder
	if len(found) > 0 {
		fmt.Fprintf(&text, "CORRUPTED: %s. The invoice says %q.", stage.Texts(found), last.Value)
	} else {
		fmt.Fprintf(&text, "WHOLE: tokens only rise, and every run wrote on top of what it had read. The invoice says %q.", last.Value)
	}
	if v.Verdict != v.Expected {
		wrong = append(wrong, fmt.Sprintf("the ledger is %s", v.Verdict))
	}
	v.Holds = len(wrong) == 0
	if v.Holds {
		fmt.Fprintf(&text, " Just as the theory says with fencing %s.", onOff(s.fencing))
	} else {
		fmt.Fprintf(&text, " NOT what the theory says with fencing %s: %s.", onOff(s.fencing), strings.Join(wrong, "; "))
	}
	v.Text = text.String()
	s.out.tell(v)
	return v.Holds, nil
}

// compare returns how the writes differ from what each act must bring: in the
// good day A's write; in each other act B's with the next number, then A's
// late one, which lands with fencing off and is refused with it on. What the
// acts saw themselves comes first.
func (s *story) compare(lines []stage.Line, last stage.Invoice) (wrong []string) {
	wrong = slices.Clone(s.wrong)
	miss := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	acts := 2
	if s.fencing {
		acts = 3
	}
	if want := 2*acts - 1; len(s.writes) != want {
		miss("%d writes were tried, want %d", len(s.writes), want)
		return wrong
	}
	if first := s.writes[0]; first.worker != "A" || first.refused() {
		miss("on the good day the write of A did not land")
	}
	accepted := 1
	for i := 1; i < len(s.writes); i += 2 {
		b, late := s.writes[i], s.writes[i+1]
		if b.worker != "B" || b.refused() || late.worker != "A" {
			miss("writes %d and %d are not B's and then A's late one", i+1, i+2)
			continue
		}
		if b.offered.Number != late.offered.Number+1 {
			miss("B's token %d is not one above A's %d", b.offered.Number, late.offered.Number)
		}
		if late.refused() != s.fencing {
			miss("A's late write with token %d was %s", late.offered.Number, verdictOf(late))
		}
		if late.refused() && late.seen != b.offered {
			miss("the gate named token %s, not B's %s", late.seen, b.offered)
		}
		accepted++
		if !late.refused() {
			accepted++
		}
	}
	if len(lines) != accepted {
		miss("the ledger has %d lines, the workers wrote %d", len(lines), accepted)
	}
	survivor := s.b
	if !s.fencing {
		survivor = s.a
	}
	if last.Worker != survivor.name || last.Value != survivor.value {
		miss("the invoice is %s's %q, want %s's %q", last.Worker, last.Value, survivor.name, survivor.value)
	}
	return wrong
}

func verdictOf(t attempt) string {
	if t.refused() {
		return fmt.Sprintf("refused: %d < %d", t.offered.Number, t.seen.Number)
	}
	return "accepted"
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}
