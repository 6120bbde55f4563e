package main

import (
	"fmt"
	"strings"
	"time"

	"holdfast/engine/cluster"
)

// Looks of a line, as the parameters of SGR. Colours are left out if there
// shall be none; bold and reverse are no colours.
const (
	lookPlain = ""
	lookHead  = "1"
	lookRow   = "7"
	lookBad   = "1;31"
	lookGood  = "32"
	lookDim   = "2"
)

// A frame is a picture being drawn: a line for each row of the screen.
type frame struct {
	w, h   int
	colour bool
	lines  []string
}

// line adds a row of the screen, made of parts with one blank between them. A
// part that follows something wide is put at its column, so that a terminal
// that takes another width for it does not shift the rest.
func (f *frame) line(look string, parts ...string) {
	if len(f.lines) >= f.h {
		return
	}
	var b strings.Builder
	at, sure := 0, true
	for i, p := range parts {
		if i > 0 {
			if p == "" {
				continue
			}
			if at > 0 {
				b.WriteByte(' ')
				at++
			}
		}
		if at >= f.w {
			break
		}
		if !sure {
			fmt.Fprintf(&b, "\x1b[%dG", at+1)
		}
		if cells(p) > f.w-at {
			p = cut(p, f.w-at)
		}
		b.WriteString(p)
		at += cells(p)
		sure = sure && isASCII(p)
	}
	f.lines = append(f.lines, f.dressed(look, b.String(), f.w-at))
}

// dressed gives a line its look, to the edge of the screen if that is seen.
func (f *frame) dressed(look, text string, left int) string {
	switch {
	case look == lookPlain:
		return text
	case !f.colour && look == lookGood:
		return text
	case !f.colour && look == lookBad:
		look = "1"
	}
	if look == lookRow {
		text += strings.Repeat(" ", max(0, left))
	}
	return "\x1b[" + look + "m" + text + "\x1b[m"
}

// fill adds empty lines up to a row.
func (f *frame) fill(to int) {
	for len(f.lines) < min(to, f.h) {
		f.lines = append(f.lines, "")
	}
}

// layout divides the screen.
type layout struct{ head, list, pane int }

// layout divides h rows, and tells the model how many of the list it has.
func (m *topModel) layout(h int) layout {
	l := layout{head: 3}
	if h < 12 {
		l.head = 1
	}
	room := max(0, h-l.head-3) // tabs, titles, keys
	switch {
	case m.view == viewMembers:
	case m.tall:
		l.pane = room + 1
	case h >= 18:
		l.pane = h / 4
	}
	l.list = max(0, room-l.pane)
	m.rows, m.places = max(1, l.list), max(0, l.pane-2)
	if m.tall {
		m.rows = max(1, room)
	}
	m.settle()
	return l
}

// draw makes the picture of w columns and h rows.
func (m *topModel) draw(w, h int, now time.Time, colour bool) []string {
	f := &frame{w: w, h: h, colour: colour}
	l := m.layout(h)
	m.drawHead(f, l, now)
	m.drawTabs(f)
	if l.pane <= h-l.head-3 {
		m.drawList(f, l)
	}
	if l.pane > 0 {
		f.fill(h - 1 - l.pane)
		m.drawPane(f, h-1)
	}
	f.fill(h - 1)
	m.drawFoot(f)
	return f.lines
}

func (m *topModel) drawHead(f *frame, l layout, now time.Time) {
	state, look := m.state(now)
	s := m.answer.status
	if l.head == 1 || s == nil {
		f.line(look, state)
		if l.head > 1 {
			f.fill(l.head)
		}
		return
	}
	f.line(lookHead, "holdfast "+m.line.server, printable(s.Role), fmt.Sprintf("term %d  applied %d  revision %d", s.Term, s.AppliedIndex, s.Revision), "version "+shown(s.Version))
	rates := fmt.Sprintf("grants %s/s  ends %s/s  expired %s/s  queued %s/s", rateText(m.rate.granted), rateText(m.rate.ended), rateText(m.rate.lapsed), rateText(m.rate.queued))
	if m.rate.skipped {
		rates += " (too much happened to count all of it)"
	}
	f.line(lookPlain, fmt.Sprintf("%d sessions  %d locks ", s.Sessions, s.Locks), rates)
	f.line(look, state)
}

// newsFor is how long good news stays on the screen.
const newsFor = 10 * time.Second

// state says how the service is, the worst first.
func (m *topModel) state(now time.Time) (text, look string) {
	s := m.answer.status
	old := ""
	if m.has {
		old = ", what is shown is " + tight(now.Sub(m.answer.at).Truncate(time.Second)) + " old"
	}
	switch {
	case m.line.lost:
		return fmt.Sprintf("CONNECTION LOST %s ago%s: %s", tight(now.Sub(m.line.since).Truncate(time.Second)), old, shown(m.line.text)), lookBad
	case m.fault != "":
		return "NO ANSWER" + old + ": " + shown(strings.ReplaceAll(m.fault, "\n", "; ")), lookBad
	case s == nil:
		return "asking " + m.line.server + " …", lookDim
	case now.Sub(m.answer.at) > topPatience+time.Second && now.Sub(m.asked) < topPatience+time.Second && m.asked.After(m.answer.at):
		return "waiting for an answer" + old, lookBad
	case !s.Ready:
		return "NOT READY: " + shown(s.NotReady), lookBad
	case m.answer.stale && s.Role != "leader":
		return fmt.Sprintf("STALE: what this node knew %s ago", brief(m.answer.age)), lookBad
	case m.line.text != "" && now.Sub(m.line.since) < newsFor:
		return shown(m.line.text), lookHead
	}
	return "connected, " + m.answer.at.Format("15:04:05"), lookGood
}

func rateText(r float64) string {
	if r >= 100 {
		return fmt.Sprintf("%.0f", r)
	}
	return fmt.Sprintf("%.1f", r)
}

func (m *topModel) drawTabs(f *frame) {
	parts := make([]string, 0, 6)
	for v, name := range [...]string{"locks", "sessions", "members"} {
		text := fmt.Sprintf(" %d %s ", v+1, name)
		if topView(v) == m.view {
			text = fmt.Sprintf("[%d %s]", v+1, name)
		}
		parts = append(parts, text)
	}
	if m.view != viewMembers {
		order := m.sort[m.view].String()
		if m.view == viewSessions {
			order = [...]string{"ID", "waits", "age"}[m.sort[m.view]]
		}
		parts = append(parts, "by "+order)
	}
	if m.prefix != "" && m.view != viewMembers {
		parts = append(parts, "prefix "+quotedShown(m.prefix))
	}
	f.line(lookHead, append(parts, m.place())...)
}

// place says which part of the list is on the screen.
func (m *topModel) place() string {
	keys := m.keys()
	a := &m.answer
	switch {
	case !m.current():
		return "…"
	case len(keys) == 0:
		return "none"
	case m.view == viewMembers:
		return ""
	case a.partly:
		return fmt.Sprintf("row %d; of the first %d only, there are more: narrow it with /", m.cursor+1, a.scanned)
	case len(m.pages) > 1 || a.next != "":
		return fmt.Sprintf("page %d", len(m.pages)) + map[bool]string{true: ", more below"}[a.next != ""]
	}
	return fmt.Sprintf("row %d of %d", m.cursor+1, len(keys))
}

func (m *topModel) drawList(f *frame, l layout) {
	cols, rows := m.table()
	widths := columnWidths(cols, f.w)
	head := make([]string, 0, len(cols))
	for i, c := range cols {
		if widths[i] > 0 {
			head = append(head, fit(c.title, widths[i], c.right))
		}
	}
	f.line(lookDim, head...)
	if len(rows) == 0 {
		f.line(lookDim, m.emptyText())
		return
	}
	for i := m.offset; i < min(m.offset+l.list, len(rows)); i++ {
		parts := make([]string, 0, len(cols))
		for j, cell := range rows[i] {
			if widths[j] > 0 {
				parts = append(parts, fit(cell, widths[j], cols[j].right))
			}
		}
		look := lookPlain
		if i == m.cursor && m.view != viewMembers {
			look = lookRow
		}
		f.line(look, parts...)
	}
}

func (m *topModel) emptyText() string {
	switch {
	case !m.current():
		return "asking …"
	case m.view == viewSessions:
		return "no session"
	}
	return "no lock is held, waited for or closed, and none has a value"
}

func (m *topModel) drawFoot(f *frame) {
	switch {
	case m.typing && m.note != "":
		f.line(lookBad, "prefix: "+shown(string(m.typed)), "  "+shown(m.note))
	case m.typing:
		f.line(lookHead, "prefix: "+shown(string(m.typed))+"_", "  enter: show these  escape: leave it")
	default:
		f.line(lookDim, "q quit  1-3 views  s order  / prefix  enter details  arrows move")
	}
}

// drawPane shows the chosen row's details, down to a row of the screen.
func (m *topModel) drawPane(f *frame, to int) {
	if !m.current() || m.chosen == "" {
		return
	}
	var lines []string
	switch m.view {
	case viewLocks:
		lines = m.lockDetails()
	case viewSessions:
		lines = sessionDetails(m.answer.sessions[m.cursor])
	}
	for i, text := range lines {
		look := lookPlain
		if i == 0 {
			look = lookHead
		}
		if room := to - len(f.lines); room <= 0 {
			return
		} else if room == 1 && i < len(lines)-1 {
			f.line(lookDim, fmt.Sprintf("… and %d more: enter", len(lines)-i))
			return
		}
		f.line(look, text)
	}
}

// lockDetails are the chosen lock's holders and queue.
func (m *topModel) lockDetails() []string {
	l := m.answer.locks[m.cursor]
	if d := m.answer.detail; d != nil && d.Name == l.Name {
		l = d
	}
	head := "lock " + quotedShown(l.Name)
	if l.Limit > 1 {
		head += fmt.Sprintf(", %d of %d permits taken", len(l.Holders), l.Limit)
	}
	if l.Closed {
		head += ", closed for " + brief(l.OpensIn) + " (" + l.ClosedCause + ")"
	}
	if l.HasValue {
		head += ", value " + shown(valueText(l.Value))
	}
	out := []string{head}
	for i := range l.Holders {
		h := &l.Holders[i]
		text := fmt.Sprintf("  held %s by %s, session %d, grant %d, TTL left %s, heard %s", brief(h.Held), shownHolder(h.Label, h.Host, h.SessionID), h.SessionID, h.Grant, brief(h.TTLLeft), agoText(h.LastHeard))
		if h.Shared {
			text += ", shared"
		}
		if h.Revoked {
			text += ", REVOKED (" + h.RevokeWhy + ") by " + shown(h.RevokeBy)
		}
		out = append(out, text)
	}
	for i := range l.Queue {
		q := &l.Queue[i]
		text := fmt.Sprintf("  %d. waits %s: %s, session %d", q.Place, brief(q.Waited), shownHolder(q.Label, q.Host, q.SessionID), q.SessionID)
		if q.Shared {
			text += ", shared"
		}
		out = append(out, text)
	}
	if more := l.Waiters - len(l.Queue); more > 0 && len(l.Queue) > 0 {
		out = append(out, fmt.Sprintf("  and %d more wait", more))
	}
	return out
}

// sessionDetails are what the chosen session holds and waits for.
func sessionDetails(s *cluster.Session) []string {
	out := []string{fmt.Sprintf("session %d of %s, TTL %s, heard %s", s.ID, shownHolder(s.Label, s.Host, s.ID), brief(s.TTL), agoText(s.LastHeard))}
	for _, name := range s.Holds {
		out = append(out, "  holds "+quotedShown(name))
	}
	for _, name := range s.WaitsFor {
		out = append(out, "  waits for "+quotedShown(name))
	}
	return out
}

func quotedShown(name string) string { return shown(quoted(name)) }

func shownHolder(label, host string, session uint64) string {
	return shown(holderName(label, host, session))
}
