package sim

import (
	"math/rand/v2"
	"time"

	"holdfast/server/core"
)

// A network carries messages between processes. A link from one process to
// another keeps their order, as TCP does, but for those that a fault lets
// overtake.
type network struct {
	w     *world
	rng   *rand.Rand
	links map[link]*line
	hurt  [exchanges]hurt
}

type link struct{ from, to *process }

// A line is the state of one link.
type line struct {
	cuts int           // reasons for which nothing passes
	slow time.Duration // added to every delay
	last time.Duration // when the latest message arrives
	// mended is when the latest fault of the link ended.
	mended time.Duration
}

// An exchange is one direction of one kind of talk: faults may happen to it
// alone.
type exchange uint8

// The exchanges. An answer's is its request's + 1.
const (
	anyExchange exchange = iota
	_
	callsOpen
	_
	callsKeepalive
	_
	callsAcquire
	_
	callsCancel
	_
	callsRelease
	_
	callsEnd
	_
	callsValue
	_
	callsOrder // of an operator
	_
	armings
	_
	writes
	_
	betweenMembers
	_
	transfers
	_
	exchanges
)

var exchangeNames = [exchanges]string{
	callsOpen: "open", callsKeepalive: "keepalive", callsAcquire: "acquire", callsCancel: "cancel", callsRelease: "release",
	callsEnd: "end of session", callsValue: "value", callsOrder: "operator's order", armings: "arming", writes: "write",
	betweenMembers: "message between members", transfers: "snapshot",
}

// String names the exchange and its direction.
func (e exchange) String() string {
	if name := exchangeNames[e]; name != "" {
		return name
	}
	return "answer to " + exchangeNames[e-1]
}

// hurt is what happens to the next messages of one exchange.
type hurt struct {
	lose, repeat int
}

// exchangeOf is the exchange of a client's or an operator's call.
func exchangeOf(m message) exchange {
	switch m.call {
	case callOpen:
		return callsOpen
	case callKeepalive:
		return callsKeepalive
	case callCommand:
		switch m.cmd.(type) {
		case core.Acquire:
			return callsAcquire
		case core.Cancel:
			return callsCancel
		case core.Release:
			return callsRelease
		case core.End:
			return callsEnd
		case core.Put, core.Delete:
			return callsValue
		}
	}
	return callsOrder
}

// answerTo is the exchange of the answer to a call.
func answerTo(m message) exchange { return exchangeOf(m) + 1 }

// line is the state of a link. The map is never ranged over: its order would
// be another each time.
func (n *network) line(from, to *process) *line {
	l := n.links[link{from, to}]
	if l == nil {
		l = &line{}
		n.links[link{from, to}] = l
	}
	return l
}

// carry brings a message to its receiver: arrive happens at that end, even if
// the process there is down or stands still; lost, if not nil, tells the sender,
// sometimes, that it did not arrive.
func (n *network) carry(what exchange, from, to *process, arrive, lost func()) {
	w, l := n.w, n.line(from, to)
	h := &n.hurt[what]
	if l.cuts > 0 || n.fault(Drop) || n.singled(&h.lose, LoseCall) {
		if lost != nil && n.rng.IntN(2) == 0 {
			w.after(between(n.rng, time.Millisecond, w.TTL/2), lost)
		}
		return
	}
	d := between(n.rng, 50*time.Microsecond, 2*time.Millisecond) + l.slow
	if n.fault(Delay) {
		d += between(n.rng, 10*time.Millisecond, 2*w.TTL)
	}
	at := w.now + d
	if what == transfers || n.fault(Reorder) { // a connection of its own
		w.at(at, arrive)
	} else {
		at = max(at, l.last)
		l.last = at
		w.at(at, arrive)
	}
	if n.fault(Duplicate) || n.singled(&h.repeat, RepeatCall) {
		w.at(at+between(n.rng, 0, w.TTL), arrive)
	}
}

// fault draws whether a fault happens to a message.
func (n *network) fault(f Fault) bool {
	if n.w.calm || !chance(n.rng, n.w.Rates[f]) {
		return false
	}
	n.w.counts[f]++
	return true
}

// singled reports whether a message is one of those that a fault singled out.
func (n *network) singled(left *int, f Fault) bool {
	if *left == 0 || n.w.calm {
		return false
	}
	*left--
	n.w.counts[f]++
	return true
}

// cut stops all messages of a link until the function that it returns is
// called.
func (n *network) cut(from, to *process) (mend func()) {
	l := n.line(from, to)
	l.cuts++
	return func() { l.cuts--; l.mended = n.w.now }
}

// slow makes all messages of a link take longer.
func (n *network) slow(from, to *process, by time.Duration) (mend func()) {
	l := n.line(from, to)
	l.slow += by
	return func() { l.slow -= by; l.mended = n.w.now }
}
