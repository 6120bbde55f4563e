package watchdog

// isOpen reports whether a request has no final answer.
func (m *Machine) isOpen(id Request) bool {
	return int(id.Lane) < len(m.lanes) && m.lanes[id.Lane].busy && m.lanes[id.Lane].n == id.N
}

// changeRequest changes the request of a lane.
func (m *Machine) changeRequest(n int, change func(*request)) {
	l := &m.lanes[n]
	m.countRequest(l, -1)
	change(&l.request)
	m.countRequest(l, +1)
	if q := &l.request; q.call != 0 {
		m.dueRequests.set(n, q.callAt+m.patience(q))
	} else {
		m.dueRequests.set(n, q.retryAt)
	}
}

func (m *Machine) countRequest(l *lane, by int) {
	if l.busy && !l.request.cancelling {
		m.needing += by
	}
}

// drop frees a lane when its request has its final answer (promise 4), or
// never will have one.
func (m *Machine) drop(n int) {
	l := &m.lanes[n]
	m.countRequest(l, -1)
	l.busy, l.request = false, request{}
	m.dueRequests.remove(n)
	m.freeLanes.set(n, 0)
}

// changeGrant changes the grant in a slot.
func (m *Machine) changeGrant(n int, change func(*grant)) {
	g := &m.grants[n]
	m.countGrant(g, -1)
	change(g)
	m.countGrant(g, +1)
	switch {
	case g.call != 0:
		m.dueGrants.set(n, g.callAt+m.set.CallTimeout)
	case g.release:
		m.dueGrants.set(n, g.retryAt)
	case g.lingers:
		m.dueGrants.set(n, g.lostAt+m.set.TTL)
	default:
		m.dueGrants.remove(n)
	}
}

func (m *Machine) countGrant(g *grant, by int) {
	if !g.known || g.asked {
		return
	}
	m.out += by
	if g.lost == 0 || g.lingers {
		m.needing += by
	}
}

// add puts a new grant into the lowest free slot.
func (m *Machine) add(id string) (slot int) {
	free, ok := m.freeSlots.first()
	if !ok {
		free.n = len(m.grants)
		m.grants = append(m.grants, grant{})
	}
	m.freeSlots.remove(free.n)
	m.slots[id] = free.n
	m.changeGrant(free.n, func(g *grant) { *g = grant{known: true, id: id} })
	return free.n
}

// forget frees a slot (promise 5).
func (m *Machine) forget(n int) {
	g := &m.grants[n]
	m.countGrant(g, -1)
	delete(m.slots, g.id)
	*g = grant{}
	m.dueGrants.remove(n)
	m.freeSlots.set(n, 0)
}
