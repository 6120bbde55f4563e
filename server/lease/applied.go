package lease

import "holdfast/server/core"

// Applied follows the log: it is called after each entry is applied, with the
// state after it. The instant of the call is when a session that the entry
// opened counts as heard.
func (m *Machine) Applied(now Instant, st *core.State, e core.Entry, a core.Applied) {
	if !m.leading {
		return
	}
	if e.Term > m.term {
		m.StepDown() // another leader's entry: this one was deposed
		return
	}
	if m.time.idle {
		m.time.advance(now, false)
	}
	m.logged = max(m.logged, st.Clock())
	reload := false
	for i, c := range e.Commands {
		var r core.Result
		if i < len(a.Results) {
			r = a.Results[i]
		}
		if _, ok := c.(core.RaiseEpoch); ok {
			reload = true
		}
		if e.Term == m.term {
			m.landed(c)
			m.result(c, r)
		}
	}
	m.followSessions(now, st, a.Sessions)
	m.followGrants(st, a.Grants)
	m.followLocks(st, a.Locks)
	if reload {
		m.restart(st)
	}
}

// result answers keepalives by a clear's result.
func (m *Machine) result(c core.Command, r core.Result) {
	cl, ok := c.(core.Clear)
	if !ok {
		return
	}
	lost := make(map[core.SessionID]bool, len(r.Lost))
	for _, id := range r.Lost {
		lost[id] = true
	}
	for _, id := range cl.Sessions {
		s := m.sessions[id]
		if s == nil || !s.clearing {
			continue
		}
		if lost[id] {
			m.forget(s)
			continue
		}
		s.suspected = false
		m.cleared(s)
	}
}

// landed marks a command of this leader as no longer in flight. If its effect
// did not come it is not proposed again at once.
func (m *Machine) landed(c core.Command) {
	later := m.time.clock + retryAfter
	switch c := c.(type) {
	case core.Expire:
		if s := m.sessions[c.ID]; s != nil {
			s.notBefore = later
		}
	case core.Revoke:
		if g := m.grants[c.Grant]; g != nil && !c.Now && (c.Free && g.freeing || !c.Free && g.marking) {
			g.notBefore = later
		}
	case core.Reopen:
		if cl := m.closings[c.Lock]; cl != nil && cl.Closing == c.Closing {
			cl.notBefore = later
		}
	}
	m.released(c)
}

// Dropped tells that raft refused to append these commands of a turn: each can
// be proposed again.
func (m *Machine) Dropped(cmds []core.Command) {
	if !m.leading {
		return
	}
	for _, c := range cmds {
		m.released(c)
		if cl, ok := c.(core.Clear); ok {
			for _, id := range cl.Sessions {
				if s := m.sessions[id]; s != nil && s.clearing {
					s.clearing, s.covered = false, 0
					m.wantClear(s)
				}
			}
		}
	}
}

// released takes a command out of flight and places what it was about anew.
func (m *Machine) released(c core.Command) {
	switch c := c.(type) {
	case core.Suspect:
		for _, id := range c.Sessions {
			if s := m.sessions[id]; s != nil {
				s.suspecting = false
				m.place(s)
			}
		}
	case core.Expire:
		if s := m.sessions[c.ID]; s != nil {
			s.expiring = false
			m.place(s)
		}
	case core.Revoke:
		if !c.Now && !c.Free {
			m.markSettled(c.Grant)
		}
		if g := m.grants[c.Grant]; g != nil && !c.Now {
			if c.Free {
				g.freeing = false
			} else {
				g.marking = false
			}
			m.trackGrant(g.GrantTiming)
		}
	case core.Reopen:
		if cl := m.closings[c.Lock]; cl != nil && cl.Closing == c.Closing {
			cl.opening = false
			m.trackClosing(cl.ClosingTiming)
		}
	case core.Tick:
		m.ticking = false
	}
}

// followSessions mirrors what an entry did to sessions.
func (m *Machine) followSessions(now Instant, st *core.State, ids []core.SessionID) {
	for _, id := range ids {
		t, ok := st.SessionTiming(id)
		s := m.sessions[id]
		switch {
		case !ok && s != nil:
			m.forget(s)
		case ok && s == nil:
			s = newSession(t)
			m.sessions[id] = s
			m.hear(s, now)
			m.place(s)
		case ok:
			if t.Suspected != s.suspected || t.Since != s.since {
				s.suspected, s.since, s.notBefore = t.Suspected, t.Since, 0
			}
			m.place(s)
		}
	}
}

// forget drops an ended session; who waits for a clear of it learns so at
// once, for what is applied is final.
func (m *Machine) forget(s *session) {
	for _, w := range s.waits {
		m.answers = append(m.answers, Answer{w.handle, Lost})
	}
	s.waits = nil
	s.due.drop()
	s.byTTL.drop()
	delete(m.sessions, s.id)
}

func (m *Machine) followGrants(st *core.State, numbers []uint64) {
	for _, n := range numbers {
		t, ok := st.GrantTiming(n)
		if ok && (t.Revoked || t.EndsAt != 0) {
			m.trackGrant(t)
		} else if g := m.grants[n]; g != nil {
			g.due.drop()
			delete(m.grants, n)
		}
	}
}

func (m *Machine) followLocks(st *core.State, locks []string) {
	for _, name := range locks {
		if t, ok := st.ClosingTiming(name); ok {
			m.trackClosing(t)
		} else if c := m.closings[name]; c != nil {
			c.due.drop()
			delete(m.closings, name)
		}
	}
}

// restart follows a raised epoch, which ended every session: nothing of the
// old memory is true any more.
func (m *Machine) restart(st *core.State) {
	now, term := m.time.turned, m.term
	line := m.time
	m.Lead(now, term, st)
	m.time = line
}
