package watchdog

import (
	"encoding/binary"
	"maps"
	"slices"
)

// AppendState appends an encoding of all that decides what the machine will
// do, except its settings: two machines with equal settings and equal
// encodings answer every input alike. An explorer tells by it which states it
// has seen. It is not for storage: it may change with every version.
func (m *Machine) AppendState(b []byte) []byte {
	e := encoder(b)
	e.int(m.good, m.pulse.callAt, m.pulse.next, m.idleSince, m.overAt, m.endAt, m.endCallAt)
	e.uint(uint64(m.lastCall), uint64(m.pulse.call), uint64(m.pulse.failures), uint64(m.cause), uint64(m.endCall), uint64(m.endTries))
	e.bools(m.idle, m.over, m.finished)
	e.uint(uint64(len(m.lanes)))
	for _, l := range m.lanes {
		e.lane(l)
	}
	e.uint(uint64(len(m.grants)))
	for i := range m.grants {
		e.grant(&m.grants[i], m.contended(&m.grants[i]))
	}
	e.uint(uint64(len(m.calls)))
	for _, id := range slices.Sorted(maps.Keys(m.calls)) {
		c := m.calls[id]
		e.uint(uint64(id), uint64(c.kind), uint64(c.request.Lane), c.request.N)
		e.int(c.sent)
		e.text(c.grant)
	}
	e.uint(uint64(len(m.early)))
	for _, r := range m.early {
		e.text(r.Grant)
		e.text(r.By)
		e.uint(uint64(r.Cause))
		e.bools(r.Gone)
	}
	return e
}

// An encoder appends values so that no two sequences look alike.
type encoder []byte

func (e *encoder) lane(l lane) {
	e.uint(l.n)
	e.bools(l.busy)
	if q := l.request; l.busy {
		e.bools(q.try, q.cancelling, q.failing)
		e.uint(uint64(q.call), uint64(q.failures))
		e.int(q.callAt, q.retryAt, q.failingAt)
	}
}

func (e *encoder) grant(g *grant, contended bool) {
	e.bools(g.known)
	if !g.known {
		return
	}
	e.text(g.id)
	e.bools(g.lingers, g.asked, g.failed, g.release, contended)
	e.uint(uint64(g.lost), uint64(g.call), uint64(g.failures))
	e.int(g.lostAt, g.callAt, g.retryAt)
}

func (e *encoder) int(at ...Instant) {
	for _, v := range at {
		*e = binary.AppendVarint(*e, int64(v))
	}
}

func (e *encoder) uint(of ...uint64) {
	for _, v := range of {
		*e = binary.AppendUvarint(*e, v)
	}
}

// bools takes at most eight.
func (e *encoder) bools(of ...bool) {
	var flags byte
	for i, v := range of {
		if v {
			flags |= 1 << i
		}
	}
	*e = append(*e, flags)
}

func (e *encoder) text(s string) {
	*e = binary.AppendUvarint(*e, uint64(len(s)))
	*e = append(*e, s...)
}
