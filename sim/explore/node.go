package explore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/watchdog"
	"holdfast/server/core"
	"holdfast/server/lease"
)

// An entry of a node's log. It never changes.
type entry struct {
	core.Entry
	code []byte // its encoding, for the state's hash
	// The call that it answers, if any: the node that appended it replies.
	node, client int
	call         watchdog.CallID
}

// caller is an acquire that waits at a node for its notice.
type caller struct {
	session core.SessionID
	request core.Request
	client  int
	call    watchdog.CallID
}

// A node is one server: the real state, the real deadline machine, and a shell
// around them that decides nothing.
type node struct {
	id      int
	st      *core.State // replaced, never changed, by an application
	hash    [32]byte    // of st
	m       *lease.Machine
	leads   bool // believes to lead
	log     []*entry
	applied int // entries of log
	// limit is how many entries of log are or may be committed: -1 while
	// this node is the group's leader.
	limit     int
	committed int // entries that it inherited
	callers   []caller
	asks      []lease.Instant // confirmations under way
	// arrivals is when the keepalives came that have no answer yet.
	arrivals []arrival
	stalled  bool
	socket   []message     // delivered while stalled, not yet read
	drain    bool          // asked to drain
	turned   time.Duration // the latest turn
	code     []byte        // its encoding, once it was needed
}

// An arrival is when a keepalive came.
type arrival struct {
	handle lease.Handle
	at     time.Duration
}

// forget drops what only a leader's shell knows.
func (n *node) forget() {
	n.leads, n.stalled, n.drain = false, false, false
	n.callers, n.asks, n.socket, n.arrivals = nil, nil, nil, nil
}

// arrivedAt takes the arrival of a keepalive that is being answered.
func (n *node) arrivedAt(h lease.Handle) time.Duration {
	for i, a := range n.arrivals {
		if a.handle == h {
			n.arrivals = slices.Delete(slices.Clone(n.arrivals), i, i+1)
			return a.at
		}
	}
	return 0
}

func (n *node) clone() *node {
	c := *n
	c.m = n.m.Clone()
	c.log = slices.Clip(n.log)
	c.callers = slices.Clip(n.callers)
	c.asks = slices.Clip(n.asks)
	c.arrivals = slices.Clip(n.arrivals)
	c.socket = slices.Clip(n.socket)
	return &c
}

// handleOf names a keepalive of a client at every node.
func handleOf(client int, call watchdog.CallID) lease.Handle {
	return lease.Handle(uint64(client+1)<<32 | uint64(call))
}

// turn runs the deadline machine and does what it says.
func (w *world) turn(n *node) {
	n.turned = w.now
	eff := n.m.Turn(w.now)
	if len(eff.Propose) > 0 {
		w.checkUnread(n, eff.Propose)
		w.appendEntry(n, -1, 0, eff.Propose...)
	}
	if eff.Confirm && w.leader == n.id {
		n.asks = append(n.asks, w.now)
	}
	if eff.Drain {
		n.drain = true
	}
	for _, a := range eff.Answers {
		c, call := int(a.Handle>>32)-1, watchdog.CallID(uint32(a.Handle))
		if c < 0 || a.Status == lease.NotLeader {
			continue // as good as lost on the way
		}
		at := n.arrivedAt(a.Handle)
		r := watchdog.Reply{Verdict: watchdog.Done}
		if a.Status == lease.Lost {
			r.Verdict = watchdog.SessionLost
		} else {
			w.alive[c] = max(w.alive[c], at)
		}
		if a.Status == lease.Alive && w.cfg.revokes() {
			r.Revoked = n.revoked(sessionOf(c))
		}
		w.send(message{client: c, call: call, reply: true, kind: watchdog.CallKeepalive, answer: r})
	}
}

// checkUnread is property 5.
func (w *world) checkUnread(n *node, cmds []core.Command) {
	for _, c := range cmds {
		e, ok := c.(core.Expire)
		if !ok || n.limit >= 0 { // what a deposed leader proposes comes to nothing
			continue
		}
		for _, m := range n.socket {
			if m.kind == watchdog.CallKeepalive && sessionOf(m.client) == e.ID {
				w.fail(Unread, "node %d expires session %d, whose keepalive lies unread in its socket", n.id+1, e.ID)
			}
		}
	}
}

// revoked lists what a keepalive's answer says of revoked grants.
func (n *node) revoked(id core.SessionID) []watchdog.Revocation {
	var out []watchdog.Revocation
	v, _ := n.st.Session(id)
	for _, g := range v.Grants {
		if h, ok := n.st.GrantByNumber(g.Number); ok && h.Revoked {
			out = append(out, watchdog.Revocation{Grant: grantID(g.Number), Cause: watchdog.Revoked})
		}
	}
	for _, t := range v.Tombstones {
		out = append(out, watchdog.Revocation{Grant: grantID(t.Grant), Cause: watchdog.Revoked, Gone: true})
	}
	return out
}

func grantID(number uint64) string { return strconv.FormatUint(number, 10) }

// appendEntry appends one entry to n's log, if the group still follows n: what
// a deposed leader appends is never committed.
func (w *world) appendEntry(n *node, client int, call watchdog.CallID, cmds ...core.Command) {
	if n.limit >= 0 {
		return
	}
	h := core.Header{Clock: n.m.Clock(w.now)}
	if w.cfg.ZeroHeaders && client >= 0 {
		h = core.Header{}
	}
	code, err := core.EncodeEntry(h, cmds)
	if err != nil {
		w.fail(Broken, "encode: %v", err)
		return
	}
	n.log = append(n.log, &entry{
		Entry: core.Entry{Index: uint64(len(n.log) + 1), Term: w.term, Header: h, Commands: cmds},
		code:  code, node: n.id, client: client, call: call,
	})
}

// applyNext applies n's next entry and sends the replies that it owes.
func (w *world) applyNext(n *node) {
	e := n.log[n.applied]
	n.applied++
	did := w.apply(n, e)
	if did.err != nil {
		w.fail(Broken, "%v", did.err)
		return
	}
	if n.limit < 0 {
		w.checkEarly(did)
	}
	for _, c := range did.against {
		w.fail(c.property, "%s", c.why)
	}
	w.closings(n.st, e, did)
	n.st, n.hash = did.st, did.hash
	a := did.out
	if !n.leads {
		return
	}
	n.m.Applied(w.now, n.st, e.Entry, a)
	if e.node == n.id && e.client >= 0 {
		w.replyTo(n, e, a.Results[0])
	}
	w.armRevoked(e, a.Results)
	for _, notice := range a.Notices {
		for i, c := range n.callers {
			if c.session == notice.Session && c.request == notice.Request {
				n.callers = slices.Delete(slices.Clone(n.callers), i, i+1)
				w.send(w.acquireReply(c.client, c.call, notice.Result))
				break
			}
		}
	}
	if !n.stalled {
		w.turn(n)
	}
}

// checkEarly is property 2. An end at the wish of its client is not an expiry.
func (w *world) checkEarly(did *application) {
	for _, e := range did.out.Events {
		if e.Kind != core.EventEnded || e.Cause == core.CauseEnded {
			continue
		}
		c := int(e.Session) - 1
		if c >= len(w.clients) {
			continue // of nobody
		}
		w.expired++
		if age := w.now - w.alive[c]; age < w.cfg.TTL[c] {
			w.fail(TooEarly, "session %d ends %v after the arrival of a keepalive that was answered alive; T is %v", e.Session, age, w.cfg.TTL[c])
		}
	}
}

// An application is what one entry does to one state. It is a function of the
// two, so each is worked out once (see world.applied).
type application struct {
	st   *core.State
	hash [32]byte
	out  core.Applied
	err  error
	// against is what the entry broke.
	against []complaint
}

type applicationKey struct {
	hash  [32]byte
	index uint64
	code  string
}

// mostApplied bounds how many applications are remembered: each keeps a state.
const mostApplied = 20_000

// apply applies e to n's state, which stays as it is.
func (w *world) apply(n *node, e *entry) *application {
	key := applicationKey{n.hash, e.Index, string(e.code)}
	if did := w.applied[key]; did != nil {
		return did
	}
	if len(w.applied) >= mostApplied {
		clear(w.applied)
	}
	did := &application{st: n.st.Clone()}
	w.applied[key] = did
	do := e.Entry
	if w.cfg.Rewrite != nil {
		do.Commands = make([]core.Command, len(e.Commands))
		for i, c := range e.Commands {
			do.Commands[i] = w.cfg.Rewrite(did.st, c)
		}
	}
	if did.out, did.err = did.st.Apply(do); did.err == nil {
		did.err = did.st.Check()
	}
	if did.err == nil {
		did.against = w.cfg.judge(n.st, e, did)
	}
	did.hash = did.st.Hash()
	return did
}

// replyTo answers a client's call by its command's result.
func (w *world) replyTo(n *node, e *entry, r core.Result) {
	switch c := e.Commands[0].(type) {
	case core.Acquire:
		if r.Status == core.Waiting {
			n.callers = slices.DeleteFunc(slices.Clone(n.callers), func(o caller) bool {
				return o.session == c.Session && o.request == c.Request
			})
			n.callers = append(n.callers, caller{c.Session, c.Request, e.client, e.call})
			return
		}
		w.send(w.acquireReply(e.client, e.call, r))
	case core.Cancel:
		w.send(message{client: e.client, call: e.call, reply: true, kind: watchdog.CallCancel, answer: plain(r)})
	case core.Release:
		w.send(message{client: e.client, call: e.call, reply: true, kind: watchdog.CallRelease, answer: plain(r)})
	case core.End:
		w.send(message{client: e.client, call: e.call, reply: true, kind: watchdog.CallEnd, answer: plain(r)})
	}
}

func plain(r core.Result) watchdog.Reply {
	switch {
	case r.Status != core.Refused:
		return watchdog.Reply{Verdict: watchdog.Done}
	case r.Refusal.Reason == core.SessionLost:
		return watchdog.Reply{Verdict: watchdog.SessionLost}
	}
	return watchdog.Reply{Verdict: watchdog.Refused}
}

func (w *world) acquireReply(client int, call watchdog.CallID, r core.Result) message {
	m := message{client: client, call: call, reply: true, kind: watchdog.CallAcquire, answer: plain(r)}
	switch r.Status {
	case core.Granted:
		m.answer.Grant, m.token = grantID(r.Grant.Number), r.Grant.Generation
		if w.cfg.OwnTokens {
			m.token = r.Grant.Number
		}
	case core.Cancelled, core.Settled:
		m.answer.Verdict = watchdog.Refused
	}
	return m
}

// encode appends all that n's future depends on.
func (n *node) encode(b []byte, now time.Duration) []byte {
	flags := byte(0)
	for i, f := range []bool{n.leads, n.stalled, n.drain} {
		if f {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	if !n.leads && n.limit >= 0 && n.applied >= n.limit {
		return b // a follower: replaced at its election
	}
	b = append(b, n.hash[:]...)
	b = n.m.AppendState(b, now)
	limit := n.limit
	if limit >= 0 {
		limit -= n.applied
	}
	b = binary.AppendVarint(b, int64(limit))
	b = binary.AppendVarint(b, int64(max(n.committed-n.applied, 0)))
	b = binary.AppendUvarint(b, uint64(len(n.log)-n.applied))
	for _, e := range n.log[n.applied:] {
		b = append(b, e.code...)
		b = append(b, byte(e.Term), byte(e.node), byte(e.client), byte(e.call))
	}
	for _, c := range n.callers {
		b = append(b, byte(c.session), byte(c.request.Lane), byte(c.request.N), byte(c.client), byte(c.call))
	}
	b = append(b, 0xff)
	for _, a := range n.asks {
		b = binary.AppendVarint(b, int64(a-now))
	}
	b = append(b, 0xff)
	for _, a := range n.arrivals {
		b = binary.AppendUvarint(b, uint64(a.handle))
		b = binary.AppendVarint(b, int64(a.at-now))
	}
	b = append(b, 0xff)
	for _, m := range n.socket {
		b = m.encode(b)
	}
	return b
}

func describe(c core.Command) string {
	switch c := c.(type) {
	case core.Suspect:
		return fmt.Sprintf("suspect %v since %v", c.Sessions, time.Duration(c.Since))
	case core.Clear:
		return fmt.Sprintf("clear %v", c.Sessions)
	case core.Expire:
		return fmt.Sprintf("expire %d since %v", c.ID, time.Duration(c.Since))
	case core.Acquire:
		return fmt.Sprintf("acquire %s for session %d", c.Lock, c.Session)
	case core.Release:
		return fmt.Sprintf("release %d of session %d", c.Grant, c.Session)
	case core.Revoke:
		return fmt.Sprintf("revoke %d of %s (now %t, free %t)", c.Grant, c.Lock, c.Now, c.Free)
	}
	return fmt.Sprintf("%T", c)
}
