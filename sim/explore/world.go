package explore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/watchdog"
	"holdfast/server/core"
	"holdfast/server/lease"
)

// A world is one state of everything. An event makes a new world; parts that
// the event does not touch are shared.
type world struct {
	cfg       *Config
	now       time.Duration
	leader    int // the node that the group follows
	term      uint64
	nodes     []*node
	clients   []*client
	net       []message
	resources []resource
	// alive is, for each client's session, the latest arrival of a keepalive
	// that was answered alive.
	alive []time.Duration
	// expired counts the sessions that ended without their client's wish.
	expired int
	// shut is, for each lock, the clock until which it must stay closed, and
	// judged the latest entry that counted for it.
	shut   []core.Clock
	judged uint64

	changes, stalls, duplicates, revokes, releases, suspends, opens int // how many happened

	// applied remembers applications; it is shared by all worlds of a run.
	applied map[applicationKey]*application

	broken string // the property that does not hold
	why    string
}

// locks lists the names of all locks, sorted.
func (c *Config) locks() []string {
	var out []string
	for _, wants := range c.Wants {
		out = append(out, wants...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// newWorld is the world at the start: node 1 leads, every session is open and
// idle, nothing is held.
func newWorld(cfg *Config) *world {
	w := &world{cfg: cfg, now: newestWorld, term: 1, applied: map[applicationKey]*application{},
		resources: make([]resource, len(cfg.locks())), shut: make([]core.Clock, len(cfg.locks()))}
	st := core.New(core.Config{Domain: domain, Incarnation: 1, Members: []core.Member{{ID: 1}, {ID: 2}, {ID: 3}}})
	for i := range 2 {
		weak := cfg.Lease
		if cfg.Uptimes != nil {
			weak.OwnClock = cfg.Uptimes[i] - newestWorld
		}
		w.nodes = append(w.nodes, &node{id: i, st: st, limit: 0, m: lease.NewWeakened(lease.Config{Tick: cfg.Tick}, weak)})
	}
	n := w.nodes[0]
	n.leads, n.limit = true, -1
	n.m.Lead(w.now, w.term, st)
	for i := range cfg.Wants {
		ttl := cfg.TTL[i]
		set := watchdog.Settings{TTL: ttl, Margin: time.Microsecond, Interval: ttl / 4, CallTimeout: ttl*3/8 - time.Microsecond}
		if err := set.Validate(); err != nil {
			w.fail(Broken, "settings: %v", err)
		}
		w.appendEntry(n, -1, 0, openOf(i, ttl, sessionOf(i)))
		w.applyNext(n)
		w.clients = append(w.clients, &client{id: i, m: watchdog.New(set, w.now+cfg.Client.OpenLate), answered: w.now})
		w.alive = append(w.alive, w.now)
	}
	if cfg.Warm {
		for i, c := range w.clients {
			w.ask(i, c.next)
			w.settle()
		}
	}
	return w
}

// openOf is a client's open, for which a leader drew a session ID.
func openOf(client int, ttl time.Duration, id core.SessionID) core.Open {
	return core.Open{ID: id, SecretHash: [32]byte{byte(client + 1)}, Instance: [16]byte{1}, TTL: ttl}
}

func (w *world) clone() *world {
	c := *w
	c.nodes = slices.Clone(w.nodes)
	c.clients = slices.Clone(w.clients)
	c.net = slices.Clip(w.net)
	c.resources = slices.Clone(w.resources)
	c.alive = slices.Clone(w.alive)
	return &c
}

// node returns node i of this world alone.
func (w *world) node(i int) *node {
	w.nodes[i] = w.nodes[i].clone()
	w.nodes[i].code = nil
	return w.nodes[i]
}

// client returns client i of this world alone.
func (w *world) client(i int) *client {
	w.clients[i] = w.clients[i].clone()
	w.clients[i].code = nil
	return w.clients[i]
}

// fail notes the first property that does not hold.
func (w *world) fail(property, format string, args ...any) {
	if w.broken == "" && (w.cfg.Only == "" || w.cfg.Only == property || property == Broken) {
		w.broken, w.why = property, fmt.Sprintf(format, args...)
	}
}

// send puts a message on its way.
func (w *world) send(m message) {
	same := 0
	for i := len(w.net) - 1; i >= 0; i-- {
		if o := w.net[i]; o.client == m.client && o.reply == m.reply {
			if same++; same == w.cfg.InFlight {
				w.net = slices.Delete(slices.Clone(w.net), i, i+1)
				break
			}
		}
	}
	w.net = append(slices.Clip(w.net), m)
}

// sweep loses the answers that could not change anything: those to a client
// whose session is over, and those to keepalives older than an answered one.
func (w *world) sweep() {
	for _, m := range w.net {
		if w.idle(m) {
			w.net = slices.DeleteFunc(slices.Clone(w.net), w.idle)
			return
		}
	}
}

func (w *world) idle(m message) bool {
	c := w.clients[m.client]
	_, over := c.m.Over()
	late := m.kind == watchdog.CallKeepalive && c.sent[m.call-1] < c.m.Good() && !w.cfg.revokes() && !w.cfg.Client.FromAnswer
	return m.reply && (over || late && m.answer.Verdict == watchdog.Done)
}

// spent reports that no property can be broken any more: at most one client
// has a session or a write to come, and no session can still expire.
func (w *world) spent() bool {
	if w.cfg.Client.FromAnswer || w.cfg.Only == Unread {
		return false
	}
	live := 0
	for i, c := range w.clients {
		_, over := c.m.Over()
		for _, h := range c.held {
			over = over && (!h.armed || h.wrote)
		}
		if !over {
			live++
		}
		if !w.cfg.Deep && w.cfg.TTL[i] <= w.cfg.Unit*timeUnits(w.cfg.Units) &&
			w.nodes[w.leader].st.HasSession(sessionOf(i)) {
			return false
		}
	}
	return live <= 1
}

// take removes message i from the network.
func (w *world) take(i int) message {
	m := w.net[i]
	w.net = slices.Delete(slices.Clone(w.net), i, i+1)
	return m
}

// pass lets one unit of time pass: who runs and has something due does it.
func (w *world) pass() {
	w.now += w.cfg.Unit
	for i, n := range w.nodes {
		if n.leads && !n.stalled {
			w.turn(w.node(i))
		}
	}
	for i, c := range w.clients {
		if at, ok := c.m.Wake(); ok && at <= w.now-c.missed {
			c := w.client(i)
			w.told(c, c.m.Tick(w.moment(c)), 0)
		}
	}
}

// receive hands a message to a node that believes to lead.
func (w *world) receive(n *node, m message) {
	if n.stalled {
		n.socket = append(n.socket, m)
		return
	}
	session := sessionOf(m.client)
	switch m.kind {
	case watchdog.CallKeepalive:
		n.arrivals = append(n.arrivals, arrival{handleOf(m.client, m.call), w.now})
		n.m.Keepalive(handleOf(m.client, m.call), session, w.now)
		w.turn(n)
	case watchdog.CallAcquire:
		a := w.cfg.Terms
		a.Session, a.Request, a.Lock, a.Shared = session, core.Request(m.request), w.cfg.locks()[m.lock], w.shares(m.client)
		w.appendEntry(n, m.client, m.call, a)
	case watchdog.CallCancel:
		w.appendEntry(n, m.client, m.call, core.Cancel{Session: session, Request: core.Request(m.request)})
	case watchdog.CallRelease:
		w.appendEntry(n, m.client, m.call, core.Release{Session: session, Grant: m.grant, Failed: m.failed})
	case watchdog.CallEnd:
		w.appendEntry(n, m.client, m.call, core.End{ID: session})
	}
}

// resume ends a node's stall. Its turn comes first. If so little time passed
// that it was no stall in the sense of B9, what lies in its sockets is read at
// once; after a longer one the many connections may take any time.
func (w *world) resume(n *node) {
	n.stalled = false
	if w.now-n.turned > 2*w.cfg.Tick {
		w.turn(n)
		return
	}
	unread := n.socket
	n.socket = nil
	w.turn(n)
	for _, m := range unread {
		w.receive(n, m)
	}
}

// elect makes node j the group's leader. It inherits the first k entries of
// the old leader's log, which are all committed by that.
func (w *world) elect(j, k int) {
	old, n := w.node(w.leader), w.node(j)
	w.term++
	w.changes++
	w.leader = j
	old.limit = k
	for _, c := range old.callers { // its connection breaks: ask again (C3)
		w.send(message{client: c.client, call: c.call, reply: true, kind: watchdog.CallAcquire})
	}
	old.callers = nil
	if n.leads {
		n.m.StepDown()
	}
	n.log, n.applied, n.limit, n.committed = old.log[:k:k], old.applied, -1, k
	n.st, n.hash = old.st, old.hash
	n.forget()
	if w.cfg.OwnTermOnly {
		n.passOver()
	}
	for n.applied < k && !w.cfg.EarlyLead {
		w.applyNext(n)
	}
	n.leads = true
	n.m.Lead(w.now, w.term, n.st)
	w.turn(n)
}

// passOver makes ticks of what n inherited and has not applied.
func (n *node) passOver() {
	n.log = slices.Clone(n.log)
	for i, e := range n.log[n.applied:] {
		tick := *e
		tick.Commands, tick.client = []core.Command{core.Tick{}}, -1
		tick.code, _ = core.EncodeEntry(tick.Header, tick.Commands) // a tick can be encoded
		n.log[n.applied+i] = &tick
	}
}

// stepDown tells a node that it was deposed.
func (w *world) stepDown(n *node) {
	n.m.StepDown()
	n.m.Turn(w.now) // its answers, not-leader, are as good as lost
	n.forget()
}

// check is properties 1 and 7. A revoke at once is the only exception of the
// first (B11).
func (w *world) check() {
	if a, b := w.nodes[0], w.nodes[1]; a.applied == b.applied && a.hash != b.hash {
		w.fail(Diverged, "after %d entries the two nodes have different states", a.applied)
	}
	if w.cfg.RevokeNow {
		return
	}
	for lock, name := range w.cfg.locks() {
		first := -1
		for _, c := range w.clients {
			for _, h := range c.held {
				if h.lock != lock || h.gaveUp || !w.believes(c, h) {
					continue
				}
				if first >= 0 && first != c.id && !(w.shares(first) && w.shares(c.id)) {
					w.fail(TwoHolders, "%s and %s both believe that they hold %s", clientName(first), clientName(c.id), name)
				}
				first = c.id
			}
		}
	}
}

// hash is a digest of all that the future depends on.
func (w *world) hash(buf []byte) ([16]byte, []byte) {
	b := append(buf[:0], byte(w.now/w.cfg.Unit), byte(w.leader), byte(w.term),
		byte(w.changes), byte(w.stalls), byte(w.duplicates), byte(w.revokes), byte(w.releases), byte(w.suspends), byte(w.opens))
	for _, c := range w.shut {
		b = binary.AppendVarint(b, int64(c))
	}
	for _, at := range w.alive {
		b = append(b, byte((w.now-at)/w.cfg.Unit))
	}
	for _, n := range w.nodes {
		if n.code == nil {
			n.code = n.encode(nil, newestWorld)
		}
		b = append(b, n.code...)
	}
	for _, c := range w.clients {
		if c.code == nil {
			c.code = c.encode(nil, newestWorld, w.cfg.Client.FromAnswer)
		}
		b = append(b, c.code...)
	}
	order := make([]string, len(w.net))
	for i, m := range w.net {
		order[i] = string(m.encode(nil))
	}
	slices.Sort(order)
	for _, m := range order {
		b = append(b, m...)
	}
	for _, r := range w.resources {
		b = append(b, byte(r.version), byte(r.mark.Number), byte(r.mark.Mode), byte(r.revoked))
	}
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16]), b
}

// settle does everything that happens when nothing is late and nothing fails,
// until nothing is left to do.
func (w *world) settle() {
	for again := true; again; {
		again = false
		for _, a := range w.actions() {
			if a.calm {
				a.do(w)
				again = true
				break
			}
		}
	}
}

// ask lets a client ask for the next lock that it wants.
func (w *world) ask(i, k int) {
	c := w.client(i)
	c.next = k + 1
	lock := slices.Index(w.cfg.locks(), w.cfg.Wants[i][k])
	// The machine sends at once, so the request must be known first.
	c.asked = append(c.asked, asked{request: nextRequest(c.m), lock: lock})
	_, acts, err := c.m.Begin(w.moment(c), false)
	if err != nil {
		c.asked = nil
	}
	w.told(c, acts, 0)
}
