package explore

import (
	"fmt"
	"slices"

	"holdfast/internal/watchdog"
	"holdfast/server/core"
)

// An action is one event that may happen next. It changes the world that it is
// given, which is a copy.
type action struct {
	name func() string // of the world before it
	do   func(*world)
	calm bool // part of a run in which nothing is late and nothing fails
}

// An adder adds a calm action, a chancer one that is not.
type adder func(do func(*world), format string, args ...any)

// actions lists every event that may happen in w next, always in one order.
func (w *world) actions() []action {
	var out []action
	put := func(calm bool) adder {
		return func(do func(*world), format string, args ...any) {
			out = append(out, action{func() string { return fmt.Sprintf(format, args...) }, do, calm})
		}
	}
	add, chance := put(true), put(false)
	for i, n := range w.nodes {
		if n.leads {
			w.nodeActions(i, n, add, chance)
		}
	}
	for i, m := range w.net {
		w.messageActions(i, m, add, chance)
	}
	for i, c := range w.clients {
		w.clientActions(i, c, chance)
	}
	if w.changes < w.cfg.LeaderChanges {
		old, j := w.nodes[w.leader], 1-w.leader
		for k := max(old.applied, old.committed); k <= len(old.log); k++ {
			chance(func(w *world) { w.elect(j, k) }, "node %d is elected and inherits %d of %d entries in flight",
				j+1, k-old.applied, len(old.log)-old.applied)
		}
	}
	if w.revokes < w.cfg.Revokes {
		w.revokeActions(chance)
	}
	if n := w.nodes[w.leader]; w.opens < w.cfg.SecondOpens && n.leads && !n.stalled {
		chance((*world).openAgain, "A's open arrives once more at node %d", w.leader+1)
	}
	if w.suspends < w.cfg.Client.Suspends {
		chance(func(w *world) {
			w.suspends++
			w.client(0).missed += w.cfg.Unit
			w.pass()
		}, "time passes while A is suspended: %v", w.now-newestWorld+w.cfg.Unit)
	}
	if w.now < newestWorld+w.cfg.Unit*timeUnits(w.cfg.Units) {
		chance((*world).pass, "time passes: %v", w.now-newestWorld+w.cfg.Unit)
	}
	return out
}

func (w *world) nodeActions(i int, n *node, add, chance adder) {
	if n.applied < len(n.log) && (n.limit < 0 || n.applied < n.limit) && !n.stalled {
		e := n.log[n.applied]
		add(func(w *world) { w.applyNext(w.node(i)) }, "node %d applies %v", i+1, list(e.Commands))
	}
	for a, at := range n.asks {
		if n.stalled {
			break
		}
		add(func(w *world) {
			n := w.node(i)
			n.asks = slices.Delete(slices.Clone(n.asks), a, a+1)
			n.m.Confirmed(at)
			w.turn(n)
		}, "node %d learns that its leadership was confirmed for what came by %v", i+1, at-newestWorld)
	}
	if n.limit >= 0 && w.cfg.StepDowns {
		chance(func(w *world) { w.stepDown(w.node(i)) }, "node %d learns that it was deposed", i+1)
	}
	switch {
	case n.stalled:
		add(func(w *world) {
			w.resume(w.node(i))
		}, "node %d goes on", i+1)
	case w.stalls < w.cfg.Stalls && n.limit < 0:
		chance(func(w *world) {
			w.node(i).stalled = true
			w.stalls++
		}, "node %d is stalled", i+1)
	}
	if len(n.socket) > 0 && !n.stalled {
		add(func(w *world) {
			n := w.node(i)
			m := n.socket[0]
			n.socket = n.socket[1:]
			w.receive(n, m)
		}, "node %d reads the %s from its socket", i+1, n.socket[0])
	}
	if n.drain && !n.stalled {
		add(func(w *world) {
			n := w.node(i)
			n.drain = false
			for _, m := range n.socket {
				w.receive(n, m)
			}
			n.socket = nil
			n.m.Drained(w.now)
			w.turn(n)
		}, "node %d has read every connection until it would block", i+1)
	}
}

// list is commands for a story.
type list []core.Command

func (l list) String() string {
	s := ""
	for i, c := range l {
		if i > 0 {
			s += ", "
		}
		s += describe(c)
	}
	return s
}

func (w *world) messageActions(i int, m message, add, chance adder) {
	again := w.duplicates < w.cfg.Duplicates && !m.twice
	deliver := func(add adder, to string, hand func(*world, message)) {
		add(func(w *world) { hand(w, w.take(i)) }, "%s gets the %s", to, m)
		if again {
			chance(func(w *world) {
				w.duplicates++
				m := w.net[i]
				w.net = slices.Clone(w.net)
				w.net[i].twice = true
				hand(w, m)
			}, "%s gets the %s, which will come again", to, m)
		}
	}
	if m.reply {
		deliver(add, clientName(m.client), func(w *world, m message) {
			c := w.client(m.client)
			if m.kind == watchdog.CallKeepalive && m.answer.Verdict == watchdog.Done {
				c.answered = w.now
			}
			w.told(c, c.m.Settle(w.moment(c), m.call, m.answer), m.token)
		})
		return
	}
	for j, n := range w.nodes {
		if !n.leads || n.limit >= 0 && m.kind != watchdog.CallKeepalive {
			continue // what a deposed leader appends comes to nothing
		}
		to := add
		if n.limit >= 0 {
			to = chance
		}
		deliver(to, nodeNames[j], func(w *world, m message) { w.receive(w.node(j), m) })
	}
}

var nodeNames = [...]string{"node 1", "node 2"}

func (w *world) clientActions(i int, c *client, chance adder) {
	if _, over := c.m.Over(); !over && c.next < len(w.cfg.Wants[i]) && len(c.asked) == 0 {
		name := w.cfg.Wants[i][c.next]
		k := c.next
		chance(func(w *world) { w.ask(i, k) }, "%s asks for %s", clientName(i), name)
	}
	for k, h := range c.held {
		if h.gaveUp {
			continue
		}
		name := w.cfg.locks()[h.lock]
		if w.cfg.Writes && !h.armed && !h.wrote && w.believes(c, h) {
			chance(func(w *world) {
				c := w.client(i)
				w.armAndRead(c, &c.held[k])
			}, "%s arms the gate with %d and reads %s", clientName(i), h.token, name)
		}
		if h.armed && !h.wrote {
			chance(func(w *world) {
				c := w.client(i)
				w.write(c, &c.held[k])
			}, "%s's write of %s with token %d arrives", clientName(i), name, h.token)
		}
		if w.releases < w.cfg.Releases && (h.wrote || !w.cfg.Writes) {
			chance(func(w *world) { w.release(i, k, false) }, "%s releases %s", clientName(i), name)
			if w.cfg.Terms.OncePer > 0 {
				chance(func(w *world) { w.release(i, k, true) }, "%s releases %s, having failed", clientName(i), name)
			}
		}
	}
}

func (w *world) release(i, k int, failed bool) {
	c := w.client(i)
	w.releases++
	c.held[k].gaveUp = true
	w.told(c, c.m.Release(w.moment(c), c.held[k].id, failed), 0)
}

// openAgain lets a copy of the first client's open arrive.
func (w *world) openAgain() {
	n := w.node(w.leader)
	w.opens++
	w.appendEntry(n, -1, 0, openOf(0, w.cfg.TTL[0], core.SessionID(100+w.opens)))
}

// nextRequest is the name that the machine's next Begin will give.
func nextRequest(m *watchdog.Machine) watchdog.Request {
	r, _, _ := m.Clone().Begin(watchdog.Moment{}, false)
	return r
}

// revokeActions lets an operator take a grant back, at the group's leader.
func (w *world) revokeActions(add adder) {
	n := w.nodes[w.leader]
	if !n.leads || n.stalled {
		return
	}
	for _, name := range w.cfg.locks() {
		v, ok := n.st.Lock(name, 0)
		if !ok || len(v.Holders) == 0 || v.Holders[0].Revoked {
			continue
		}
		cmd := core.Revoke{Lock: name, Grant: v.Holders[0].Number, Now: w.cfg.RevokeNow, Cause: core.ByOperator, By: "op"}
		add(func(w *world) {
			w.revokes++
			n := w.node(w.leader)
			n.m.Proposed([]core.Command{cmd})
			w.appendEntry(n, -1, 0, cmd)
		}, "an operator: %s", describe(cmd))
	}
}
