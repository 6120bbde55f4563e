package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/fence"
)

// report turns what a worker said into the story, and notes its writes.
func (s *story) report(h heard) {
	e := event{Event: h.said.Event, Worker: h.from.name, Token: h.said.Token, Seen: h.said.Seen}
	token, _ := fence.ParseToken(h.said.Token)
	n := token.Number
	left := time.Duration(h.said.LeftMS) * time.Millisecond
	switch h.said.Event {
	case saidReady:
		return
	case saidPulse:
		e.Text = fmt.Sprintf("♥ renewed: may rely on its lease for another %v", left)
		if h.said.Waits {
			e.Text = "♥ renewed, while it waits in the queue"
		}
	case saidAcquired:
		e.Text = fmt.Sprintf("holds %q with token %d", drillLock, n)
		if took := time.Duration(h.said.TookMS) * time.Millisecond; took > s.flags.ttl/4 {
			e.Text += fmt.Sprintf(", after waiting %v", took.Round(10*time.Millisecond))
		}
	case saidRead:
		e.Text = fmt.Sprintf("reads the ledger: the last line is %d", h.said.Seq)
	case saidAbout:
		e.Text = fmt.Sprintf("says: I hold token %d and am about to write", n)
	case saidInside:
		e.Text = fmt.Sprintf("is inside the guarded step with token %d, and has read", n)
	case saidWritten, saidRefused:
		e.Value = h.from.value
		e.Text, e.Verdict = s.note(h, token)
	case saidReleased:
		e.Text = fmt.Sprintf("releases token %d", n)
	case saidLost:
		e.Text = fmt.Sprintf("(its watchdog wakes at the same moment, beside the write that is under way: %s)", h.said.Text)
	}
	s.out.tell(e)
}

func (s *story) note(h heard, token fence.Token) (text, verdict string) {
	t := attempt{at: s.out.since(), worker: h.from.name, value: h.from.value, offered: token}
	if h.said.Event == saidRefused {
		t.seen, _ = fence.ParseToken(h.said.Seen)
		s.writes = append(s.writes, t)
		return fmt.Sprintf("REFUSED by the gate: %s", h.said.Text), "refused"
	}
	s.writes = append(s.writes, t)
	if s.fencing {
		return fmt.Sprintf("writes %q with token %d; the gate lets it in", h.from.value, token.Number), "accepted"
	}
	return fmt.Sprintf("writes %q with token %d; nobody asks for it", h.from.value, token.Number), "accepted"
}

// judge compares what happened with what the theory says. It looks at the
// ledger itself, not at what the workers said of it.
func (s *story) judge(ctx context.Context) (bool, error) {
	lines, worker, value, err := s.ledger.lines(ctx)
	if err != nil {
		return false, err
	}
	s.out.table(s.writes)
	wrong := s.compare(lines, worker, value)
	found := corruption(lines)
	v := event{Event: "verdict", Value: value, Verdict: "whole", Expected: "whole"}
	if len(found) > 0 {
		v.Verdict = "corrupted"
	}
	if !s.fencing {
		v.Expected = "corrupted"
	}
	var text strings.Builder
	if len(found) > 0 {
		fmt.Fprintf(&text, "CORRUPTED: %s. The invoice says %q.", strings.Join(found, "; "), value)
	} else {
		fmt.Fprintf(&text, "WHOLE: tokens only rise, and every run wrote on top of what it had read. The invoice says %q.", value)
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
// late one, which lands with fencing off and is refused with it on.
func (s *story) compare(lines []line, worker, value string) (wrong []string) {
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
	last := s.b
	if !s.fencing {
		last = s.a
	}
	if worker != last.name || value != last.value {
		miss("the invoice is %s's %q, want %s's %q", worker, value, last.name, last.value)
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
