package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/engine/cluster"
)

// A topColumn is one column of a list.
type topColumn struct {
	title string
	width int  // the least that is of use
	grow  int  // its share of the room that is left
	drop  int  // where it is too narrow, those with the highest go first
	right bool // numbers
}

var lockColumns = []topColumn{
	{title: "LOCK", width: 12, grow: 3},
	{title: "STATE", width: 8, drop: 3, grow: 1},
	{title: "WAIT", width: 5, drop: 1, right: true},
	{title: "HELD", width: 8, drop: 4, right: true},
	{title: "TTL LEFT", width: 8, drop: 5, right: true},
	{title: "HEARD", width: 8, drop: 6, right: true},
	{title: "GRANTS/S", width: 8, drop: 7, right: true},
	{title: "GRANT", width: 7, drop: 8, right: true},
	{title: "HOLDER", width: 12, drop: 2, grow: 3},
}

var sessionColumns = []topColumn{
	{title: "SESSION", width: 9, right: true},
	{title: "OF", width: 12, drop: 1, grow: 2},
	{title: "STATE", width: 9, drop: 6, grow: 1},
	{title: "TTL LEFT", width: 8, drop: 4, right: true},
	{title: "HEARD", width: 8, drop: 5, right: true},
	{title: "AGE", width: 8, drop: 7, right: true},
	{title: "HOLDS", width: 10, drop: 3, grow: 2},
	{title: "WAITS FOR", width: 10, drop: 2, grow: 2},
}

var memberColumns = []topColumn{
	{title: "MEMBER", width: 10, grow: 1},
	{title: "ROLE", width: 8, drop: 1},
	{title: "STATE", width: 12, drop: 2, grow: 1},
	{title: "LOG", width: 10, drop: 4, right: true},
	{title: "BEHIND", width: 8, drop: 3, right: true},
	{title: "CLIENTS", width: 15, drop: 5, grow: 1},
	{title: "PEERS", width: 15, drop: 6, grow: 1},
}

// columnWidths divides w among columns; 0 is for one that has no room.
func columnWidths(cols []topColumn, w int) []int {
	widths := make([]int, len(cols))
	room := w + 1
	for i, c := range cols {
		widths[i] = c.width
		room -= c.width + 1
	}
	for room < 0 {
		worst := -1
		for i, c := range cols {
			if widths[i] > 0 && (worst < 0 || c.drop >= cols[worst].drop) {
				worst = i
			}
		}
		if cols[worst].drop == 0 {
			break // what is left is cut at the edge
		}
		room += widths[worst] + 1
		widths[worst] = 0
	}
	shares := 0
	for i, c := range cols {
		if widths[i] > 0 {
			shares += c.grow
		}
	}
	for i, c := range cols {
		if widths[i] > 0 && c.grow > 0 && room > 0 {
			more := room * c.grow / shares
			widths[i] += more
			room, shares = room-more, shares-c.grow
		}
	}
	return widths
}

// table is the list as cells, ready for the screen.
func (m *topModel) table() (cols []topColumn, rows [][]string) {
	if !m.current() {
		return [...][]topColumn{lockColumns, sessionColumns, memberColumns}[m.view], nil
	}
	switch m.view {
	case viewSessions:
		for _, s := range m.answer.sessions {
			rows = append(rows, sessionCells(s))
		}
		return sessionColumns, rows
	case viewMembers:
		for i := range m.answer.cluster.Members {
			row := memberRow(m.answer.cluster, &m.answer.cluster.Members[i])
			for j := range row {
				row[j] = shown(row[j])
			}
			rows = append(rows, row)
		}
		return memberColumns, rows
	}
	for _, l := range m.answer.locks {
		rows = append(rows, m.lockCells(l))
	}
	return lockColumns, rows
}

func (m *topModel) lockCells(l *cluster.Lock) []string {
	state, held, left, heard, grant, holder, rate := "free", "", "", "", "", "", ""
	if l.Closed {
		state = "closed " + tight(l.OpensIn)
	}
	if len(l.Holders) > 0 {
		h := &l.Holders[0]
		state = "held"
		switch {
		case h.Revoked:
			state = "REVOKED"
		case h.Shared:
			state = "shared"
		}
		held, left, heard, grant = tight(heldLongest(l)), tight(h.TTLLeft), heardText(h), number(h.Grant)
		holder = shownHolder(h.Label, h.Host, h.SessionID)
		if more := len(l.Holders) - 1; more > 0 {
			holder = "+" + number(uint64(more)) + " " + holder
		}
	}
	if r := m.rate.byLock[l.Name]; r > 0 {
		rate = rateText(r)
	}
	return []string{quotedShown(l.Name), state, number(uint64(l.Waiters)), held, left, heard, rate, grant, holder}
}

// tight is a duration in at most eight characters.
func tight(d time.Duration) string {
	switch {
	case d >= 1000*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Hour:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return brief(d)
}

// heardText is how long ago a holder was heard, briefly.
func heardText(h *cluster.Holder) string {
	if h.LastHeard == nil {
		return "not yet"
	}
	return tight(*h.LastHeard)
}

func sessionCells(s *cluster.Session) []string {
	heard := "not yet"
	if s.LastHeard != nil {
		heard = tight(*s.LastHeard)
	}
	return []string{
		number(s.ID), shown(holderText(s.Label, s.Host, "")), sessionState(s), tight(s.TTLLeft), heard, tight(s.Age),
		shownNames(s.Holds), shownNames(s.WaitsFor),
	}
}

// shownNames begins with how many there are, if that is not plain to see.
func shownNames(locks []string) string {
	if len(locks) < 2 {
		return shown(names(locks))
	}
	return number(uint64(len(locks))) + ": " + shown(names(locks[:min(len(locks), 10)]))
}

// changed are the bytes that turn one picture into the next: lines that differ
// are written over, with their rest cleared. The whole is shown at once by
// terminals that know how.
func changed(before, now []string) string {
	var b strings.Builder
	for i, line := range now {
		if i < len(before) && before[i] == line {
			continue
		}
		b.WriteString("\x1b[")
		b.WriteString(number(uint64(i + 1)))
		b.WriteString(";1H")
		if !isASCII(line) {
			b.WriteString("\x1b[2K") // it may turn out narrower than thought
		}
		b.WriteString(line)
		b.WriteString("\x1b[K")
	}
	if b.Len() == 0 || slices.Equal(before, now) {
		return ""
	}
	return "\x1b[?2026h" + b.String() + "\x1b[?2026l"
}
