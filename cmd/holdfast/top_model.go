package main

import (
	"slices"
	"strings"
	"time"
)

// A topModel is what the screen of top stands at: what was asked for, what came
// back, and what was typed. It does no I/O and reads no clock.
type topModel struct {
	view   topView
	sort   [topViews]topSort
	prefix string
	pages  []string // by name: the pages up to the present one; the first is ""

	typing bool // of a prefix
	typed  []rune
	note   string // what is wrong with it

	answer topAnswer // the last one that brought something
	has    bool
	fault  string // why the last look brought nothing
	asked  time.Time
	cursor int
	chosen string   // the name of the row at the cursor
	offset int      // the first row on the screen
	toEnd  bool     // the cursor goes to the end of the page that is coming
	ahead  []topKey // moves that wait for the page that is coming
	tall   bool     // the chosen row's details take the whole screen
	rows   int      // of the list that fit on the screen
	places int      // of a queue, likewise

	line topLine
	rate topRate
}

// topLine is how the connection stands.
type topLine struct {
	server string
	lost   bool
	text   string    // what happened to it last
	since  time.Time // when
}

func newTopModel(f *topFlags) *topModel {
	m := &topModel{prefix: f.prefix, pages: []string{""}, rows: 20, places: 20}
	m.sort[viewLocks] = sortNamed(f.sort)
	return m
}

// query is what the screen needs.
func (m *topModel) query() topQuery {
	q := topQuery{view: m.view, sort: m.sort[m.view], prefix: m.prefix, page: m.pages[len(m.pages)-1], rows: m.rows}
	if m.view == viewLocks && m.places > 0 {
		q.detail, q.places = m.chosen, m.places
	}
	return q
}

// current reports whether the answer is one to the present question.
func (m *topModel) current() bool { return m.has && m.answer.query.sameList(m.query()) }

// take keeps an answer, and stays on the row that was chosen.
func (m *topModel) take(a topAnswer) {
	if a.err != nil {
		m.fault = plainText(a.err)
		return
	}
	m.fault = ""
	if !a.query.sameList(m.query()) {
		return
	}
	m.answer, m.has = a, true
	if len(m.keys()) == 0 && len(m.pages) > 1 {
		m.turn(m.pages[:1], false) // the page has become empty
		return
	}
	if i := slices.Index(m.keys(), m.chosen); i >= 0 && !m.toEnd {
		m.cursor = i
	}
	if m.toEnd {
		m.cursor, m.toEnd = len(m.keys())-1, false
	}
	m.settle()
	ahead := m.ahead
	m.ahead = nil
	for _, k := range ahead {
		m.move(k)
	}
}

// keys are the names of the list's rows.
func (m *topModel) keys() (out []string) {
	if !m.current() {
		return nil
	}
	switch m.view {
	case viewLocks:
		for _, l := range m.answer.locks {
			out = append(out, l.Name)
		}
	case viewSessions:
		for _, s := range m.answer.sessions {
			out = append(out, number(s.ID))
		}
	case viewMembers:
		for _, x := range m.answer.cluster.Members {
			out = append(out, idText(x.ID))
		}
	}
	return out
}

// settle keeps the cursor on a row, and that row on the screen.
func (m *topModel) settle() {
	keys := m.keys()
	m.cursor = max(0, min(m.cursor, len(keys)-1))
	if m.current() {
		m.chosen = ""
	}
	if len(keys) > 0 {
		m.chosen = keys[m.cursor]
	}
	m.offset = max(0, min(m.offset, m.cursor, len(keys)-m.rows))
	if m.cursor >= m.offset+m.rows {
		m.offset = m.cursor - m.rows + 1
	}
}

// turn goes to another page.
func (m *topModel) turn(pages []string, toEnd bool) {
	m.pages, m.toEnd, m.cursor, m.offset, m.chosen = pages, toEnd, 0, 0, ""
}

// fresh begins a list anew.
func (m *topModel) fresh() {
	m.turn([]string{""}, false)
	m.tall, m.ahead = false, nil
}

// key does what a key says, and reports whether that is the end.
func (m *topModel) key(k topKey) (quit bool) {
	if k.name == "quit" {
		return true
	}
	if m.typing {
		m.edit(k)
		return false
	}
	switch {
	case k.r == 'q' || k.r == 'Q':
		return true
	case k.r >= '1' && k.r < '1'+rune(topViews):
		m.show(topView(k.r - '1'))
	case k.name == "tab":
		m.show((m.view + 1) % topViews)
	case k.name == "backtab":
		m.show((m.view + topViews - 1) % topViews)
	case k.r == 's' && m.view != viewMembers:
		m.sort[m.view] = (m.sort[m.view] + 1) % topSorts
		m.fresh()
	case k.r == '/':
		m.typing, m.typed, m.note = true, []rune(m.prefix), ""
	case k.name == "enter":
		m.tall = !m.tall && m.view != viewMembers
	case k.name == "escape" && m.tall:
		m.tall = false
	case k.name == "escape" && m.prefix != "":
		m.prefix = ""
		m.fresh()
	default:
		m.move(k)
	}
	return false
}

func (m *topModel) show(v topView) {
	if v != m.view {
		m.view = v
		m.fresh()
	}
}

// maxAhead is how many moves wait for a page.
const maxAhead = 16

// move moves the cursor, to another page if need be.
func (m *topModel) move(k topKey) {
	if !m.current() {
		if len(m.ahead) < maxAhead {
			m.ahead = append(m.ahead, k)
		}
		return
	}
	to := m.cursor
	switch {
	case k.name == "down" || k.r == 'j':
		to++
	case k.name == "up" || k.r == 'k':
		to--
	case k.name == "pagedown" || k.r == ' ':
		to += m.rows
	case k.name == "pageup" || k.r == 'b':
		to -= m.rows
	case k.name == "home" || k.r == 'g':
		if len(m.pages) > 1 {
			m.turn(m.pages[:1], false)
		}
		to = 0
	case k.name == "end" || k.r == 'G':
		to = max(0, len(m.keys())-1)
	default:
		return
	}
	switch {
	case to >= len(m.keys()) && m.answer.next != "":
		m.turn(append(slices.Clip(m.pages), m.answer.next), false)
	case to < 0 && m.cursor == 0 && len(m.pages) > 1:
		m.turn(m.pages[:len(m.pages)-1], k.name == "up" || k.r == 'k')
	default:
		m.cursor = to
	}
	m.settle()
}

// edit takes a key while a prefix is typed.
func (m *topModel) edit(k topKey) {
	m.note = ""
	switch k.name {
	case "escape":
		m.typing = false
	case "erase":
		if n := len(m.typed); n > 0 {
			m.typed = m.typed[:n-1]
		}
	case "kill":
		m.typed = nil
	case "enter":
		prefix := string(m.typed)
		if prefix != "" {
			if err := checkLockName(prefix); err != nil {
				m.note = strings.TrimPrefix(err.Error(), "lock name ")
				return
			}
		}
		m.typing = false
		if prefix != m.prefix {
			m.prefix = prefix
			m.fresh()
		}
	case "":
		if len(string(m.typed)) < 512 {
			m.typed = append(m.typed, k.r)
		}
	}
}
